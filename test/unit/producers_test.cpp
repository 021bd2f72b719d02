// Producers that a consumer remembers.
#include <csignal>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fault.h"

extern "C" {
#include "ipc/producers.h"
#include "system/os.h"
}

namespace {

int count_descriptors() {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) != -1;
    }
    return count;
}

/* A child that waits to be killed. */
class Child {
  public:
    umf_process_t process = {};
    Child() {
        umf_process_self(&process);
        pid = fork();
        if (pid == 0) {
            pause();
            _exit(0);
        }
        process.pid = static_cast<uint32_t>(pid);
        EXPECT_EQ(umf_os_start_time(pid, &process.start_time), 0);
    }
    ~Child() {
        kill();
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;
    void kill() {
        if (pid != 0) {
            ::kill(pid, SIGKILL);
            EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
            pid = 0;
        }
    }

  private:
    pid_t pid;
};

bool has_pidfds() {
    int fd;
    if (umf_os_pidfd_open(getpid(), &fd) != 0) {
        return false;
    }
    close(fd);
    return true;
}

class Producers : public testing::Test {
  protected:
    umf_producers_t producers = {};
    const int descriptors = count_descriptors();

    void SetUp() override {
        if (!has_pidfds()) {
            GTEST_SKIP() << "no pidfd_open here";
        }
    }
    void TearDown() override {
        umf_producers_fini(&producers);
        EXPECT_EQ(count_descriptors(), descriptors);
    }
    /* Whether it was known before; -1: refused. */
    int meet(const Child &child) {
        fault::Nth nth("pidfd_open", EIO); // an unknown producer is not remembered either
        umf_producer_t *producer = nullptr;
        nth.next();
        umf_result_t result = umf_producers_check(&producers, &child.process, &producer);
        nth.off();
        int known = result == UMF_RESULT_SUCCESS ? producer != nullptr : -1;
        umf_producer_put(producer);
        return known;
    }
    void remember(const Child &child) {
        umf_producer_t *producer = nullptr;
        ASSERT_EQ(umf_producers_check(&producers, &child.process, &producer), UMF_RESULT_SUCCESS);
        ASSERT_NE(producer, nullptr);
        EXPECT_TRUE(umf_producer_file(producer).is_kept);
        umf_producers_remember(&producers, producer);
        umf_producers_remember(&producers, producer);
        umf_producer_put(producer);
    }
};

TEST_F(Producers, AreMetOnce) {
    Child child;
    EXPECT_EQ(meet(child), 0);
    EXPECT_EQ(count_descriptors(), descriptors);
    remember(child);
    EXPECT_EQ(count_descriptors(), descriptors + 1);
    EXPECT_EQ(meet(child), 1);
    umf_process_t other = child.process;
    other.start_time--;
    umf_producer_t *producer = nullptr;
    EXPECT_EQ(umf_producers_check(&producers, &other, &producer),
              UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(producer, nullptr);
}

TEST_F(Producers, ThoseUsedLastAreKept) {
    std::vector<std::unique_ptr<Child>> children;
    for (int i = 0; i <= UMF_PRODUCERS; i++) {
        children.push_back(std::make_unique<Child>());
    }
    for (int i = 0; i < UMF_PRODUCERS; i++) {
        remember(*children[static_cast<size_t>(i)]);
    }
    EXPECT_EQ(meet(*children[0]), 1);
    remember(*children[UMF_PRODUCERS]);
    EXPECT_EQ(count_descriptors(), descriptors + UMF_PRODUCERS);
    EXPECT_EQ(meet(*children[0]), 1);
    EXPECT_EQ(meet(*children[1]), 0) << "its place was needed";
    for (size_t i = 2; i <= UMF_PRODUCERS; i++) {
        EXPECT_EQ(meet(*children[i]), 1) << i;
    }
}

TEST_F(Producers, TheDeadAreRefusedAndForgotten) {
    Child one, two, three;
    remember(one);
    remember(two);
    one.kill();
    EXPECT_EQ(meet(one), -1);
    EXPECT_EQ(meet(two), 1);
    two.kill();
    remember(three);
    EXPECT_EQ(count_descriptors(), descriptors + 1);
    EXPECT_EQ(meet(three), 1);
}

TEST_F(Producers, OneInUseStaysUsable) {
    Child child;
    remember(child);
    umf_producer_t *producer = nullptr;
    ASSERT_EQ(umf_producers_check(&producers, &child.process, &producer), UMF_RESULT_SUCCESS);
    umf_producers_fini(&producers);
    EXPECT_NE(fcntl(umf_producer_file(producer).number, F_GETFD), -1);
    umf_producer_put(producer);
}

TEST_F(Producers, OfThisProcessThereIsNothingToKnow) {
    umf_process_t self;
    umf_process_self(&self);
    umf_producer_t *producer = nullptr;
    EXPECT_EQ(umf_producers_check(&producers, &self, &producer), UMF_RESULT_SUCCESS);
    EXPECT_EQ(producer, nullptr);
    EXPECT_FALSE(umf_producer_file(producer).is_kept);
    umf_producers_remember(&producers, producer);
    umf_producer_put(producer);
}

} // namespace
