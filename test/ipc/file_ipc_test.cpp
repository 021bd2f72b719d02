// Sharing memory of the file provider with a real second process, by the path of the file.
//
// The program starts itself again as the consumer. What travels are the bytes of one handle, in a
// file.
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/text.h>

#include "fakes/self.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t size = 300000;

// --- the consumer ---

enum Outcome { REFUSED = 10, WRONG, DONE };

int consume(const char *handle_file, const char *settings) {
    std::ifstream file(handle_file, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    std::vector<std::max_align_t> buffer(bytes.size() / sizeof(std::max_align_t) + 1);
    memcpy(buffer.data(), bytes.data(), bytes.size());
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    if (umfPoolCreateFromText(settings, &pool) != OK ||
        umfPoolGetIPCHandler(pool, &handler) != OK) {
        fprintf(stderr, "%s: %s\n", settings, umfTextError());
        return 1;
    }
    void *ptr = nullptr;
    int outcome = REFUSED;
    if (umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(buffer.data()), &ptr) == OK) {
        auto text = static_cast<char *>(ptr);
        outcome = WRONG;
        if (text[0] == 'p' && memcmp(text, text + 1, size - 1) == 0) {
            memset(text, 'c', size);
            outcome = umfCloseIPCHandle(ptr) == OK ? DONE : WRONG;
        }
    }
    return umfPoolDestroy(pool) == OK ? outcome : 1;
}

int run_consumer(const std::string &handle_file, const std::string &settings) {
    SelfCommand self({"file_ipc_test", "--consume", handle_file, settings});
    pid_t pid = -1;
    EXPECT_EQ(posix_spawnp(&pid, self.file(), nullptr, nullptr, self.arguments(), environ), 0);
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

// --- the producer ---

class FileIpc : public testing::TestWithParam<const char *> {
  protected:
    std::string folder = "/var/tmp/umf_file_ipc_XXXXXX", path, handle_file;
    umf_memory_pool_handle_t pool = nullptr;
    char *ptr = nullptr;

    std::string settings(const std::string &at) {
        return std::string(GetParam()) + " over file:visibility=shared,path=" + at;
    }
    void SetUp() override {
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        path = folder + "/memory";
        handle_file = folder + "/handle";
        ASSERT_EQ(umfPoolCreateFromText(settings(path).c_str(), &pool), OK) << umfTextError();
        ASSERT_NE(umfPoolMalloc(pool, 5000), nullptr);
        ptr = static_cast<char *>(umfPoolMalloc(pool, size + 100)) + 100;
        memset(ptr, 'p', size);
        umf_ipc_handle_t handle = nullptr;
        size_t bytes = 0;
        ASSERT_EQ(umfGetIPCHandle(ptr, &handle, &bytes), OK);
        std::ofstream(handle_file, std::ios::binary)
            .write(reinterpret_cast<const char *>(handle), static_cast<std::streamsize>(bytes));
        EXPECT_EQ(umfPutIPCHandle(handle), OK);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(system(("rm -rf " + folder).c_str()), 0);
    }
    bool is_all(char c) {
        return ptr[0] == c && memcmp(ptr, ptr + 1, size - 1) == 0;
    }
};

TEST_P(FileIpc, ConsumerOfItsOwnFile) {
    EXPECT_EQ(run_consumer(handle_file, settings(folder + "/other")), DONE);
    EXPECT_TRUE(is_all('c'));
}

TEST_P(FileIpc, ConsumerOfTheSameFile) {
    struct stat before, after;
    ASSERT_EQ(stat(path.c_str(), &before), 0);
    EXPECT_EQ(run_consumer(handle_file, settings(path)), DONE);
    EXPECT_TRUE(is_all('c'));
    ASSERT_EQ(stat(path.c_str(), &after), 0);
    EXPECT_GE(after.st_size, before.st_size);
}

TEST_P(FileIpc, AnyNumberOfConsumers) {
    for (int i = 0; i < 3; i++) {
        memset(ptr, 'p', size);
        EXPECT_EQ(run_consumer(handle_file, settings(folder + "/other")), DONE);
    }
}

TEST_P(FileIpc, FileThatIsNotThereAnyMore) {
    ASSERT_EQ(rename(path.c_str(), (folder + "/moved").c_str()), 0);
    EXPECT_EQ(run_consumer(handle_file, settings(folder + "/other")), REFUSED);
    std::ofstream(path) << std::string(4 << 20, 'p');
    EXPECT_EQ(run_consumer(handle_file, settings(folder + "/other")), REFUSED);
    EXPECT_TRUE(is_all('p'));
}

TEST_P(FileIpc, ConsumerOfAnotherKind) {
    EXPECT_EQ(run_consumer(handle_file, std::string(GetParam()) + " over os:visibility=shared"),
              REFUSED);
    EXPECT_EQ(run_consumer(handle_file,
                           std::string(GetParam()) + " over file:path=" + folder + "/private"),
              REFUSED)
        << "private memory is not shared, nor is anybody else\'s opened";
}

INSTANTIATE_TEST_SUITE_P(Over, FileIpc, testing::Values("proxy", "disjoint"),
                         [](const auto &test) { return std::string(test.param); });

} // namespace

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--consume") == 0) {
        return consume(argv[2], argv[3]);
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
