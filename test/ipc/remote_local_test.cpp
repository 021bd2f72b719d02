// Remote memory (umf/remote.h) of processes that have no UCX: by shared memory, on one machine.
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/text.h>

#include "fakes/role.h"
#include "fakes/sum.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t SIZE = size_t{5} << 20; // several parts
constexpr const char *NO_LIBRARY = "libno_such_ucx.so";
constexpr size_t BOOT = 16; // in a handle, as src/ext/remote/own.h describes it

umf_remote_params_t params_of(const char *library) {
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    params.library = library;
    return params;
}

bool has_ucx() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find("/libucp.so") != std::string::npos) {
            return true;
        }
    }
    return false;
}

// Publishes a range of 'a', and sends its handle. Its argument is the library of UCX, or "" for
// that of the system. Ends after the second message.
int owner(Socket &socket, const std::string &library) {
    umf_remote_params_t params = params_of(library.empty() ? nullptr : library.c_str());
    umf_memory_pool_handle_t pool = nullptr;
    umf_remote_handle_t remote = nullptr;
    umf_remote_export_handle_t published = nullptr;
    std::string handle(UMF_REMOTE_HANDLE_MAX, '\0');
    size_t size = handle.size();
    EXPECT_EQ(umfPoolCreateFromText("proxy over os", &pool), OK);
    EXPECT_EQ(umfRemoteCreate(&params, &remote), OK) << umfLastErrorText();
    auto *block = static_cast<char *>(umfPoolMalloc(pool, SIZE));
    memset(block, 'a', SIZE);
    EXPECT_EQ(umfRemotePublish(remote, block, SIZE, UMF_REMOTE_GET | UMF_REMOTE_PUT, &published),
              OK);
    EXPECT_EQ(umfRemoteGetHandle(published, &handle[0], &size), OK);
    socket.send(handle.substr(0, size));
    socket.receive();
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
    EXPECT_EQ(umfFree(block), OK);
    EXPECT_EQ(umfPoolDestroy(pool), OK);
    return testing::Test::HasFailure();
}

const Roles roles = {{"owner", owner}};

class WithoutUcx : public ::testing::Test {
  protected:
    umf_remote_handle_t remote = nullptr;
    umf_remote_memory_handle_t memory = nullptr;

    void create() {
        umf_remote_params_t params = params_of(NO_LIBRARY);
        ASSERT_EQ(umfRemoteCreate(&params, &remote), OK) << umfLastErrorText();
        ASSERT_FALSE(has_ucx());
    }
    void TearDown() override {
        EXPECT_EQ(umfRemoteDestroy(remote), OK);
    }
    umf_result_t open(const std::string &handle) {
        return umfRemoteOpen(remote, handle.data(), handle.size(), &memory);
    }
    void transfer_all(const std::string &handle) {
        std::vector<char> bytes(SIZE), wanted(SIZE, 'a');
        ASSERT_EQ(open(handle), OK) << umfLastErrorText();
        ASSERT_EQ(umfRemoteGet(memory, 0, bytes.data(), SIZE, nullptr), OK) << umfLastErrorText();
        EXPECT_EQ(bytes, wanted);
        wanted.assign(SIZE, 'p');
        ASSERT_EQ(umfRemotePut(memory, 0, wanted.data(), SIZE, nullptr), OK) << umfLastErrorText();
        ASSERT_EQ(umfRemoteGet(memory, 0, bytes.data(), SIZE, nullptr), OK) << umfLastErrorText();
        EXPECT_EQ(bytes, wanted);
    }
};

} // namespace

TEST_F(WithoutUcx, ProcessesOfOneMachineUseSharedMemory) {
    create();
    Process other("owner", NO_LIBRARY);
    transfer_all(other.socket.receive());
    other.socket.send("end");
    EXPECT_EQ(other.wait(), 0);
    char byte;
    EXPECT_EQ(umfRemoteGet(memory, 0, &byte, 1, nullptr), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_GONE) << umfLastErrorText();
}

TEST_F(WithoutUcx, TheOtherSideMayHaveIt) {
    create();
    Process other("owner", "");
    transfer_all(other.socket.receive());
    other.socket.send("end");
    EXPECT_EQ(other.wait(), 0);
}

TEST_F(WithoutUcx, AnotherMachineIsNotReached) {
    create();
    Process other("owner", NO_LIBRARY);
    std::string handle = other.socket.receive();
    ASSERT_GT(handle.size(), BOOT + 8);
    std::string elsewhere = handle;
    elsewhere[BOOT] = static_cast<char>(elsewhere[BOOT] ^ 1);
    memset(&elsewhere[8], 0, 8);
    uint64_t sum = sum_of(reinterpret_cast<const unsigned char *>(elsewhere.data()), handle.size());
    memcpy(&elsewhere[8], &sum, sizeof(sum));
    EXPECT_EQ(open(elsewhere), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umfLastReason(), UMF_REASON_UNSUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("one side has no UCX"), std::string::npos)
        << umfLastErrorText();
    other.kill();
    EXPECT_EQ(open(handle), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_GONE);
    EXPECT_NE(std::string(umfLastErrorText()).find("the owner has ended"), std::string::npos)
        << umfLastErrorText();
}

TEST_F(WithoutUcx, ANetworkIsRefused) {
    umf_remote_params_t params = params_of(NO_LIBRARY);
    params.devices = "lo";
    EXPECT_EQ(umfRemoteCreate(&params, &remote), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("UCX is not here"), std::string::npos)
        << umfLastErrorText();
    params.devices = nullptr;
    params.flags = UMF_REMOTE_NETWORK_ONLY;
    EXPECT_EQ(umfRemoteCreate(&params, &remote), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_NE(std::string(umfLastErrorText()).find("UCX is not here"), std::string::npos)
        << umfLastErrorText();
}

int main(int argc, char **argv) {
    return run_role_or_tests(argc, argv, roles);
}
