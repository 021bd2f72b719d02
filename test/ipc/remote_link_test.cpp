// The way from a process to an owner of remote memory (umf/remote.h): ports, descriptors, sockets
// and what others send to them, UCX, and the limits of a connection.
#include <cstddef>
#include <fstream>
#include <set>
#include <thread>

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fakes/remote_pair.h"
#include "fakes/sum.h"

// The ports on which this process listens.
std::vector<unsigned> listening_ports() {
    std::vector<unsigned> ports;
    std::set<unsigned long> own;
    for (int fd = 0; fd < 1024; fd++) {
        struct stat file;
        if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode)) {
            own.insert(file.st_ino);
        }
    }
    for (const char *table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
        std::ifstream lines(table);
        for (std::string line; std::getline(lines, line);) {
            unsigned port, state;
            unsigned long file;
            if (sscanf(line.c_str(), "%*s %*[^:]:%x %*s %x %*s %*s %*s %*s %*s %lu", &port, &state,
                       &file) == 3 &&
                state == 0x0a && own.count(file) > 0) {
                ports.push_back(port);
            }
        }
    }
    return ports;
}

// Else a connection to an owner that has ended may come back to the process that makes it.
TEST_P(Remote, ListensOnNoPortOfThoseThatConnect) {
    unsigned low = 0, high = 0;
    std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
    if (getenv("UCX_TCP_PORT_RANGE") || (low < 13000 && high > 63000)) {
        GTEST_SKIP() << "the ports are chosen by the environment";
    }
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    const std::vector<unsigned> ports = listening_ports();
    EXPECT_FALSE(ports.empty());
    for (unsigned port : ports) {
        EXPECT_TRUE(port < low || port > high) << port;
    }
}

// Numbers of the pipes of this process. Not with fstat: ThreadSanitizer takes it for a use of
// descriptors that the thread of a context opens and closes.
std::vector<int> pipes() {
    std::vector<int> found;
    for (int fd = 3; fd < 1024; fd++) {
        char target[8] = "";
        std::string path = "/proc/self/fd/" + std::to_string(fd);
        if (readlink(path.c_str(), target, 5) == 5 && strcmp(target, "pipe:") == 0) {
            found.push_back(fd);
        }
    }
    return found;
}

TEST_P(Remote, AProgramThatHasClosedThePipesKeepsItsOwn) {
    std::vector<int> before = pipes(), own;
    start("disjoint over os", MiB, UMF_REMOTE_GET);
    for (int fd : pipes()) {
        int pair[2];
        char byte = 'x';
        // The context opens its pipe first; UCX opens others.
        if (std::find(before.begin(), before.end(), fd) != before.end() || own.size() == 4) {
            continue;
        }
        ASSERT_EQ(pipe(pair), 0);
        ASSERT_EQ(write(pair[1], &byte, 1), 1);
        ASSERT_EQ(dup2(pair[0], fd), fd); // the number is the program's now
        close(pair[0]);
        own.push_back(pair[1]);
        own.push_back(fd);
    }
    ASSERT_EQ(own.size(), 4u) << "the context has two ends of a pipe";
    open();
    std::vector<char> bytes(MiB);
    for (int round = 0; round < 3; round++) {
        EXPECT_EQ(umfRemoteGet(memory, 0, bytes.data(), bytes.size(), nullptr), OK);
    }
    EXPECT_EQ(bytes[MiB - 1], 'a');
    EXPECT_EQ(umfRemoteClose(memory), OK);
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
    memory = nullptr;
    remote = nullptr;
    for (size_t i = 0; i < own.size(); i += 2) {
        int waiting = 0;
        EXPECT_EQ(ioctl(own[i + 1], FIONREAD, &waiting), 0) << "it was closed";
        EXPECT_EQ(waiting, 1) << "it was read or written";
        close(own[i]);
        close(own[i + 1]);
    }
}

TEST_P(Remote, PeersComeAndGo) { // more than an owner serves at a time
    start("proxy over os", MiB, UMF_REMOTE_GET);
    std::vector<char> bytes(100);
    for (int i = 0; i < 300; i++) {
        ASSERT_EQ(open(handle), OK) << i;
        ASSERT_EQ(get(0, &bytes), OK) << i;
        ASSERT_EQ(umfRemoteClose(memory), OK);
        memory = nullptr;
    }
}

// Is shared memory of a local connection mapped here?
bool has_window() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:umf-window") != std::string::npos) {
            return true;
        }
    }
    return false;
}

TEST_P(Remote, TheWayIsTheOneThatWasChosen) {
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    std::vector<char> bytes(MiB);
    EXPECT_EQ(get(0, &bytes), OK);
    EXPECT_EQ(has_window(), is_local);
    EXPECT_EQ(umfRemoteClose(memory), OK);
    memory = nullptr;
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
    remote = nullptr;
    EXPECT_FALSE(has_window());
}

// Members of a handle and of a message, as in src/ext/remote/own.h.
constexpr size_t HANDLE_OWNER = 24, MESSAGE = 128, MESSAGE_KIND = 6, MESSAGE_NUMBER = 8,
                 MESSAGE_SESSION = 16, MESSAGE_EXPORT = 24, MESSAGE_OFFSET = 40,
                 MESSAGE_LENGTH = 48, MESSAGE_ANSWER = 56, MESSAGE_ID = 64;
enum : uint16_t { HELLO = 1, WELCOME = 4, GET = 7, PUT = 9 };
constexpr uint32_t FINE = 0, BUSY = 4;

std::string message_of(uint16_t kind) {
    std::string message(MESSAGE, '\0');
    memcpy(&message[0], "UFMR\1", 5);
    memcpy(&message[MESSAGE_KIND], &kind, sizeof(kind));
    return message;
}

// The socket of an owner, by the bytes of its handle.
sockaddr_un name_of(const std::string &handle, socklen_t *length) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::string text = "umf-remote-";
    for (size_t i = 0; i < 16; i++) {
        char digits[3];
        snprintf(digits, sizeof(digits), "%02x",
                 static_cast<unsigned char>(handle[HANDLE_OWNER + i]));
        text += digits;
    }
    text.copy(name.sun_path + 1, text.size());
    *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return name;
}

int connect_to(const std::string &handle) {
    socklen_t length;
    sockaddr_un name = name_of(handle, &length);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&name), length), 0);
    return fd;
}

// An answer with its descriptor. Empty: the other side has closed.
std::string receive_from(int fd, int *passed = nullptr) {
    std::string got(MESSAGE + 1, '\0');
    char control[CMSG_SPACE(sizeof(int))];
    iovec part = {&got[0], got.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights && passed) {
        memcpy(passed, CMSG_DATA(rights), sizeof(int));
    }
    got.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return got;
}

std::string greet(int fd, const std::string &handle, int *window) {
    std::string hello = message_of(HELLO);
    handle.copy(&hello[MESSAGE_ID], 16, HANDLE_OWNER);
    EXPECT_EQ(send(fd, hello.data(), hello.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    std::string welcome = receive_from(fd, window);
    EXPECT_EQ(welcome.size(), MESSAGE);
    return welcome;
}

// A good request for the first bytes of a range.
std::string request_of(uint16_t kind, uint64_t length, const std::string &handle,
                       const std::string &welcome) {
    std::string request = message_of(kind);
    welcome.copy(&request[MESSAGE_SESSION], 8, MESSAGE_SESSION);
    handle.copy(&request[MESSAGE_EXPORT], 16, 40); // number and generation
    handle.copy(&request[MESSAGE_ID], 16, 56);     // its secret
    memcpy(&request[MESSAGE_LENGTH], &length, sizeof(length));
    return request;
}

// It announces a put and sends no data. Its gets end, so the connection stays beyond the deadline,
// but not when the owner takes the memory back.
TEST_P(Remote, APeerWithProgressHoldsNoMemory) {
    if (!is_local) {
        GTEST_SKIP() << "the socket is for processes of this machine";
    }
    start("disjoint over os", MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT, 10000, "", "-", 1000);
    int window = -1, fd = connect_to(handle);
    std::string welcome = greet(fd, handle, &window);
    auto ask = [&](uint16_t kind) {
        std::string request = request_of(kind, 100, handle, welcome);
        send(fd, request.data(), request.size(), MSG_NOSIGNAL);
        return receive_from(fd).size();
    };
    EXPECT_EQ(ask(PUT), MESSAGE);
    for (uint64_t begin = now_ms(); now_ms() - begin < 2000; usleep(20000)) {
        ASSERT_EQ(ask(GET), MESSAGE) << "after " << now_ms() - begin << " ms";
    }
    std::thread goes_on([&] {
        while (ask(GET) == MESSAGE) {
            usleep(20000);
        }
    });
    uint64_t begin = now_ms();
    order("withdraw");
    EXPECT_LT(now_ms() - begin, 9000u); // of 16 deadlines
    goes_on.join();
    close(fd);
    close(window);
}

TEST_P(Remote, AnOwnerSurvivesWhatArrivesAtItsSocket) {
    if (!is_local) {
        GTEST_SKIP() << "the socket is for processes of this machine";
    }
    start("disjoint over os", 4 * MiB, UMF_REMOTE_GET);
    auto request = [this](const std::string &welcome) {
        return request_of(GET, 100, handle, welcome);
    };
    int window = -1, second = -1;
    int good = connect_to(handle), other_one = connect_to(handle);
    std::string welcome = greet(good, handle, &window),
                other_welcome = greet(other_one, handle, &second);
    ASSERT_NE(window, -1);
    EXPECT_NE(ftruncate(window, 0), 0) << "it can be shortened";
    std::string get = request(welcome);
    ASSERT_EQ(send(good, get.data(), get.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    EXPECT_EQ(receive_from(good).size(), MESSAGE);
    char data[101] = {};
    EXPECT_EQ(pread(window, data, 101, 0), 101);
    EXPECT_EQ(std::string(data, 101), std::string(100, 'a') + std::string(1, '\0'));
    // The session of another connection does not count: this one is answered nothing.
    std::string stolen = request(other_welcome);
    ASSERT_EQ(send(good, stolen.data(), stolen.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    ASSERT_EQ(send(good, get.data(), get.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    EXPECT_EQ(receive_from(good).substr(MESSAGE_SESSION, 8), welcome.substr(MESSAGE_SESSION, 8));
    // More than a slot, short and long messages, and requests before a greeting.
    uint64_t much = 2 * MiB;
    memcpy(&get[MESSAGE_LENGTH], &much, sizeof(much));
    ASSERT_EQ(send(good, get.data(), get.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    EXPECT_EQ(receive_from(good), "") << "the connection is not closed";
    for (size_t size : {size_t{1}, MESSAGE - 1, MESSAGE + 1, size_t{4000}}) {
        int fd = connect_to(handle);
        std::string junk(size, 'j');
        EXPECT_EQ(send(fd, junk.data(), size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
        EXPECT_EQ(receive_from(fd), "") << size;
        close(fd);
    }
    int silent = connect_to(handle);
    EXPECT_EQ(send(silent, get.data(), get.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
    open();
    std::vector<char> bytes(4 * MiB);
    EXPECT_EQ(this->get(0, &bytes), OK);
    EXPECT_TRUE(is_all(bytes, 'a'));
    for (int fd : {good, other_one, window, second, silent}) {
        close(fd);
    }
}

// A process that has the name of an owner greets as a peer does, which has no answer. It sends a
// window that it can shorten; then a good one, and a limit of 0 bytes.
// Each announced put costs the owner memory, also one of no bytes.
TEST_P(Remote, AnOwnerHasALimitOfPutsForWhichNoDataComes) {
    if (!is_local) {
        GTEST_SKIP() << "the socket is for processes of this machine";
    }
    start("proxy over os", MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT);
    int window = -1, fd = connect_to(handle);
    std::string welcome = greet(fd, handle, &window);
    uint64_t limit = 0;
    welcome.copy(reinterpret_cast<char *>(&limit), 8, MESSAGE_OFFSET);
    EXPECT_EQ(limit, 1024u);
    std::string put = request_of(PUT, 0, handle, welcome);
    for (uint64_t number = 0; number < limit + 10; number++) {
        uint32_t answer = 0;
        memcpy(&put[MESSAGE_NUMBER], &number, sizeof(number));
        ASSERT_EQ(send(fd, put.data(), put.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
        receive_from(fd).copy(reinterpret_cast<char *>(&answer), 4, MESSAGE_ANSWER);
        ASSERT_EQ(answer, number < limit ? FINE : BUSY) << number;
    }
    close(fd);
    close(window);
    open(); // others are served
    char byte = 'x';
    EXPECT_EQ(umfRemotePut(memory, 0, &byte, 1, nullptr), OK);
}

// The peer knows the limit of the owner, which is smaller than its own.
TEST_P(Remote, TinyPutsBeyondTheLimitWait) {
    constexpr size_t COUNT = 5000;
    start("proxy over os", MiB, UMF_REMOTE_GET | UMF_REMOTE_PUT);
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
    remote = make_context(10000, nullptr, 1000000);
    open();
    std::vector<umf_remote_op_handle_t> ops(COUNT);
    std::vector<char> bytes(COUNT), got(COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        bytes[i] = static_cast<char>(i % 251);
        ASSERT_EQ(umfRemotePut(memory, i, &bytes[i], 1, &ops[i]), OK);
    }
    for (size_t i = 0; i < COUNT; i++) {
        ASSERT_EQ(umfRemoteWait(ops[i], UINT64_MAX), OK) << umfLastErrorText() << " at " << i;
    }
    EXPECT_EQ(get(0, &got), OK);
    EXPECT_EQ(got, bytes);
}

TEST_P(Remote, AForgedWelcomeIsRefused) {
    if (!is_local) {
        GTEST_SKIP() << "only processes of this machine send windows";
    }
    start("proxy over os", MiB, UMF_REMOTE_GET);
    std::string forged = handle;
    forged[HANDLE_OWNER] = static_cast<char>(forged[HANDLE_OWNER] ^ 1);
    memset(&forged[8], 0, 8);
    uint64_t sum = sum_of(reinterpret_cast<const unsigned char *>(forged.data()), forged.size());
    memcpy(&forged[8], &sum, sizeof(sum));
    socklen_t length;
    sockaddr_un name = name_of(forged, &length);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr *>(&name), length), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    std::thread liar([listener] {
        for (int seals : {0, F_SEAL_SHRINK}) {
            int fd = accept(listener, nullptr, nullptr);
            std::string hello = receive_from(fd), welcome = message_of(WELCOME);
            hello.copy(&welcome[MESSAGE_NUMBER], 8, MESSAGE_NUMBER);
            const std::string greeting = message_of(HELLO);
            EXPECT_EQ(send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL), ssize_t{MESSAGE});
            int window = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            EXPECT_EQ(ftruncate(window, 64 * MiB), 0);
            EXPECT_EQ(fcntl(window, F_ADD_SEALS, seals), 0);
            iovec part = {&welcome[0], welcome.size()};
            alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
            msghdr message = {};
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            message.msg_control = control;
            message.msg_controllen = sizeof(control);
            cmsghdr *rights = CMSG_FIRSTHDR(&message);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(rights), &window, sizeof(int));
            EXPECT_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), ssize_t{MESSAGE});
            EXPECT_EQ(receive_from(fd), "") << "an answer or a request came";
            close(window);
            close(fd);
        }
    });
    EXPECT_EQ(open(forged), BAD); // the owner behind the address of UCX is another one
    EXPECT_EQ(umfLastReason(), UMF_REASON_STALE) << umfLastErrorText();
    EXPECT_EQ(open(forged), LOST);
    EXPECT_EQ(umfLastReason(), UMF_REASON_BROKEN) << umfLastErrorText();
    liar.join();
    close(listener);
}

// The loader would mix the parts of two.
TEST_P(Remote, AProcessHasOneUcx) {
    std::ifstream maps("/proc/self/maps");
    remote = make_context(10000);
    ASSERT_NE(remote, nullptr);
    std::string file;
    for (std::string line; std::getline(maps, line) && file.empty();) {
        file = line.find("/libucp.so") == std::string::npos ? "" : line.substr(line.find('/'));
    }
    ASSERT_FALSE(file.empty());
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t second = nullptr;
    params.library = file.c_str();
    EXPECT_EQ(umfRemoteCreate(&params, &second), OK) << "the same file";
    EXPECT_EQ(umfRemoteDestroy(second), OK);
    std::string copy = testing::TempDir() + "umf_ucp_" + std::to_string(getpid()) + ".so";
    std::ofstream(copy, std::ios::binary) << std::ifstream(file, std::ios::binary).rdbuf();
    params.library = copy.c_str();
    EXPECT_EQ(umfRemoteCreate(&params, &second), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("can have only one"), std::string::npos)
        << umfLastErrorText();
    unlink(copy.c_str());
}

TEST_P(Remote, AnOpenedRangeEndsWithItsContext) {
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    ASSERT_EQ(umfRemoteDestroy(remote), OK);
    remote = nullptr;
    std::vector<char> bytes(100);
    EXPECT_EQ(get(0, &bytes), BAD);
    EXPECT_NE(std::string(umfLastErrorText()).find("range of umfRemoteOpen"), std::string::npos)
        << umfLastErrorText();
    EXPECT_EQ(umfRemoteClose(memory), BAD);
    memory = nullptr;
}

TEST_P(Remote, TheContextOfAnOwnerEnds) {
    start("proxy over os", MiB, UMF_REMOTE_GET);
    open();
    std::vector<char> bytes(MiB);
    EXPECT_EQ(get(0, &bytes), OK);
    order("end");
    EXPECT_EQ(get(0, &bytes), LOST);
}

INSTANTIATE_TEST_SUITE_P(By, Remote, ::testing::Bool(), [](const auto &by) {
    return std::string(by.param ? "SharedMemory" : "Ucx");
});

int main(int argc, char **argv) {
    return run_remote_tests(argc, argv, roles);
}
