// Attaching (src/record/attach*.c, src/peer/server.c): other programs look at this process.
#include <atomic>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <umf/record.h>
#include <umf/suspend.h>

#include "attach.h"
#include "fakes/scale.h"
#include "fault.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace {

// The name that an inspector uses.
umf_record_object_t object_of(Visit &visit, const void *handle) {
    EXPECT_EQ(visit.call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE) << visit.reply.text;
    return Snapshot(visit.file()).of(handle);
}

// Nothing is opened without a request (attach_unasked_test.cpp). Here it is, for all tests.
class Attach : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        ASSERT_EQ(attach_set(true), UMF_RESULT_SUCCESS);
    }
};

TEST_F(Attach, TheSettingOpensTheSocketAtOnce) {
    EXPECT_TRUE(Visit().is_open());
    EXPECT_TRUE(attach_get());
}

TEST_F(Attach, AChildHasNothingBeforeItsFirstPool) {
    EXPECT_EQ(status_of(in_child([] {
                  umf_memory_provider_handle_t provider;
                  umfMemoryProviderCreateFromText("os", &provider);
                  umfMemoryProviderDestroy(provider);
                  return all_threads_end() && !Visit().is_open() ? 0 : 1;
              })),
              0);
}

TEST_F(Attach, AChildListensForItself) {
    Pool pool;
    EXPECT_TRUE(Visit().is_open());
    EXPECT_EQ(status_of(in_child([&] {
                  if (Visit().is_open()) {
                      return 1;
                  }
                  Pool own;
                  Visit visit;
                  if (visit.call(UMF_ATTACH_FIGURES) != UMF_ATTACH_DONE) {
                      return 2;
                  }
                  Snapshot snapshot(visit.file());
                  return snapshot.header.pid == (uint32_t)getpid() && snapshot.number(own.handle) &&
                                 snapshot.number(pool.handle)
                             ? 0
                             : 3;
              })),
              0);
    EXPECT_TRUE(Visit().is_open());
}

// A free is no place to start a thread, so a child that makes no pool has none until it makes a
// request.
TEST_F(Attach, AChildThatGoesOnWithItsParentsPools) {
    Pool pool;
    EXPECT_EQ(status_of(in_child([&] {
                  for (int i = 0; i < 20000; i++) {
                      umfPoolFree(pool.handle, umfPoolMalloc(pool.handle, 100));
                  }
                  if (Visit().is_open() || threads_of_the_library() != 0) {
                      return 1;
                  }
                  return attach_set(true) == UMF_RESULT_SUCCESS && Visit().is_open() ? 0 : 2;
              })),
              0);
}

TEST_F(Attach, ASettingTurnsItOff) {
    EXPECT_EQ(status_of(in_child([] {
                  if (attach_set(false) != UMF_RESULT_SUCCESS || attach_get()) {
                      return 1;
                  }
                  Pool pool;
                  if (Visit().is_open()) {
                      return 2;
                  }
                  if (attach_set(true) != UMF_RESULT_SUCCESS || !Visit().is_open()) {
                      return 3;
                  }
                  attach_set(false);
                  return !Visit().is_open() && !attach_get() && all_threads_end() ? 0 : 4;
              })),
              0);
}

// Another program has the name of the socket.
TEST_F(Attach, ANameThatIsTakenIsTold) {
    int ends[2], go[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(pipe(go), 0);
    pid_t pid = in_child([&] {
        char byte = 1;
        if (write(ends[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) {
            return 1;
        }
        Pool pool;
        if (attach_get()) {
            return 2;
        }
        return attach_set(true) == UMF_RESULT_ERROR_OUT_OF_RESOURCES && !attach_get() ? 0 : 3;
    });
    char byte;
    ASSERT_EQ(read(ends[0], &byte, 1), 1);
    Squatter squatter(pid);
    EXPECT_TRUE(squatter.is_there);
    EXPECT_EQ(write(go[1], &byte, 1), 1);
    EXPECT_EQ(status_of(pid), 0);
    for (int fd : {ends[0], ends[1], go[0], go[1]}) {
        close(fd);
    }
}

// --- callbacks of the program run in the socket's thread ---

struct Called {
    std::function<void()> run;
    std::atomic<bool> is_inside{false}, may_go{false};
    umf_memory_pool_handle_t pool = nullptr;
};

umf_result_t call(umf_memory_pool_handle_t pool, umf_suspend_event_t event, void *arg) {
    Called *called = (Called *)arg;
    if (event == UMF_SUSPEND_EVENT_SUSPEND) {
        called->pool = pool;
        called->is_inside = true;
        called->run();
    }
    return UMF_RESULT_SUCCESS;
}

void wait_for(const std::atomic<bool> &flag) {
    while (!flag) {
        usleep(1000);
    }
}

// In a child: an inspector suspends a pool, whose callback runs `run`, while the program does
// `beside`.
int suspend_with(const std::function<void(Called *)> &run,
                 const std::function<void(Called *)> &beside) {
    Pool pool("coalescing over linux_vmm");
    memset(umfPoolMalloc(pool.handle, 1 << 20), 1, 1 << 20);
    Called called;
    called.run = [&] { run(&called); };
    Visit visit;
    umf_record_object_t object = object_of(visit, pool.handle);
    umf_attach_request_t request = Visit::request(UMF_ATTACH_SUSPEND);
    request.object = object.handle;
    request.birth = object.birth;
    if (umfPoolAddSuspendCallback(pool.handle, call, &called) != UMF_RESULT_SUCCESS ||
        !visit.send(&request, sizeof(request))) {
        return 100;
    }
    wait_for(called.is_inside);
    beside(&called);
    bool is_answered = visit.receive();
    umfPoolsResume(&pool.handle, 1, nullptr, nullptr);
    return is_answered ? (int)visit.reply.status : 101;
}

// Those of the sanitizers are larger.
__attribute__((noinline)) void use_stack() {
    volatile char large[300 << 10];
    for (size_t i = 0; i < sizeof(large); i += 512) {
        large[sizeof(large) - 1 - i] = 1;
    }
}

TEST_F(Attach, CallbacksHaveAnOrdinaryStack) {
    EXPECT_EQ(status_of(in_child(
                  [] { return suspend_with([](Called *) { use_stack(); }, [](Called *) {}); })),
              (int)UMF_ATTACH_DONE);
}

TEST_F(Attach, ACallbackTurnsItOffWhileTheProgramDoes) {
    EXPECT_EQ(status_of(in_child([] {
                  suspend_with(
                      [](Called *called) {
                          wait_for(called->may_go);
                          attach_set(false);
                      },
                      [](Called *called) {
                          std::thread off([] { attach_set(false); });
                          usleep(1000); // it waits now, or will
                          called->may_go = true;
                          off.join();
                      });
                  return !attach_get() && !Visit().is_open() && all_threads_end() ? 0 : 1;
              })),
              0);
}

TEST_F(Attach, ACallbackTurnsItOffAndOn) {
    EXPECT_EQ(status_of(in_child([] {
                  int status = suspend_with(
                      [](Called *) {
                          attach_set(false);
                          attach_set(true);
                      },
                      [](Called *) {});
                  Visit visit;
                  return status == UMF_ATTACH_DONE && attach_get() &&
                                 visit.call(UMF_ATTACH_FIGURES) == UMF_ATTACH_DONE
                             ? 0
                             : 1;
              })),
              0);
}

// The callback's is the last word.
TEST_F(Attach, ACallbackTurnsItOnWhileTheProgramTurnsItOff) {
    EXPECT_EQ(status_of(in_child([] {
                  suspend_with(
                      [](Called *called) {
                          wait_for(called->may_go);
                          while (attach_get()) {
                              usleep(1000);
                          }
                          attach_set(true);
                      },
                      [](Called *called) {
                          called->may_go = true;
                          attach_set(false);
                      });
                  Visit visit;
                  return attach_get() && visit.call(UMF_ATTACH_FIGURES) == UMF_ATTACH_DONE ? 0 : 1;
              })),
              0);
}

TEST_F(Attach, ADestroyWaitsForTheSuspendOfAVisitor) {
    EXPECT_EQ(status_of(in_child([] {
                  bool has_waited = true;
                  suspend_with([](Called *called) { wait_for(called->may_go); },
                               [&](Called *called) {
                                   std::atomic<bool> has_ended{false};
                                   std::thread ends([&] {
                                       umfPoolDestroy(called->pool);
                                       has_ended = true;
                                   });
                                   for (int i = 0; i < 50; i++) {
                                       has_waited &= !has_ended;
                                       usleep(1000);
                                   }
                                   called->may_go = true;
                                   ends.join();
                               });
                  return has_waited ? 0 : 1;
              })),
              0);
}

TEST_F(Attach, ATearDownClosesTheSocket) {
    EXPECT_EQ(status_of(in_child([] {
                  umf_memory_pool_handle_t pool;
                  umfPoolCreateFromText("disjoint over os", &pool);
                  Visit visit;
                  umfPoolDestroy(pool);
                  umfTearDown();
                  return all_threads_end() && !Visit().is_open() ? 0 : 1;
              })),
              0);
}

TEST_F(Attach, FiguresAndSnapshots) {
    Pool pool;
    void *ptr = umfPoolMalloc(pool.handle, 1000);
    Visit visit;
    ASSERT_EQ(visit.call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE);
    {
        Snapshot snapshot(visit.file());
        EXPECT_EQ(snapshot.of(pool.handle).live_count, 1u);
        EXPECT_GE(snapshot.of(pool.handle).live, 1000u);
        EXPECT_GE(snapshot.of(pool.handle).held, snapshot.of(pool.handle).live);
        EXPECT_EQ(snapshot.header.sections[UMF_RECORD_SPANS].offset, 0u);
    }
    ASSERT_EQ(visit.call(UMF_ATTACH_SNAPSHOT), UMF_ATTACH_DONE);
    EXPECT_EQ(Snapshot(visit.file()).state_at(ptr), (uint32_t)UMF_RECORD_STATE_LIVE);
    umfPoolFree(pool.handle, ptr);
}

// The next pool often gets the handle of one that was destroyed.
TEST_F(Attach, APoolThatHasTheHandleOfAnotherIsNotTheOther) {
    Visit visit;
    umf_record_object_t old{};
    {
        Pool gone("disjoint over linux_vmm");
        old = object_of(visit, gone.handle);
        EXPECT_NE(old.birth, 0u);
    }
    Pool pool("disjoint over linux_vmm");
    char *ptr = (char *)umfPoolMalloc(pool.handle, 3 << 20);
    const umf_record_object_t object = object_of(visit, pool.handle);
    EXPECT_NE(object.birth, old.birth);
    old.handle = object.handle;
    for (uint32_t birth : {old.birth, 0u, object.birth + 1}) {
        old.birth = birth;
        for (uint32_t kind : {UMF_ATTACH_TRIM, UMF_ATTACH_SUSPEND, UMF_ATTACH_RESUME}) {
            EXPECT_EQ(visit.call(kind, old), UMF_ATTACH_FAILED);
            EXPECT_STREQ(visit.reply.text, "there is no such pool any more");
        }
    }
    *ptr = 1; // it is not suspended
    EXPECT_EQ(visit.call(UMF_ATTACH_TRIM, object), UMF_ATTACH_DONE);
    umfPoolFree(pool.handle, ptr);
}

TEST_F(Attach, PoolsAreTrimmedSuspendedAndResumed) {
    Pool pool("disjoint over linux_vmm");
    void *ptr = umfPoolMalloc(pool.handle, 3 << 20);
    Visit visit;
    const umf_record_object_t object = object_of(visit, pool.handle);
    EXPECT_EQ(visit.call(UMF_ATTACH_TRIM, object), UMF_ATTACH_DONE);
    EXPECT_EQ(visit.call(UMF_ATTACH_SUSPEND, object), UMF_ATTACH_DONE) << visit.reply.text;
    ASSERT_EQ(visit.call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE);
    EXPECT_GT(Snapshot(visit.file()).of(pool.handle).away, 0u);
    EXPECT_EQ(visit.call(UMF_ATTACH_RESUME, object), UMF_ATTACH_DONE) << visit.reply.text;
    memset(ptr, 1, 3 << 20);
    umfPoolFree(pool.handle, ptr);
}

bool is_recording() {
    umf_record_state_report_t report = UMF_RECORD_STATE_REPORT_INIT;
    umfRecordGetState(&report);
    return report.is_running != 0;
}

std::string bytes_of(const Visit &visit) {
    std::ifstream file(visit.file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Attach, ARecordingRunsUntilItsVisitorGoes) {
    Pool pool;
    Visit other;
    EXPECT_EQ(other.call(UMF_ATTACH_LIVE), UMF_ATTACH_FAILED);
    {
        Visit visit;
        umf_attach_request_t request = Visit::request(UMF_ATTACH_RECORD);
        request.size = 1 << 20;
        request.leaks = 1;
        ASSERT_TRUE(visit.send(&request, sizeof(request)));
        ASSERT_TRUE(visit.receive());
        ASSERT_EQ(visit.reply.status, (uint32_t)UMF_ATTACH_DONE) << visit.reply.text;
        EXPECT_TRUE(is_recording());
        EXPECT_EQ(bytes_of(visit).substr(0, 8), UMF_RECORD_MAGIC);
        EXPECT_EQ(fcntl(visit.given, F_GETFL) & O_ACCMODE, O_RDONLY);
        EXPECT_EQ(other.call(UMF_ATTACH_RECORD), UMF_ATTACH_FAILED);
        EXPECT_STREQ(other.reply.text, "a recording is running already");
        EXPECT_EQ(other.call(UMF_ATTACH_STOP), UMF_ATTACH_FAILED);
        EXPECT_EQ(other.call(UMF_ATTACH_LIVE), UMF_ATTACH_DONE);
        EXPECT_EQ(bytes_of(other).substr(0, 8), UMF_RECORD_MAGIC);
        EXPECT_TRUE(is_recording());
    }
    /* The socket's thread notices it by itself; a request that follows is served after that. */
    for (int i = 0; i < 1000 && is_recording(); i++) {
        EXPECT_EQ(other.call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE);
    }
    EXPECT_FALSE(is_recording());
    EXPECT_EQ(other.call(UMF_ATTACH_RECORD), UMF_ATTACH_DONE) << other.reply.text;
    EXPECT_EQ(other.call(UMF_ATTACH_STOP), UMF_ATTACH_DONE);
    EXPECT_FALSE(is_recording());
}

// Nobody writes to it or changes its size, though its user may open it again.
TEST_F(Attach, WhatIsHandedOutIsSealed) {
    Pool pool;
    for (uint32_t kind : {UMF_ATTACH_SNAPSHOT, UMF_ATTACH_FIGURES, UMF_ATTACH_RECORD}) {
        Visit visit;
        ASSERT_EQ(visit.call(kind), UMF_ATTACH_DONE) << visit.reply.text;
        int seals = fcntl(visit.given, F_GET_SEALS);
        if (seals == -1) {
            GTEST_SKIP() << "the files are not those of memfd_create, which have seals";
        }
        EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
                  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        struct stat info {};
        fstat(visit.given, &info);
        EXPECT_EQ(info.st_mode & 0777, 0600u);
        int again = open(visit.file().c_str(), O_RDWR);
        EXPECT_NE(ftruncate(again, 0), 0);
        EXPECT_EQ(pwrite(again, "x", 1, 0), -1);
        close(again);
    }
    while (is_recording()) { // until the socket's thread has noticed
        usleep(1000);
    }
}

// Opened again for writing. 0: nothing can be written; else the number of the way that could.
int ways_to_write(const std::string &file) {
    int fd = open(file.c_str(), O_RDWR);
    struct stat info {};
    if (fd == -1 || fstat(fd, &info) != 0) {
        return 1;
    }
    uint64_t word = UINT64_MAX;
    void *shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return pwrite(fd, &word, sizeof(word), 0) != -1                                           ? 2
           : shared != MAP_FAILED                                                             ? 3
           : ftruncate(fd, 0) == 0                                                            ? 4
           : ftruncate(fd, info.st_size + 4096) == 0                                          ? 5
           : fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0          ? 6
           : fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0                                        ? 7
           : pread(fd, &word, sizeof(word), 0) != (ssize_t)sizeof(word) || word == UINT64_MAX ? 8
                                                                                              : 0;
}

bool has_seal_of_future_writes() {
    int fd = memfd_create("probe", MFD_ALLOW_SEALING);
    bool has_it = fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0;
    close(fd);
    return has_it;
}

TEST_F(Attach, AnotherProcessWritesToNoRecording) {
    if (!has_seal_of_future_writes()) {
        GTEST_SKIP() << "no memfd_create, or the kernel is older than 5.1";
    }
    Pool pool;
    pid_t looked_at = getpid();
    int status = status_of(in_child([&] {
        Visit visit(looked_at);
        if (visit.call(UMF_ATTACH_RECORD) != UMF_ATTACH_DONE) {
            return 100;
        }
        return ways_to_write(visit.file());
    }));
    for (int i = 0; i < 5000; i++) {
        umfPoolFree(pool.handle, umfPoolMalloc(pool.handle, 64));
    }
    while (is_recording()) { // until the socket's thread has noticed
        usleep(1000);
    }
    EXPECT_EQ(status, 0);
}

int memfd_denied(const char *what) {
    return strcmp(what, "memfd") == 0 ? EPERM : 0;
}

// A sandbox without memfd_create: the memory is an unlinked file, which has no seals.
TEST_F(Attach, MemoryWithoutSealsIsNotHandedOut) {
    EXPECT_EQ(
        status_of(in_child([] {
            umf_os_set_fault(memfd_denied);
            Pool pool;
            attach_set(true);
            Visit visit;
            for (uint32_t kind : {UMF_ATTACH_FIGURES, UMF_ATTACH_SNAPSHOT, UMF_ATTACH_RECORD}) {
                if (visit.call(kind) != UMF_ATTACH_FAILED || visit.given != -1 ||
                    !strstr(visit.reply.text, "memfd_create")) {
                    return (int)kind;
                }
            }
            return is_recording() ? 100 : 0;
        })),
        0);
}

TEST_F(Attach, ARecordingHasALimit) {
    Pool pool;
    Visit visit;
    umf_attach_request_t request = Visit::request(UMF_ATTACH_RECORD);
    request.size = UMF_ATTACH_SIZE_MAX + 1;
    ASSERT_TRUE(visit.send(&request, sizeof(request)) && visit.receive());
    EXPECT_EQ(visit.reply.status, (uint32_t)UMF_ATTACH_FAILED);
    EXPECT_FALSE(is_recording());
}

// Its connection stays when the program has ended the inspector's recording and made its own.
TEST_F(Attach, ALaterRecordingOfTheProgramStays) {
    Pool pool;
    Visit other;
    {
        Visit visit;
        ASSERT_EQ(visit.call(UMF_ATTACH_RECORD), UMF_ATTACH_DONE) << visit.reply.text;
        ASSERT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
        ASSERT_EQ(umfRecordStart(nullptr), UMF_RESULT_SUCCESS);
        EXPECT_EQ(visit.call(UMF_ATTACH_STOP), UMF_ATTACH_FAILED);
    }
    for (int i = 0; i < 10; i++) { // the one that has gone is noticed meanwhile
        EXPECT_EQ(other.call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE);
    }
    EXPECT_TRUE(is_recording());
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
}

// A recording of the program itself cannot be stopped by others.
TEST_F(Attach, TheProgramsOwnRecordingStays) {
    Pool pool;
    ASSERT_EQ(umfRecordStart(nullptr), UMF_RESULT_SUCCESS);
    {
        Visit visit;
        EXPECT_EQ(visit.call(UMF_ATTACH_STOP), UMF_ATTACH_FAILED);
        EXPECT_EQ(visit.call(UMF_ATTACH_RECORD), UMF_ATTACH_FAILED);
    }
    EXPECT_EQ(Visit().call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE);
    EXPECT_TRUE(is_recording());
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
}

TEST_F(Attach, HandlesThatAreNone) {
    Pool pool;
    int local = 0;
    Visit visit;
    for (uint32_t kind : {UMF_ATTACH_TRIM, UMF_ATTACH_SUSPEND, UMF_ATTACH_RESUME}) {
        for (const void *handle : {(const void *)nullptr, (const void *)&local, (const void *)-1,
                                   (const void *)((char *)pool.handle + 16)}) {
            EXPECT_EQ(visit.call(kind, handle), UMF_ATTACH_FAILED);
            EXPECT_STRNE(visit.reply.text, "");
        }
    }
}

// After each of them the process answers others as before.
TEST_F(Attach, BadMessages) {
    Pool pool;
    const umf_attach_request_t good = Visit::request(UMF_ATTACH_FIGURES);
    std::vector<std::string> bad = {"", "x", std::string(63, 'x'), std::string(64, '\0'),
                                    std::string(4096, 'x')};
    auto with = [&](void (*change)(umf_attach_request_t *)) {
        umf_attach_request_t changed = good;
        change(&changed);
        bad.emplace_back((const char *)&changed, sizeof(changed));
    };
    with([](umf_attach_request_t *request) { request->magic++; });
    with([](umf_attach_request_t *request) { request->version = 0; });
    with([](umf_attach_request_t *request) { request->version++; });
    bad.emplace_back(std::string((const char *)&good, sizeof(good)) + "more");
    for (const std::string &bytes : bad) {
        Visit visit;
        ASSERT_TRUE(visit.is_open());
        visit.send(bytes.data(), bytes.size());
        if (visit.receive()) {
            EXPECT_EQ(visit.reply.status, (uint32_t)UMF_ATTACH_UNKNOWN);
            EXPECT_STRNE(visit.reply.text, "") << "every refusal says why";
        }
        EXPECT_FALSE(visit.receive()) << "the connection should be closed";
    }
    for (uint32_t kind : {0u, 9u, 255u, UINT32_MAX}) {
        Visit visit;
        EXPECT_EQ(visit.call(kind), UMF_ATTACH_UNKNOWN);
        EXPECT_STRNE(visit.reply.text, "");
    }
    std::mt19937 random(25);
    for (size_t i = 0; i < scaled(2000); i++) {
        umf_attach_request_t request = good;
        request.kind = (uint32_t)(1 + random() % 10);
        for (size_t at = offsetof(umf_attach_request_t, stack_depth); at < sizeof(request); at++) {
            ((char *)&request)[at] = (char)(random() % 4 ? 0 : random());
        }
        Visit visit;
        ASSERT_TRUE(visit.send(&request, sizeof(request)));
        ASSERT_TRUE(visit.receive());
    }
    Visit visit;
    EXPECT_EQ(visit.call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE);
}

size_t open_descriptors() {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

TEST_F(Attach, DescriptorsThatComeAlongAreNotTakenIn) {
    Pool pool;
    Visit warm;
    ASSERT_EQ(warm.call(UMF_ATTACH_TRIM), UMF_ATTACH_FAILED);
    size_t before = open_descriptors();
    umf_attach_request_t request = Visit::request(UMF_ATTACH_TRIM);
    for (int i = 0; i < 20; i++) {
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        iovec bytes{&request, sizeof(request)};
        msghdr message{};
        message.msg_iov = &bytes;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &warm.fd, sizeof(int));
        ASSERT_GT(sendmsg(warm.fd, &message, MSG_NOSIGNAL), 0);
        ASSERT_TRUE(warm.receive());
    }
    for (int i = 0; i < 20000 && open_descriptors() != before; i++) {
        usleep(1000); // an umfctl of another test may visit every process
    }
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Attach, OnlySoManyAtOnce) {
    Pool pool;
    std::vector<std::unique_ptr<Visit>> visits;
    for (int tries = 0; visits.size() < 8; tries++) {
        auto visit = std::make_unique<Visit>();
        int status = visit->call(UMF_ATTACH_TRIM);
        ASSERT_TRUE(status == UMF_ATTACH_FAILED || (status == UMF_ATTACH_FULL && tries < 20000));
        if (status == UMF_ATTACH_FAILED) {
            visits.push_back(std::move(visit));
        } else {
            usleep(1000); // an umfctl of another test may visit every process
        }
    }
    Visit late;
    ASSERT_TRUE(late.receive());
    EXPECT_EQ(late.reply.status, (uint32_t)UMF_ATTACH_FULL);
    EXPECT_STRNE(late.reply.text, "");
    visits.pop_back();
    /* The one that has left is noticed before the next is let in, or at the latest by its turn. */
    for (int i = 0; i < 1000; i++) {
        Visit next;
        if (next.call(UMF_ATTACH_TRIM) == UMF_ATTACH_FAILED) {
            return;
        }
    }
    FAIL() << "the place of the one that has left stays taken";
}

TEST_F(Attach, AProcessEndsWithItsFirstThread) {
    if (UMF_TEST_TSAN || UMF_TEST_ASAN) {
        GTEST_SKIP() << "sanitizers need the first thread for their own end";
    }
    int status = -1;
    std::thread([&] {
        status = status_of(in_child([] {
            umf_memory_pool_handle_t pool;
            umfPoolCreateFromText("disjoint over os", &pool);
            pthread_exit(nullptr);
            return 1;
        }));
    }).join();
    EXPECT_EQ(status, 0);
}

TEST_F(Attach, AProgramMayCloseItsDescriptors) {
    EXPECT_EQ(status_of(in_child([] {
                  Pool pool;
                  Visit visit;
                  for (int fd = 3; fd < 200; fd++) {
                      close(fd);
                  }
                  visit.fd = -1;
                  void *ptr = umfPoolMalloc(pool.handle, 10);
                  umfPoolFree(pool.handle, ptr);
                  return 0;
              })),
              0);
}

// A program ends while an inspector waits for a snapshot.
TEST_F(Attach, AnExitWaitsForNobody) {
    for (int i = 0; i < 20; i++) {
        int ends[2], go[2];
        ASSERT_EQ(pipe(ends), 0);
        ASSERT_EQ(pipe(go), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(go[1]);
            Pool pool;
            for (int n = 0; n < 20000; n++) {
                (void)!umfPoolMalloc(pool.handle, 3000);
            }
            char byte = 1;
            exit(write(ends[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 0 ? 0 : 1);
        }
        char byte;
        ASSERT_EQ(read(ends[0], &byte, 1), 1);
        Visit visit(pid);
        umf_attach_request_t request = Visit::request(UMF_ATTACH_SNAPSHOT);
        visit.send(&request, sizeof(request));
        close(go[1]);
        visit.receive();
        EXPECT_EQ(status_of(pid), 0);
        for (int fd : {ends[0], ends[1], go[0]}) {
            close(fd);
        }
    }
}

void work(umf_memory_pool_handle_t pool, unsigned seed, const std::atomic<bool> &ends) {
    std::mt19937 random(seed);
    std::vector<void *> mine(128);
    while (!ends) {
        void *&ptr = mine[random() % mine.size()];
        umfPoolFree(pool, ptr);
        ptr = umfPoolMalloc(pool, 1 + random() % 5000);
    }
    for (void *ptr : mine) {
        umfPoolFree(pool, ptr);
    }
}

// One that works until it is killed.
int work_in_child(int ready) {
    std::atomic<bool> never{false};
    Pool pools[3] = {Pool("disjoint over os"), Pool("jemalloc over os"), Pool("proxy over os")};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; i++) {
        threads.emplace_back([&, i] { work(pools[i].handle, i, never); });
    }
    char byte = 1;
    (void)!write(ready, &byte, 1);
    for (std::thread &thread : threads) {
        thread.join();
    }
    return 0;
}

// Visitors connect, send a request, and leave or are killed.
int visit_often(pid_t target, unsigned seed) {
    std::mt19937 random(seed);
    for (;;) {
        Visit visit(target);
        for (unsigned n = random() % 4; n > 0 && visit.is_open(); n--) {
            visit.call(random() % 3 ? UMF_ATTACH_FIGURES : UMF_ATTACH_SNAPSHOT);
        }
    }
    return 0;
}

// 1,000 times at full scale; the process under load notices nothing.
TEST_F(Attach, VisitorsAreKilledAtAnyTime) {
    Pool pool;
    std::atomic<bool> ends{false};
    std::thread thread([&] { work(pool.handle, 1, ends); });
    std::mt19937 random(25);
    pid_t target = getpid();
    for (size_t i = 0; i < scaled(1000); i++) {
        pid_t visitor = in_child([&] { return visit_often(target, (unsigned)i); });
        usleep((useconds_t)(random() % 5000));
        kill(visitor, SIGKILL);
        EXPECT_EQ(status_of(visitor), 1000 + SIGKILL);
    }
    ends = true;
    thread.join();
    EXPECT_EQ(Visit().call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE);
}

// The process that is looked at is killed at any time: the visitor gets the end, or has a whole
// snapshot.
TEST_F(Attach, TheProcessIsKilledAtAnyTime) {
    std::mt19937 random(26);
    for (size_t i = 0; i < scaled(1000); i++) {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        pid_t pid = in_child([&] { return work_in_child(ends[1]); });
        char byte;
        ASSERT_EQ(read(ends[0], &byte, 1), 1);
        Visit visit(pid);
        umf_attach_request_t request = Visit::request(UMF_ATTACH_SNAPSHOT);
        visit.send(&request, sizeof(request));
        usleep((useconds_t)(random() % 3000));
        kill(pid, SIGKILL);
        if (visit.receive()) {
            ASSERT_EQ(visit.reply.status, (uint32_t)UMF_ATTACH_DONE);
            EXPECT_EQ(Snapshot(visit.file()).header.pid, (uint32_t)pid);
        }
        status_of(pid);
        close(ends[0]);
        close(ends[1]);
    }
}

} // namespace
