// What works where a sandbox takes something away: every cell of the table in
// docs/guide/sandboxes.md, in a process of its own.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "fakes/handle.h"
#include "fakes/log_file.h"
#include "fakes/pidfd_filter.h"

namespace {

// --- restrictions ---

bool has_own_mounts() {
    return unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

bool make_read_only(const char *folder) {
    return mount("none", folder, "tmpfs", MS_RDONLY, nullptr) == 0;
}

bool without_memfd() {
    return deny_call(SYS_memfd_create);
}

bool without_shm() {
    return has_own_mounts() && make_read_only("/dev/shm");
}

bool without_proc() {
    return has_own_mounts() && umount2("/proc", MNT_DETACH) == 0;
}

bool read_only_root() {
    return has_own_mounts() &&
           mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
}

bool as_nobody() {
    return syscall(SYS_setgroups, 0, nullptr) == 0 && setgid(65534) == 0 && setuid(65534) == 0;
}

struct Sandbox {
    const char *name;
    std::vector<std::function<bool()>> steps;
    std::vector<const char *> cells; // "yes", or the log
};

// --- attempts ---

#define TRY(call)                                                                                  \
    do {                                                                                           \
        umf_result_t result = (call);                                                              \
        if (result != UMF_RESULT_SUCCESS) {                                                        \
            return result;                                                                         \
        }                                                                                          \
    } while (0)

umf_result_t write_and_read(void *memory, size_t size) {
    memset(memory, 0x5a, size);
    return static_cast<char *>(memory)[size - 1] == 0x5a ? UMF_RESULT_SUCCESS
                                                         : UMF_RESULT_ERROR_UNKNOWN;
}

umf_result_t use_pool(const char *text) {
    umf_memory_pool_handle_t pool;
    TRY(umfPoolCreateFromText(text, &pool));
    for (size_t size : {size_t{100}, size_t{3} << 20}) {
        void *memory = umfPoolMalloc(pool, size);
        if (!memory) {
            return umfPoolGetLastAllocationError(pool);
        }
        TRY(write_and_read(memory, size));
        TRY(umfFree(memory));
    }
    return umfPoolDestroy(pool);
}

umf_result_t suspend_and_resume() {
    umf_memory_pool_handle_t pool;
    TRY(umfPoolCreateFromText("disjoint over linux_vmm", &pool));
    char *memory = static_cast<char *>(umfPoolMalloc(pool, 100));
    if (!memory) {
        return umfPoolGetLastAllocationError(pool);
    }
    strcpy(memory, "kept");
    TRY(umfPoolsSuspend(&pool, 1, nullptr, nullptr));
    TRY(umfPoolsResume(&pool, 1, nullptr, nullptr));
    if (strcmp(memory, "kept") != 0) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    TRY(umfFree(memory));
    return umfPoolDestroy(pool);
}

// A child opens what we make after its fork.
umf_result_t share_with_child(const char *text) {
    int pipe_to[2];
    umf_memory_pool_handle_t pool;
    if (pipe(pipe_to) != 0) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    pid_t child = fork();
    if (child == 0) {
        close(pipe_to[1]);
        unsigned char bytes[4096];
        ssize_t size = read(pipe_to[0], bytes, sizeof(bytes));
        umf_memory_pool_handle_t own;
        umf_ipc_handler_handle_t handler;
        void *memory = nullptr;
        umf_result_t result =
            size > 0 ? umfPoolCreateFromText(text, &own) : UMF_RESULT_ERROR_UNKNOWN;
        if (result == UMF_RESULT_SUCCESS) {
            result = umfPoolGetIPCHandler(own, &handler);
        }
        if (result == UMF_RESULT_SUCCESS) {
            result = open_handle(handler, Bytes(bytes, bytes + size), &memory);
        }
        if (result == UMF_RESULT_SUCCESS && strcmp(static_cast<char *>(memory), "shared") != 0) {
            result = UMF_RESULT_ERROR_UNKNOWN;
        }
        _exit(result);
    }
    close(pipe_to[0]);
    TRY(umfPoolCreateFromText(text, &pool));
    char *memory = static_cast<char *>(umfPoolMalloc(pool, 100));
    if (!memory) {
        return umfPoolGetLastAllocationError(pool);
    }
    strcpy(memory, "shared");
    Bytes handle;
    TRY(get_handle(memory, &handle));
    if (write(pipe_to[1], handle.data(), handle.size()) != static_cast<ssize_t>(handle.size())) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    close(pipe_to[1]);
    int status;
    waitpid(child, &status, 0);
    TRY(umfFree(memory));
    TRY(umfPoolDestroy(pool));
    return WIFEXITED(status) ? static_cast<umf_result_t>(WEXITSTATUS(status))
                             : UMF_RESULT_ERROR_UNKNOWN;
}

struct Trial {
    const char *name;
    std::function<umf_result_t()> run;
};

std::string name_of_this_process() {
    return std::to_string(getpid());
}

const std::vector<Trial> trials = {
    {"private", [] { return use_pool("disjoint over os"); }},
    {"shared", [] { return use_pool("disjoint over os:visibility=shared"); }},
    {"named",
     [] {
         std::string text =
             "disjoint over os:visibility=shared,shm_name=umf_sandbox_" + name_of_this_process();
         return use_pool(text.c_str());
     }},
    {"file",
     [] {
         std::string text = "disjoint over file:path=/tmp/umf_sandbox_" + name_of_this_process();
         umf_result_t result = use_pool(text.c_str());
         unlink(("/tmp/umf_sandbox_" + name_of_this_process()).c_str());
         return result;
     }},
    {"linux_vmm", [] { return use_pool("disjoint over linux_vmm"); }},
    {"suspend", suspend_and_resume},
    {"sharing shared", [] { return share_with_child("disjoint over os:visibility=shared"); }},
    {"sharing linux_vmm", [] { return share_with_child("disjoint over linux_vmm"); }},
};

// --- the table ---

const std::vector<Sandbox> sandboxes = {
    {"nothing", {}, {"yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes"}},
    {"memfd_create", {without_memfd}, {"yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes"}},
    {"memfd_create, /dev/shm",
     {without_shm, without_memfd},
     {"yes", "yes", "no", "yes", "yes", "yes", "yes", "yes"}},
    {"memfd_create, /dev/shm, writable files",
     {without_shm, read_only_root, without_memfd},
     {"yes", "no", "no", "no", "no", "no", "no", "no"}},
    {"/dev/shm", {without_shm}, {"yes", "yes", "no", "yes", "yes", "yes", "yes", "yes"}},
    {"/proc", {without_proc}, {"yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes"}},
    {"writable files", {read_only_root}, {"yes", "yes", "yes", "no", "yes", "yes", "yes", "yes"}},
    {"root's rights", {as_nobody}, {"yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes"}},
};

struct Answer {
    int result; // -1: the sandbox cannot be made here
    std::string log;
};

Answer try_in(const Sandbox &sandbox, const Trial &trial) {
    LogFile log(3);
    int pipe_to[2];
    EXPECT_EQ(pipe(pipe_to), 0);
    pid_t child = fork();
    if (child == 0) {
        int result = 0;
        for (auto &step : sandbox.steps) {
            result = step() ? result : -1;
        }
        result = result == 0 ? static_cast<int>(trial.run()) : result;
        ssize_t written = write(pipe_to[1], &result, sizeof(result));
        _exit(written == sizeof(result) ? 0 : 1);
    }
    int result = UMF_RESULT_ERROR_UNKNOWN, status;
    close(pipe_to[1]);
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    EXPECT_EQ(read(pipe_to[0], &result, sizeof(result)), ssize_t{sizeof(result)});
    close(pipe_to[0]);
    return {result, log.text()};
}

class SandboxTest : public testing::TestWithParam<size_t> {};

TEST_P(SandboxTest, WorksOrSaysWhy) {
    const Sandbox &sandbox = sandboxes[GetParam()];
    if (geteuid() != 0 && !sandbox.steps.empty()) {
        GTEST_SKIP() << "making sandboxes needs root";
    }
    for (size_t i = 0; i < trials.size(); i++) {
        SCOPED_TRACE(std::string(trials[i].name) + " without " + sandbox.name);
        Answer answer = try_in(sandbox, trials[i]);
        if (answer.result == -1) {
            GTEST_SKIP() << "this machine does not allow a process without " << sandbox.name;
        }
        if (strcmp(sandbox.cells[i], "yes") == 0) {
            EXPECT_EQ(answer.result, UMF_RESULT_SUCCESS) << answer.log;
        } else {
            EXPECT_NE(answer.result, UMF_RESULT_SUCCESS);
            EXPECT_NE(answer.result, UMF_RESULT_ERROR_UNKNOWN);
            EXPECT_NE(answer.log.find("ERROR"), std::string::npos) << "the log is silent";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(all, SandboxTest, testing::Range(size_t{0}, sandboxes.size()));

// Where nothing works the log names all that was tried.
TEST(sandbox, TheLogNamesWhatWasTried) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "making sandboxes needs root";
    }
    Answer answer = try_in(sandboxes[3], trials[1]);
    if (answer.result == -1) {
        GTEST_SKIP() << "this machine does not allow a process without " << sandboxes[3].name;
    }
    for (const char *name : {"memfd_create", "/dev/shm", "/tmp", "TMPDIR"}) {
        EXPECT_NE(answer.log.find(name), std::string::npos) << name << " in\n" << answer.log;
    }
}

TEST(sandbox, TheTableIsTheOneInTheGuide) {
    std::ifstream file(UMF_TEST_LIST_DIR "/../docs/guide/sandboxes.md");
    std::map<std::string, std::vector<std::string>> found;
    for (std::string line; std::getline(file, line);) {
        std::vector<std::string> cells;
        std::istringstream all(line);
        for (std::string cell; std::getline(all, cell, '|');) {
            std::string text;
            for (char c : cell) {
                text += c == '`' ? "" : std::string(1, c);
            }
            size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
            cells.push_back(first == std::string::npos ? "" : text.substr(first, last - first + 1));
        }
        if (cells.size() == trials.size() + 2) {
            found[cells[1]] = std::vector<std::string>(cells.begin() + 2, cells.end());
        }
    }
    for (const Sandbox &sandbox : sandboxes) {
        std::vector<std::string> wanted(sandbox.cells.begin(), sandbox.cells.end());
        EXPECT_EQ(found[sandbox.name], wanted) << sandbox.name;
    }
}

} // namespace
