// Files of recordings and snapshots: what is replaced, and who gets a path.
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf/record.h>

#include <gtest/gtest.h>

namespace {

class RecordFiles : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_NE(mkdtemp(folder), nullptr);
    }
    void TearDown() override {
        for (const char *name : {"pipe", "link", "target", "file"}) {
            unlink(path(name).c_str());
        }
        rmdir(folder);
    }
    std::string path(const char *name) const {
        return std::string(folder) + "/" + name;
    }
    static umf_result_t start(const std::string &path) {
        umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
        params.path = path.c_str();
        params.size = 1 << 20;
        return umfRecordStart(&params);
    }
    static mode_t mode(const std::string &path) {
        struct stat info {};
        return lstat(path.c_str(), &info) == 0 ? info.st_mode : 0;
    }
    char folder[32] = "/tmp/umf-record.XXXXXX";
};

TEST_F(RecordFiles, WhatIsNoRegularFileIsNotReplaced) {
    ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
    ASSERT_EQ(symlink("target", path("link").c_str()), 0);
    close(open(path("target").c_str(), O_CREAT | O_WRONLY, 0644));
    for (const std::string &at : {path("pipe"), path("link"), std::string(folder)}) {
        EXPECT_EQ(umfRecordSnapshot(at.c_str()), UMF_RESULT_ERROR_INVALID_ARGUMENT) << at;
        EXPECT_EQ(start(at), UMF_RESULT_ERROR_INVALID_ARGUMENT) << at;
    }
    ASSERT_EQ(umfRecordStart(nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfRecordSave(path("pipe").c_str()), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(S_ISFIFO(mode(path("pipe"))));
    EXPECT_TRUE(S_ISLNK(mode(path("link"))));
}

TEST_F(RecordFiles, AreForTheirUserOnly) {
    close(open(path("file").c_str(), O_CREAT | O_WRONLY, 0644)); // it is replaced
    EXPECT_EQ(umfRecordSnapshot(path("file").c_str()), UMF_RESULT_SUCCESS);
    EXPECT_EQ(mode(path("file")) & 0777, 0600u);
    EXPECT_EQ(start(path("file")), UMF_RESULT_SUCCESS);
    EXPECT_EQ(mode(path("file")) & 0777, 0600u);
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
}

// Of processes that begin at once one has the path, until it ends.
TEST_F(RecordFiles, OneProcessHasAPath) {
    for (int round = 0; round < 50; round++) {
        int go[2], told[2], end[2];
        ASSERT_EQ(pipe(go) | pipe(told) | pipe(end), 0);
        for (int i = 0; i < 3; i++) {
            if (fork() == 0) {
                close(go[1]);
                close(end[1]);
                char byte;
                (void)!read(go[0], &byte, 1);
                byte = start(path("file")) == UMF_RESULT_SUCCESS ? 'y' : 'n';
                (void)!write(told[1], &byte, 1);
                (void)!read(end[0], &byte, 1);
                _exit(0);
            }
        }
        close(go[1]); // all begin
        int have = 0;
        for (int i = 0; i < 3; i++) {
            char byte = 0;
            EXPECT_EQ(read(told[0], &byte, 1), 1);
            have += byte == 'y';
        }
        EXPECT_EQ(have, 1) << "round " << round;
        close(end[1]);
        while (wait(nullptr) > 0) {
        }
        for (int fd : {go[0], told[0], told[1], end[0]}) {
            close(fd);
        }
    }
}

} // namespace
