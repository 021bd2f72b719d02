/* Remote memory in tests: contexts, and the main function of programs that test them. */
#ifndef UMF_TEST_FAKES_REMOTE_RANGE_H
#define UMF_TEST_FAKES_REMOTE_RANGE_H

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <sys/wait.h>

#include <umf/remote.h>

#include "fakes/role.h"
#include "fakes/threads.h"

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t LOST = UMF_RESULT_ERROR_OUT_OF_RESOURCES;
constexpr size_t MiB = size_t{1} << 20;

// Both sides are on one machine: by UCX, or by socket and shared memory.
inline bool is_local = false;

inline umf_remote_handle_t make_context(uint64_t deadline_ms, const char *key_file = nullptr,
                                        size_t limit_requests = 0) {
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t remote = nullptr;
    params.deadline_ms = deadline_ms;
    params.key_file = key_file;
    params.limit_requests = limit_requests;
    params.library = getenv("UMF_TEST_UCX"); // a file; else the library of the system
    params.flags = is_local ? 0 : UMF_REMOTE_NETWORK_ONLY;
    const std::vector<int> blocked = blocked_signals();
    EXPECT_EQ(umfRemoteCreate(&params, &remote), OK);
    EXPECT_EQ(blocked_signals(), blocked);
    return remote;
}

inline std::string bytes_of(umf_remote_export_handle_t published) {
    std::string bytes(UMF_REMOTE_HANDLE_MAX, '\0');
    size_t size = bytes.size();
    EXPECT_EQ(umfRemoteGetHandle(published, &bytes[0], &size), OK);
    bytes.resize(size);
    return bytes;
}

inline bool is_all(const std::vector<char> &bytes, char value) {
    return bytes.empty() ||
           (bytes[0] == value && memcmp(&bytes[0], &bytes[0] + 1, bytes.size() - 1) == 0);
}

// A child has stopped when this returns: a signal alone lets it go on for a moment.
inline void stop(pid_t child) {
    siginfo_t info = {};
    ASSERT_EQ(::kill(child, SIGSTOP), 0);
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WSTOPPED), 0);
}

inline int run_remote_tests(int argc, char **argv, const Roles &roles) {
    int status;
    setenv("UCX_HANDLE_ERRORS", "none", 1); // its signal handlers
    setenv("UCX_LOG_LEVEL", "fatal", 1);
    if (run_role(argc, argv, roles, &status)) {
        return status;
    }
    char text[256];
    if (!getenv("UMF_TEST_UCX") && umfRemoteProbe(text, sizeof(text)) != OK) {
        puts(text);
        return 77;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}

#endif
