// A program whose malloc is shared memory hands what it allocated to another process. The consumer
// is this program again, once with the library in front and once with a pool of its own.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf/ipc.h>
#include <umf/text.h>

#include "heap.h"

extern char **environ;

namespace {

const char *self;

std::string shm_path() {
    return "/dev/shm/umf_proxy_lib_shm_pid_" + std::to_string(getpid());
}

bool write_all(int fd, const void *data, size_t size) {
    return write(fd, data, size) == static_cast<ssize_t>(size);
}

bool read_all(int fd, void *data, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = read(fd, static_cast<char *>(data) + done, size - done);
        if (n <= 0) {
            return false;
        }
        done += size_t(n);
    }
    return true;
}

// Opens the handle that comes on stdin, checks the memory and turns every byte around.
int consume(const char *size_text, const char *kind) {
    const size_t bytes = strtoul(size_text, nullptr, 10);
    umf_memory_pool_handle_t pool = heap();
    if (std::string(kind) == "own" &&
        umfPoolCreateFromText("proxy over os:visibility=shared", &pool) != UMF_RESULT_SUCCESS) {
        return 2;
    }
    size_t size = 0;
    umf_ipc_handler_handle_t handler = nullptr;
    if (!read_all(STDIN_FILENO, &size, sizeof(size)) ||
        umfPoolGetIPCHandler(pool, &handler) != UMF_RESULT_SUCCESS) {
        return 3;
    }
    std::vector<char> handle(size);
    void *ptr = nullptr;
    if (!read_all(STDIN_FILENO, handle.data(), size) ||
        umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(handle.data()), &ptr) !=
            UMF_RESULT_SUCCESS) {
        return 4;
    }
    unsigned char *data = static_cast<unsigned char *>(ptr);
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != static_cast<unsigned char>(i * 7)) {
            return 5;
        }
        data[i] = static_cast<unsigned char>(~data[i]);
    }
    return umfCloseIPCHandle(ptr) == UMF_RESULT_SUCCESS ? 0 : 6;
}

// The consumer's exit status. posix_spawn, because the child of a fork would share the heap.
int run_consumer(const char *kind, size_t bytes, umf_ipc_handle_t handle, size_t handle_size) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO);
    std::string bytes_text = std::to_string(bytes), kind_text = kind, role = "consume";
    char *args[] = {const_cast<char *>(self), role.data(), bytes_text.data(), kind_text.data(),
                    nullptr};
    std::vector<char *> env;
    for (char **variable = environ; *variable; variable++) {
        if (kind_text == "heap" || strncmp(*variable, "LD_PRELOAD=", 11) != 0) {
            env.push_back(*variable);
        }
    }
    env.push_back(nullptr);
    pid_t pid = -1;
    const int error = posix_spawn(&pid, self, &actions, nullptr, args, env.data());
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]);
    int status = -1;
    if (error == 0) {
        write_all(ends[1], &handle_size, sizeof(handle_size));
        write_all(ends[1], handle, handle_size);
        waitpid(pid, &status, 0);
    }
    close(ends[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : status;
}

class Ipc : public testing::TestWithParam<const char *> {};

TEST_P(Ipc, OfWhatMallocGave) {
    ASSERT_TRUE(heap_is_ours());
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    for (size_t bytes : {size_t{100}, size_t{20000}, size_t{3} << 20}) {
        bytes += threshold();
        unsigned char *data = static_cast<unsigned char *>(malloc(bytes));
        for (size_t i = 0; i < bytes; i++) {
            data[i] = static_cast<unsigned char>(i * 7);
        }
        umf_ipc_handle_t handle = nullptr;
        size_t handle_size = 0;
        ASSERT_EQ(umfGetIPCHandle(data, &handle, &handle_size), UMF_RESULT_SUCCESS);
        EXPECT_EQ(run_consumer(GetParam(), bytes, handle, handle_size), 0);
        for (size_t i = 0; i < bytes; i++) {
            ASSERT_EQ(data[i], static_cast<unsigned char>(~(i * 7))) << i;
        }
        EXPECT_EQ(umfPutIPCHandle(handle), UMF_RESULT_SUCCESS);
        free(data);
    }
}

INSTANTIATE_TEST_SUITE_P(Consumer, Ipc, testing::Values("heap", "own"),
                         [](const auto &consumer) { return std::string(consumer.param); });

TEST(Shm, TheNameIsThereWhileTheProcessIs) {
    EXPECT_EQ(access(shm_path().c_str(), F_OK) == 0, is_option("shared-shm"));
}

TEST(Private, HasNoHandles) {
    if (is_option("page.disposition=")) {
        GTEST_SKIP() << "this run is about shared pages";
    }
    void *ptr = malloc(100 + threshold());
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    EXPECT_NE(umfGetIPCHandle(ptr, &handle, &size), UMF_RESULT_SUCCESS);
    free(ptr);
}

} // namespace

int main(int argc, char **argv) {
    self = "/proc/self/exe";
    if (argc == 4 && std::string(argv[1]) == "consume") {
        return consume(argv[2], argv[3]);
    }
    testing::InitGoogleTest(&argc, argv);
    if (!is_option("page.disposition=")) {
        testing::GTEST_FLAG(filter) = "-*Ipc*";
    }
    return RUN_ALL_TESTS();
}
