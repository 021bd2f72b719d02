// Sharing memory between processes that may not access each other: the purpose of the broker.
//
// The program starts itself again, as producer and as consumer; the consumer first goes where the
// test wants it (another user, other namespaces, behind a filter of system calls) and then opens.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/text.h>

#include "fakes/content.h"
#include "fakes/namespaces.h"
#include "fakes/pidfd_filter.h"
#include "fakes/self.h"

namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

const char content[] = "content of the producer";
const char answer[] = "content of the consumer";
constexpr int exit_skip = 77, exit_wrong = 78, exit_first_result = 100;

// --- the producer ---

// Writes the handle to its output and waits until its input ends.
int produce(const char *text) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    if (umfPoolCreateFromText(text, &pool) != UMF_RESULT_SUCCESS) {
        return exit_wrong;
    }
    char *ptr = static_cast<char *>(umfPoolMalloc(pool, 4096));
    if (!ptr || umfGetIPCHandle(ptr, &handle, &size) != UMF_RESULT_SUCCESS) {
        return exit_wrong;
    }
    strcpy(ptr, content);
    bool ok = write(1, handle, size) == static_cast<ssize_t>(size);
    close(1);
    char byte;
    while (read(0, &byte, 1) == 1) {
        ok = ok && strcmp(ptr, answer) == 0;
    }
    umfPutIPCHandle(handle);
    umfFree(ptr);
    umfPoolDestroy(pool);
    return ok ? 0 : exit_wrong;
}

// --- the consumer ---

// Namespaces that this machine does not let us have are a reason to skip.
void skip_unless(bool is_there, const char *what) {
    if (!is_there) {
        perror(what);
        exit(exit_skip);
    }
}

void leave_other_processes(int more_flags) {
    skip_unless(enter_pid_namespace(more_flags, [] {}), "pid namespace");
}

void enter_filter() {
    skip_unless(deny_pidfd_getfd(), "seccomp");
    if (!is_pidfd_getfd_denied()) {
        exit(exit_wrong);
    }
}

// A container of its own that has the folder under another name.
void enter_container(const std::string &folder) {
    std::string here = folder + "_here";
    leave_other_processes(CLONE_NEWNS | CLONE_NEWNET);
    skip_unless(hide_mounts() && mount("umf", here.c_str(), "tmpfs", 0, nullptr) == 0 &&
                    mkdir((here + "/in").c_str(), 0700) == 0 &&
                    mount(folder.c_str(), (here + "/in").c_str(), nullptr, MS_BIND, nullptr) == 0,
                "mount");
    std::string inside = here + "/in";
    umfCtlSet("umf.ipc.socket_dir", const_cast<char *>(inside.c_str()), inside.size() + 1);
}

// Opens the handle that it reads. The exit status is the result.
int consume(const std::string &text, const std::string &where, const std::string &folder) {
    std::vector<std::max_align_t> buffer(1024);
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    void *ptr = nullptr;
    if (read(0, buffer.data(), buffer.size() * sizeof(buffer[0])) <= 0) {
        return exit_wrong;
    }
    if (where == "other user" && !become_nobody()) {
        return exit_skip;
    }
    if (where == "pid namespace") {
        leave_other_processes(0);
    } else if (where == "user namespace") {
        skip_unless(enter_user_namespace(true), "user namespace");
    } else if (where == "user namespace without map") {
        skip_unless(enter_user_namespace(false), "user namespace");
    } else if (where == "filter") {
        enter_filter();
    } else if (where == "network namespace") {
        skip_unless(enter_namespaces(CLONE_NEWNET), "network namespace");
    } else if (where == "container") {
        enter_container(folder);
    }
    if (umfPoolCreateFromText(text.c_str(), &pool) != UMF_RESULT_SUCCESS ||
        umfPoolGetIPCHandler(pool, &handler) != UMF_RESULT_SUCCESS) {
        return exit_wrong;
    }
    umf_result_t result =
        umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(buffer.data()), &ptr);
    if (result != UMF_RESULT_SUCCESS) {
        return exit_first_result + result;
    }
    char *text_there = static_cast<char *>(ptr);
    bool ok = strcmp(text_there, content) == 0 || strcmp(text_there, answer) == 0;
    strcpy(text_there, answer);
    ok = ok && umfCloseIPCHandle(ptr) == UMF_RESULT_SUCCESS;
    ok = umfPoolDestroy(pool) == UMF_RESULT_SUCCESS && ok;
    return ok ? exit_first_result : exit_wrong;
}

// --- the test's side ---

const char os_text[] = "disjoint over os:visibility=shared";

class Process {
    int input = -1, output = -1;
    pid_t pid = -1;

  public:
    Process(std::vector<std::string> arguments, const Environment &environment) {
        int to[2], from[2];
        EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
        EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
        arguments.insert(arguments.begin(), "broker_test");
        SelfCommand self(arguments);
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            dup2(to[0], 0);
            dup2(from[1], 1);
            for (const auto &[name, value] : environment) {
                setenv(name.c_str(), value.c_str(), 1);
            }
            execvp(self.file(), self.arguments());
            _exit(exit_wrong);
        }
        close(to[0]);
        close(from[1]);
        input = to[1];
        output = from[0];
    }
    ~Process() {
        if (pid != -1) {
            EXPECT_EQ(wait(), 0);
        }
    }
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    int wait() {
        int status = -1;
        close(input);
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        close(output);
        pid = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    void kill() {
        ::kill(pid, SIGKILL);
        EXPECT_EQ(wait(), -SIGKILL);
    }
    Bytes read_all() {
        Bytes bytes(4096);
        ssize_t count = read(output, bytes.data(), bytes.size());
        bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
        return bytes;
    }
    void send(const void *data, size_t size) {
        EXPECT_EQ(write(input, data, size), static_cast<ssize_t>(size));
    }
};

class Producer {
    Process process;

  public:
    Bytes handle;

    explicit Producer(const Environment &environment = {}, const char *text = os_text)
        : process({"--produce", text}, environment) {
        handle = process.read_all();
        EXPECT_GT(handle.size(), 0u);
    }
    void expect_answer() {
        process.send("a", 1);
    }
    void kill() {
        process.kill();
    }
};

// A process of a busy machine may need its time.
const char patient[] = "umf.ipc.timeout=60000";
const Environment consent = {{"UMF_CONF", std::string("umf.ipc.any_user=yes;") + patient}};

Environment transports(const char *words) {
    return {{"UMF_IPC_TRANSPORTS", words}};
}

constexpr int skipped = -1;

// The result of opening; `skipped` if the machine does not let a process go there.
int try_open(const Bytes &handle, const std::string &where, const Environment &environment = {},
             const char *text = os_text, const std::string &folder = "") {
    // Its leak checker does not find itself in another namespace; ours and the producer's do.
    Environment all = environment;
    const char *options = getenv("ASAN_OPTIONS");
    all.emplace_back("ASAN_OPTIONS", std::string(options ? options : "") + ":detect_leaks=0");
    Process consumer({"--consume", text, where, folder}, all);
    consumer.send(handle.data(), handle.size());
    int status = consumer.wait();
    EXPECT_NE(status, exit_wrong);
    EXPECT_TRUE(status == exit_skip || status >= exit_first_result) << status;
    return status == exit_skip ? skipped : status - exit_first_result;
}

// What comes of opening, or why that cannot be tried here.
#define EXPECT_RESULT(result, ...)                                                                 \
    do {                                                                                           \
        int result_of_open = try_open(__VA_ARGS__);                                                \
        if (result_of_open == skipped) {                                                           \
            GTEST_SKIP() << "this machine does not let a process go there";                        \
        }                                                                                          \
        EXPECT_EQ(result_of_open, result);                                                         \
    } while (0)

#define EXPECT_OPENS(...) EXPECT_RESULT(UMF_RESULT_SUCCESS, __VA_ARGS__)
#define EXPECT_REFUSED(...) EXPECT_RESULT(UMF_RESULT_ERROR_INVALID_ARGUMENT, __VA_ARGS__)

} // namespace

TEST(broker, AnUnrelatedProcess) {
    Producer producer;
    EXPECT_OPENS(producer.handle, "here");
    producer.expect_answer();
    EXPECT_OPENS(producer.handle, "here", transports("broker"));
}

TEST(broker, OtherKindsOfMemory) {
    for (const char *text : {"disjoint over linux_vmm"}) {
        Producer producer({}, text);
        for (const char *words : {"self,proc,pidfd,broker", "broker"}) {
            EXPECT_OPENS(producer.handle, "here", transports(words), text);
        }
    }
}

TEST(broker, ReachesIntoAnotherPidNamespace) {
    Producer producer;
    EXPECT_OPENS(producer.handle, "pid namespace");
    producer.expect_answer();
    EXPECT_REFUSED(producer.handle, "pid namespace", transports("self,proc,pidfd"));
}

TEST(broker, ReachesIntoAnotherUserNamespace) {
    Producer producer;
    EXPECT_OPENS(producer.handle, "user namespace", transports("broker"));
    EXPECT_OPENS(producer.handle, "user namespace");
    producer.expect_answer();
}

// The consumer cannot verify the broker's user, so the secret stays here unless it consents. The
// producer sees its own user and need not consent.
TEST(broker, AUserWithoutANumberNeedsItsOwnConsent) {
    Producer producer;
    EXPECT_REFUSED(producer.handle, "user namespace without map");
    EXPECT_OPENS(producer.handle, "user namespace without map", consent);
    producer.expect_answer();
}

TEST(broker, WorksBehindAFilterOfSystemCalls) {
    Producer producer;
    EXPECT_REFUSED(producer.handle, "filter", transports("pidfd"));
    EXPECT_OPENS(producer.handle, "filter", transports("pidfd,broker"));
    EXPECT_OPENS(producer.handle, "filter");
    producer.expect_answer();
}

TEST(broker, AnotherUserNeedsTheConsentOfBoth) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs the right to change the user";
    }
    {
        Producer producer;
        EXPECT_REFUSED(producer.handle, "other user");
        EXPECT_REFUSED(producer.handle, "other user", consent);
    }
    Producer producer(consent);
    EXPECT_OPENS(producer.handle, "other user"); // root is believed
    producer.expect_answer();
}

TEST(broker, NetworksAreBridgedByAFolder) {
    char folder[] = "/tmp/umf_ipc_broker_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    std::string here = std::string(folder) + "_here";
    ASSERT_EQ(mkdir(here.c_str(), 0700), 0);
    struct Remove {
        const char *first, *second;
        ~Remove() {
            EXPECT_EQ(rmdir(first), 0) << "no socket is left";
            EXPECT_EQ(rmdir(second), 0);
        }
    } remove = {folder, here.c_str()};
    {
        Producer producer;
        EXPECT_REFUSED(producer.handle, "network namespace", transports("broker"));
    }
    Producer producer({{"UMF_IPC_SOCKET_DIR", folder}});
    EXPECT_REFUSED(producer.handle, "here", transports("broker")); // has no address of it
    EXPECT_OPENS(producer.handle, "here",
                 {{"UMF_IPC_SOCKET_DIR", folder}, {"UMF_IPC_TRANSPORTS", "broker"}});
    EXPECT_OPENS(producer.handle, "container", {}, os_text, folder);
    producer.expect_answer();
}

TEST(broker, AProducerThatDiedIsRefused) {
    Producer producer;
    producer.kill();
    EXPECT_REFUSED(producer.handle, "here", transports("broker"));
    EXPECT_REFUSED(producer.handle, "pid namespace");
}

TEST(broker, SettingsAreInTheTree) {
    char words[64];
    ASSERT_EQ(umfCtlGet("umf.ipc.transports", words, sizeof(words)), UMF_RESULT_SUCCESS);
    const std::string first = words; // by restriction of the system
    EXPECT_TRUE(first == "self,proc,pidfd,broker" || first == "self,pidfd,proc,broker") << first;
    char wrong[] = "self,carrier_pigeon", right[] = "broker,self";
    EXPECT_EQ(umfCtlSet("umf.ipc.transports", wrong, sizeof(wrong)),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfCtlSet("umf.ipc.transports", right, sizeof(right)), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfCtlGet("umf.ipc.transports", words, sizeof(words)), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(words, "broker,self");
    EXPECT_EQ(umfCtlGet("umf.ipc.transports", words, 5), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    int timeout = 0;
    ASSERT_EQ(umfCtlGet("umf.ipc.timeout", &timeout, sizeof(timeout)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(timeout, 5000);
    for (int bad : {0, -1, 600001}) {
        EXPECT_EQ(umfCtlSet("umf.ipc.timeout", &bad, sizeof(bad)),
                  UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    timeout = 600000;
    EXPECT_EQ(umfCtlSet("umf.ipc.timeout", &timeout, sizeof(timeout)), UMF_RESULT_SUCCESS);
    bool any = true;
    ASSERT_EQ(umfCtlGet("umf.ipc.any_user", &any, sizeof(any)), UMF_RESULT_SUCCESS);
    EXPECT_FALSE(any);
    EXPECT_EQ(umfCtlSet("umf.ipc.any_user", &any, sizeof(any)), UMF_RESULT_SUCCESS);
    char folder[128] = "x";
    ASSERT_EQ(umfCtlGet("umf.ipc.socket_dir", folder, sizeof(folder)), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(folder, "");
    char relative[] = "run";
    EXPECT_EQ(umfCtlSet("umf.ipc.socket_dir", relative, sizeof(relative)),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--produce") == 0) {
        return produce(argv[2]);
    }
    if (argc == 5 && strcmp(argv[1], "--consume") == 0) {
        return consume(argv[2], argv[3], argv[4]);
    }
    setenv("UMF_CONF", patient, 1); // of the processes that it starts
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
