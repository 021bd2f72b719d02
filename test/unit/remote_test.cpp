// Contexts of remote memory leave nothing behind (src/ext/remote).
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/text.h>

extern "C" {
#include "base/meta.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;

umf_remote_handle_t make_context(unsigned flags) {
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t remote = nullptr;
    params.flags = flags;
    EXPECT_EQ(umfRemoteCreate(&params, &remote), OK) << umfLastErrorText();
    return remote;
}

// A range that was not closed ends with its context, and the connection to its owner, too.
void end_with_an_open_range(unsigned flags, const std::string &handle) {
    umf_remote_handle_t remote = make_context(flags);
    umf_remote_memory_handle_t memory = nullptr;
    EXPECT_EQ(umfRemoteOpen(remote, handle.data(), handle.size(), &memory), OK);
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
}

void check(unsigned flags) {
    constexpr size_t ROUNDS = 20;
    umf_remote_handle_t owner = make_context(flags);
    umf_memory_pool_handle_t pool = nullptr;
    umf_remote_export_handle_t published = nullptr;
    ASSERT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    void *block = umfPoolMalloc(pool, 4096);
    ASSERT_EQ(umfRemotePublish(owner, block, 4096, UMF_REMOTE_GET, &published), OK);
    std::string handle(UMF_REMOTE_HANDLE_MAX, '\0');
    size_t size = handle.size(), before = 0;
    ASSERT_EQ(umfRemoteGetHandle(published, handle.data(), &size), OK);
    handle.resize(size);
    for (size_t i = 0; i <= ROUNDS; i++) {
        end_with_an_open_range(flags, handle);
        before = i == 0 ? umf_meta_used() : before;
    }
    EXPECT_LT(umf_meta_used(), before + ROUNDS * 500); // the owner may not have ended a session
    EXPECT_EQ(umfRemoteDestroy(owner), OK);
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
}

} // namespace

TEST(Remote, AContextWithAnOpenRangeLeavesNothing) {
    char text[256];
    setenv("UCX_HANDLE_ERRORS", "none", 1);
    setenv("UCX_LOG_LEVEL", "fatal", 1);
    if (umfRemoteProbe(text, sizeof(text)) != OK) {
        GTEST_SKIP() << text;
    }
    for (unsigned flags : {0u, unsigned{UMF_REMOTE_NETWORK_ONLY}}) {
        SCOPED_TRACE(flags);
        check(flags);
    }
}
