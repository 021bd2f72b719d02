// Sharing memory of the file provider with a real second process, by the path of the file: the
// consumer is a peer of fakes/peer.h.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/text.h>

#include "fakes/content.h"
#include "fakes/handle.h"
#include "fakes/peer.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t size = 300000;
constexpr uint64_t question = 1, answer = 2; // content

const Roles roles = {{"peer", serve<>}};

class FileIpc : public testing::TestWithParam<const char *> {
  protected:
    std::string folder = "/var/tmp/umf_file_ipc_XXXXXX", path;
    umf_memory_pool_handle_t pool = nullptr;
    char *ptr = nullptr;
    Bytes handle;

    std::string settings(const std::string &at) {
        return std::string(GetParam()) + " over file:visibility=shared,path=" + at;
    }
    void SetUp() override {
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        path = folder + "/memory";
        ASSERT_EQ(umfPoolCreateFromText(settings(path).c_str(), &pool), OK) << umfTextError();
        ASSERT_NE(umfPoolMalloc(pool, 5000), nullptr);
        ptr = static_cast<char *>(umfPoolMalloc(pool, size + 100)) + 100;
        fill(ptr, size, question);
        handle = handle_of(ptr);
    }
    void TearDown() override {
        EXPECT_EQ(umfPoolDestroy(pool), OK);
        EXPECT_EQ(system(("rm -rf " + folder).c_str()), 0);
    }
    bool has(uint64_t content) {
        return is_filled(ptr, size, content);
    }
    // Another process reads the question and answers; false: it cannot open the handle.
    bool is_opened_with(const std::string &settings_there) {
        PoolPeer consumer("peer", settings_there);
        EXPECT_EQ(consumer.try_alloc(1, 100), OK) << "it has no pool";
        if (consumer.try_open(0, handle) != OK) {
            return false;
        }
        EXPECT_TRUE(consumer.check(0, size, question));
        consumer.fill(0, size, answer);
        EXPECT_EQ(consumer.close(0), OK);
        return true;
    }
};

TEST_P(FileIpc, ConsumerOfItsOwnFile) {
    EXPECT_TRUE(is_opened_with(settings(folder + "/other")));
    EXPECT_TRUE(has(answer));
}

TEST_P(FileIpc, ConsumerOfTheSameFile) {
    struct stat before, after;
    ASSERT_EQ(stat(path.c_str(), &before), 0);
    EXPECT_TRUE(is_opened_with(settings(path)));
    EXPECT_TRUE(has(answer));
    ASSERT_EQ(stat(path.c_str(), &after), 0);
    EXPECT_GE(after.st_size, before.st_size);
}

TEST_P(FileIpc, AnyNumberOfConsumers) {
    for (int i = 0; i < 3; i++) {
        fill(ptr, size, question);
        EXPECT_TRUE(is_opened_with(settings(folder + "/other")));
    }
}

TEST_P(FileIpc, FileThatIsNotThereAnyMore) {
    ASSERT_EQ(rename(path.c_str(), (folder + "/moved").c_str()), 0);
    EXPECT_FALSE(is_opened_with(settings(folder + "/other")));
    std::ofstream(path) << std::string(4 << 20, 'p');
    EXPECT_FALSE(is_opened_with(settings(folder + "/other")));
    EXPECT_TRUE(has(question));
}

TEST_P(FileIpc, ConsumerOfAnotherKind) {
    EXPECT_FALSE(is_opened_with(std::string(GetParam()) + " over os:visibility=shared"));
    EXPECT_FALSE(is_opened_with(std::string(GetParam()) + " over file:path=" + folder + "/private"))
        << "private memory is not shared, nor is anybody else\'s opened";
}

INSTANTIATE_TEST_SUITE_P(Over, FileIpc, testing::Values("proxy", "disjoint"),
                         [](const auto &test) { return std::string(test.param); });

} // namespace

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
