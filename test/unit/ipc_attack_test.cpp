/* What docs/ipc-security.md claims of peers that mean harm: forged handles, and producers and
 * consumers that do not keep to the rules. */
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/text.h>

extern "C" {
#include "ipc/wire.h"
#include "peer/broker_own.h"
#include "peer/transport.h"
#include "providers/os/handle.h"
#include "providers/os/share.h"
#include "system/checksum.h"
}

#include "fakes/handle.h"
#include "fakes/one_tbb.h"
#include "fakes/role.h"

namespace {

constexpr size_t MiB = size_t{1} << 20;
// UMF_TEST_POOL names another pool than proxy.
const std::string pool_kind = getenv("UMF_TEST_POOL") ? getenv("UMF_TEST_POOL") : "proxy";
const std::string os_pool = pool_kind + " over os:visibility=shared",
                  vmm_pool = pool_kind + " over linux_vmm:piece_size=2M";
const char *const os_text = os_pool.c_str();
const char *const vmm_text = vmm_pool.c_str();

struct Pool {
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;

    explicit Pool(const char *text) {
        EXPECT_EQ(umfPoolCreateFromText(text, &pool), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfPoolGetIPCHandler(pool, &handler), UMF_RESULT_SUCCESS);
    }
    ~Pool() {
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    char *alloc(size_t size) const {
        return static_cast<char *>(umfPoolMalloc(pool, size));
    }
    umf_result_t open(Bytes handle, char **ptr) const {
        void *opened = nullptr;
        umf_result_t result =
            umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(handle.data()), &opened);
        *ptr = static_cast<char *>(opened);
        return result;
    }
    umf_result_t try_open(const Bytes &handle) const {
        char *ptr;
        umf_result_t result = open(handle, &ptr);
        if (result == UMF_RESULT_SUCCESS) {
            EXPECT_EQ(umfCloseIPCHandle(ptr), UMF_RESULT_SUCCESS);
        }
        return result;
    }
};

/* With sums that are right again. */
Bytes sealed(Bytes handle) {
    umf_wire_t wire = {};
    uint64_t offset;
    memcpy(&offset, handle.data() + UMF_WIRE_FIXED, sizeof(offset));
    umf_wire_set_offset(handle.data(), umf_wire_fixed_sum(handle.data()), offset);
    EXPECT_EQ(umf_wire_check(handle.data(), SIZE_MAX, &wire), UMF_RESULT_SUCCESS);
    umf_wire_pack(&wire, handle.data());
    return handle;
}

/* The same of an OS provider, with another ticket. */
Bytes os_forged(Bytes handle, const umf_fd_ticket_t &ticket) {
    umf_os_handle_t inner;
    memcpy(&inner, handle.data() + UMF_WIRE_HEADER, sizeof(inner));
    inner.ticket = ticket;
    umf_os_handle_write(&inner, "", handle.data() + UMF_WIRE_HEADER);
    return sealed(handle);
}

/* The same of a provider of virtual memory: tickets of piece and board from byte 16 on. */
Bytes vmm_forged(Bytes handle, size_t at, const umf_fd_ticket_t &ticket) {
    unsigned char *data = handle.data() + UMF_WIRE_HEADER;
    size_t size = handle.size() - UMF_WIRE_HEADER;
    uint64_t sum = 0;
    memcpy(data + at, &ticket, sizeof(ticket));
    memcpy(data + 8, &sum, sizeof(sum));
    sum = umf_sum(data, size);
    memcpy(data + 8, &sum, sizeof(sum));
    return sealed(handle);
}
constexpr size_t piece_at = 16, board_at = 16 + sizeof(umf_fd_ticket_t);

umf_fd_ticket_t vmm_ticket(const Bytes &handle, size_t at) {
    umf_fd_ticket_t ticket;
    memcpy(&ticket, handle.data() + UMF_WIRE_HEADER + at, sizeof(ticket));
    return ticket;
}

umf_fd_ticket_t ticket_of(int fd) {
    umf_fd_ticket_t ticket = {};
    EXPECT_EQ(umf_ticket_make(fd, &ticket), UMF_RESULT_SUCCESS);
    return ticket;
}

/* The memory as a reader may have it, in an unsealed file of his own. */
int unsealed_copy(int from) {
    off_t size = lseek(from, 0, SEEK_END);
    int fd = memfd_create("unsealed", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, size), 0);
    Bytes bytes(static_cast<size_t>(size));
    EXPECT_EQ(pread(from, bytes.data(), bytes.size(), 0), size);
    EXPECT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), size);
    return fd;
}

/* --- a producer in another process --- */

/* "alloc <MiB>": a handle, or "none". */
int produce(Socket &socket, const std::string &text) {
    Pool pool(text.c_str());
    for (std::string word; !(word = socket.receive()).empty();) {
        char *ptr = pool.alloc(strtoul(word.c_str(), nullptr, 10) * MiB);
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        if (!ptr || umfGetIPCHandle(ptr, &handle, &size) != UMF_RESULT_SUCCESS) {
            socket.send("none");
            continue;
        }
        *ptr = 'p';
        socket.send(std::string(reinterpret_cast<const char *>(handle), size));
        umfPutIPCHandle(handle);
    }
    return 0;
}

struct Producer : Process {
    explicit Producer(const char *text) : Process("produce", text) {}

    Bytes alloc(unsigned size = 1) {
        EXPECT_TRUE(socket.send(std::to_string(size)));
        pollfd wait = {socket.get(), POLLIN, 0};
        EXPECT_EQ(poll(&wait, 1, 60000), 1) << "the producer hangs";
        std::string bytes = wait.revents & POLLIN ? socket.receive() : "none";
        return bytes == "none" ? Bytes() : Bytes(bytes.begin(), bytes.end());
    }

    /* A consumer that took the descriptor away from the library. */
    int steal(const std::string &name) const {
        std::string folder = "/proc/" + std::to_string(pid) + "/fd/";
        DIR *all = opendir(folder.c_str());
        int fd = -1;
        while (dirent *entry = all ? readdir(all) : nullptr) {
            char link[64] = {};
            std::string path = folder + entry->d_name;
            if (readlink(path.c_str(), link, sizeof(link) - 1) > 0 &&
                link == "/memfd:" + name + " (deleted)") {
                fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
                break;
            }
        }
        closedir(all);
        return fd;
    }
};

struct Stolen {
    const char *text, *name;
};
const Stolen stolen[] = {{os_text, "umf"}, {vmm_text, "umf_vmm"}, {vmm_text, "umf_board"}};

const Roles roles = {{"produce", produce}};

} // namespace

/* --- a consumer that means harm --- */

TEST(ipc_attack, AConsumerCannotCutMemoryShort) {
    for (const Stolen &each : stolen) {
        Producer producer(each.text);
        ASSERT_FALSE(producer.alloc().empty());
        int fd = producer.steal(each.name);
        ASSERT_GE(fd, 0) << each.name;
        EXPECT_EQ(ftruncate(fd, 0), -1) << each.name;
        EXPECT_EQ(errno, EPERM);
        close(fd);
    }
}

TEST(ipc_attack, AConsumerCannotSealTheFileOfItsProducer) {
    for (const Stolen &each : stolen) {
        Producer producer(each.text);
        ASSERT_FALSE(producer.alloc().empty());
        int fd = producer.steal(each.name);
        ASSERT_GE(fd, 0) << each.name;
        for (int seal : {F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE, F_SEAL_SEAL}) {
            EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seal), -1) << each.name << " " << seal;
        }
        close(fd);
        EXPECT_FALSE(producer.alloc(200).empty()) << each.name;
    }
}

TEST(ipc_attack, AConsumerCannotKeepItsProducerFromGrowing) {
    Producer producer(os_text);
    ASSERT_FALSE(producer.alloc().empty());
    int fd = producer.steal("umf");
    ASSERT_GE(fd, 0);
    if (ftruncate(fd, off_t{1} << 40) != 0) {
        GTEST_SKIP() << "the file cannot be made longer: " << strerror(errno);
    }
    close(fd);
    Bytes handle = producer.alloc(300);
    ASSERT_FALSE(handle.empty());
    EXPECT_EQ(Pool(os_text).try_open(handle), UMF_RESULT_SUCCESS);
}

/* Generation words lie in the file that consumers can write to. */
TEST(ipc_attack, AConsumerCannotHangItsProducer) {
    Producer producer(os_text);
    ASSERT_FALSE(producer.alloc().empty());
    int fd = producer.steal("umf");
    ASSERT_GE(fd, 0);
    Bytes ones(UMF_OS_SHARE_HEADER_MAX, 0xff);
    ASSERT_EQ(pwrite(fd, ones.data(), ones.size(), 0), static_cast<ssize_t>(ones.size()));
    close(fd);
    EXPECT_TRUE(producer.alloc(200).empty()) << "it cannot share more, and says so";
}

TEST(ipc_attack, AConsumerCannotWriteWhatTellsOfFrees) {
    Producer producer(vmm_text);
    ASSERT_FALSE(producer.alloc().empty());
    int fd = producer.steal("umf_board");
    ASSERT_GE(fd, 0);
    int own = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool is_known = fcntl(own, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
    close(own);
    if (!is_known) {
        GTEST_SKIP() << "this kernel has no F_SEAL_FUTURE_WRITE";
    }
    EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
    EXPECT_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    close(fd);
    EXPECT_EQ(Pool(vmm_text).try_open(producer.alloc()), UMF_RESULT_SUCCESS);
}

/* A process that got one export has its number, and can guess the next. */
TEST(ipc_attack, AHandleIsNoKeyToOtherExports) {
    int mine = memfd_create("mine", MFD_CLOEXEC), other = memfd_create("other", MFD_CLOEXEC);
    umf_fd_ticket_t known = ticket_of(mine), secret = ticket_of(other);
    umf_ticket_prepare();
    umf_ticket_publish(&known);
    umf_ticket_publish(&secret);
    int fd = -1;
    ASSERT_EQ(umf_transport_broker.redeem(&secret, &fd), 0);
    close(fd);
    umf_fd_ticket_t guessed = secret;
    memcpy(guessed.secret, known.secret, sizeof(guessed.secret));
    EXPECT_EQ(umf_transport_broker.redeem(&guessed, &fd), EKEYREJECTED);
    umf_ticket_drop(&known);
    umf_ticket_drop(&secret);
    close(mine);
    close(other);
}

/* Everybody in the network namespace may connect. Who is of another user gets nothing for it and
 * does not block other clients. */
TEST(ipc_attack, AnotherUserCannotKeepTheBrokerBusy) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs the right to change the user";
    }
    int file = memfd_create("file", MFD_CLOEXEC);
    umf_fd_ticket_t ticket = ticket_of(file);
    umf_ticket_prepare();
    umf_ticket_publish(&ticket);
    umf_socket_address_t address;
    ASSERT_EQ(umf_broker_address(UMF_BROKER_ABSTRACT, ticket.broker, &address), 0);
    pid_t others[2];
    for (pid_t &pid : others) {
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            while (setuid(65534) == 0) {
                int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
                connect(fd, reinterpret_cast<sockaddr *>(&address.name), address.length);
                close(fd);
            }
            _exit(1);
        }
    }
    for (int i = 0; i < 50; i++) {
        int fd = -1;
        EXPECT_EQ(umf_transport_broker.redeem(&ticket, &fd), 0) << i;
        close(fd);
    }
    for (pid_t pid : others) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
    umf_ticket_drop(&ticket);
    close(file);
}

/* --- a producer that means harm --- */

/* It could cut the file later, and the next access would end the consumer. */
TEST(ipc_attack, AProducerCannotCutMemoryShort) {
    Pool os(os_text), vmm(vmm_text), consumer(os_text), vmm_consumer(vmm_text);
    Bytes handle = handle_of(os.alloc(MiB)), vmm_handle = handle_of(vmm.alloc(MiB));
    umf_os_handle_t inner;
    memcpy(&inner, handle.data() + UMF_WIRE_HEADER, sizeof(inner));
    int fd = unsealed_copy(inner.ticket.fd);
    EXPECT_EQ(consumer.try_open(os_forged(handle, inner.ticket)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(Pool(os_text).try_open(os_forged(handle, ticket_of(fd))),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    close(fd);
    for (size_t at : {piece_at, board_at}) {
        umf_fd_ticket_t ticket = vmm_ticket(vmm_handle, at);
        fd = unsealed_copy(ticket.fd);
        EXPECT_EQ(Pool(vmm_text).try_open(vmm_forged(vmm_handle, at, ticket)), UMF_RESULT_SUCCESS);
        EXPECT_EQ(Pool(vmm_text).try_open(vmm_forged(vmm_handle, at, ticket_of(fd))),
                  UMF_RESULT_ERROR_INVALID_ARGUMENT)
            << at;
        close(fd);
    }
}

/* The consumer may be allowed more than the producer: what that one could only read, or not even
 * that, must not be written by this one. */
TEST(ipc_attack, AProducerCannotPassAnOrdinaryFileOff) {
    Pool vmm(vmm_text), consumer(vmm_text);
    Bytes handle = handle_of(vmm.alloc(MiB));
    char name[] = "/tmp/umf_attack_XXXXXX";
    int made = mkstemp(name);
    ASSERT_EQ(ftruncate(made, 2 * MiB), 0);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(consumer.try_open(vmm_forged(handle, piece_at, ticket_of(fd))),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    close(fd);
    close(made);
    unlink(name);
}

/* To open some devices does things; to have them open without any access needs no permission. */
TEST(ipc_attack, AProducerCannotMakeOthersOpenDevices) {
    int device = open("/dev/null", O_PATH | O_CLOEXEC);
    ASSERT_GE(device, 0);
    umf_fd_ticket_t ticket = ticket_of(device);
    int fd = -1;
    EXPECT_EQ(umf_transport_proc.redeem(&ticket, &fd), ENODEV);
    close(device);
}

int main(int argc, char **argv) {
    bool is_absent = pool_kind == "scalable" && !has_one_tbb();
    return run_role_or_tests(argc, argv, roles, is_absent);
}
