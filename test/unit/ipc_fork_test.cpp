// IPC and fork: a child acts for itself, and blocks on no thread of its parent.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "fakes/child.h"
#include "fakes/ipc_fixture.h"

extern "C" {
#include "peer/process.h"
}

namespace {

TEST(IpcFork, AChildOfAForkSpeaksForItself) {
    FakePool p;
    char *ptr = p.alloc();
    umf_wire_t parent = decoded(handle_of(ptr));
    EXPECT_TRUE(in_child([&] {
        umf_wire_t child = decoded(handle_of(ptr));
        umf_wire_t again = decoded(handle_of(ptr + 1));
        bool ok = child.pid == static_cast<uint32_t>(getpid()) && child.pid != parent.pid &&
                  again.export_id == child.export_id && p.fake.gets == 2;
        p.free(ptr);
        return ok && p.fake.puts == 1; // its own, not its parent's
    }));
    EXPECT_EQ(decoded(handle_of(ptr)).pid, parent.pid);
    EXPECT_EQ(p.fake.gets, 1);
    p.free(ptr);
}

TEST(IpcFork, AForkDuringAGetLeavesTheChildFree) {
    FakePool p;
    char *ptr = p.alloc();
    p.fake.hold = true;
    std::thread getter(
        [&] { EXPECT_EQ(decoded(handle_of(ptr)).pid, static_cast<uint32_t>(getpid())); });
    while (p.fake.gets == 0) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(in_child([&] {
        p.fake.hold = false;
        return decoded(handle_of(ptr)).pid == static_cast<uint32_t>(getpid());
    }));
    p.fake.hold = false;
    getter.join();
    p.free(ptr);
}

TEST(IpcFork, AForkDuringAnOpenLeavesTheChildFree) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    umf_ipc_handler_handle_t handler = p.handler();
    p.fake.hold = true;
    void *opened = nullptr;
    std::thread opener([&] {
        EXPECT_EQ(umfOpenIPCHandle(handler, as_handle(handle), &opened), UMF_RESULT_SUCCESS);
    });
    while (p.fake.opens == 0) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(in_child([&] {
        p.fake.hold = false;
        void *mine = nullptr;
        bool ok = umfOpenIPCHandle(handler, as_handle(handle), &mine) == UMF_RESULT_SUCCESS &&
                  umfCloseIPCHandle(mine) == UMF_RESULT_SUCCESS;
        p.destroy_pool();
        return ok && p.fake.opens == 2 && p.fake.closes == 1;
    }));
    p.fake.hold = false;
    opener.join();
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    p.free(ptr);
}

TEST(IpcFork, AChildUsesWhatItsParentOpened) {
    FakePool p;
    char *ptr = p.alloc();
    Bytes handle = handle_of(ptr);
    umf_ipc_handler_handle_t handler = p.handler();
    void *opened = nullptr;
    ASSERT_EQ(umfOpenIPCHandle(handler, as_handle(handle), &opened), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(in_child([&] {
        void *again = nullptr;
        bool ok = umfOpenIPCHandle(handler, as_handle(handle), &again) == UMF_RESULT_SUCCESS &&
                  again == opened && p.fake.opens == 1;
        p.destroy_pool();
        return ok && p.fake.closes == 1;
    }));
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    p.free(ptr);
}

TEST(IpcFork, AChildKnowsThatItIsAnother) {
    umf_process_t parent = {};
    umf_process_self(&parent);
    pid_t child = fork();
    if (child == 0) {
        umf_process_t process = {};
        umf_process_self(&process);
        bool ok = umf_process_pid() == static_cast<uint32_t>(getpid()) &&
                  process.pid == static_cast<uint32_t>(getpid()) && process.pid != parent.pid &&
                  process.start_time != 0 && umf_process_check(&process) == UMF_RESULT_SUCCESS &&
                  umf_process_check(&parent) == UMF_RESULT_SUCCESS;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(umf_process_pid(), parent.pid);
}

} // namespace
