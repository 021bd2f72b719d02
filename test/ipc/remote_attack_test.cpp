// A peer that reads and writes memory of another process by one-sided requests of UCX, without a
// word of ours: it succeeds where the other side allows such access, and is dropped by a context of
// umf/remote.h. UCX is called as its documentation describes it.
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/remote.h>
#include <umf/text.h>

#include "fakes/raw_ucx.h"
#include "fakes/remote_range.h"
#include "fakes/role.h"
#include "fakes/shared_bytes.h"

namespace {

constexpr size_t SIZE = MiB;

using ucx::Raw;

// --- the other processes ------------------------------------------------------------------------

// Answers: where its memory is, and the address of its worker. Progresses until it is asked for the
// content.
int victim(Socket &socket, const std::string &) {
    static char memory[SIZE];
    Raw raw;
    memset(memory, 'v', SIZE);
    if (!raw.open()) {
        return 1;
    }
    socket.send(std::to_string(reinterpret_cast<uintptr_t>(memory)) + " " + raw.address());
    for (std::string command; command.empty();) {
        raw.progress(raw.worker);
        char letter;
        ssize_t got = recv(socket.get(), &letter, 1, MSG_DONTWAIT);
        command = got == 1 ? "read" : "";
        if (got == 0) {
            return 0;
        }
    }
    volatile char first = memory[0]; // UCX has written it
    socket.send(std::string(1, first));
    return 0;
}

// An owner of ours. The address of UCX lies at the end of the handle.
int owner(Socket &socket, const std::string &) {
    umf_memory_pool_handle_t pool = nullptr;
    umf_remote_export_handle_t published = nullptr;
    umf_remote_handle_t remote = make_context(20000);
    if (!remote || umfPoolCreateFromText("disjoint over os", &pool) != OK) {
        return 1;
    }
    char *block = static_cast<char *>(umfPoolMalloc(pool, SIZE));
    memset(block, 'v', SIZE);
    if (umfRemotePublish(remote, block, SIZE, UMF_REMOTE_GET | UMF_REMOTE_PUT, &published) != OK) {
        return 2;
    }
    socket.send(std::to_string(reinterpret_cast<uintptr_t>(block)) + " " + bytes_of(published));
    while (!socket.receive().empty()) {
        socket.send(read_shared(block, 1));
    }
    return 0;
}

// Sends a put and a get to "<place> <address of UCX>", and progresses until both are done or it is
// asked. Answers: "sent", then whether the get has got the content.
int attacker(Socket &socket, const std::string &) {
    static char own[SIZE], got[SIZE];
    std::string target = socket.receive();
    uint64_t place = std::stoull(target);
    std::string address = target.substr(target.find(' ') + 1);
    address.resize(1024); // UCX knows its length
    Raw raw;
    if (!raw.open()) {
        return 1;
    }
    void *memory = raw.map(own, SIZE), *endpoint = raw.connect(address);
    memset(own, 'w', SIZE);
    void *key = memory && endpoint ? raw.key(endpoint, memory) : nullptr;
    if (!key) {
        return 2;
    }
    // The key is of memory of its own: without a card nobody compares it.
    ucx::RequestParams none = {};
    void *put = raw.find<ucx::Transfer>("ucp_put_nbx")(endpoint, own, SIZE, place, key, &none);
    void *get = raw.find<ucx::Transfer>("ucp_get_nbx")(endpoint, got, SIZE, place, key, &none);
    auto status = raw.find<ucx::Check>("ucp_request_check_status");
    (void)put;
    for (bool is_done = false; !is_done;) {
        raw.progress(raw.worker);
        char letter;
        is_done = (!ucx::is_request(get) || status(get) != 1) ||
                  recv(socket.get(), &letter, 1, MSG_DONTWAIT) >= 0;
    }
    volatile char first = got[0];
    socket.send(std::string(1, first ? first : '0'));
    socket.receive();
    return 0;
}

const Roles roles = {{"victim", victim}, {"owner", owner}, {"attacker", attacker}};

} // namespace

// What the second test is about: the same requests reach memory where one-sided access is on.
TEST(OneSided, SucceedsWhereItIsAllowed) {
    Process target("victim", ""), attack("attacker", "");
    std::string about = target.socket.receive();
    ASSERT_GT(about.size(), 30u);
    ASSERT_EQ(attack.socket.call(about), "w");
    EXPECT_EQ(target.socket.call("read"), "w");
}

TEST(OneSided, IsDroppedByAContext) {
    constexpr size_t HEAD = 88; // of a handle, before the address of UCX
    Process target("owner", ""), attack("attacker", "");
    std::string about = target.socket.receive();
    ASSERT_GT(about.size(), HEAD + 30);
    std::string place = about.substr(0, about.find(' ') + 1), handle = about.substr(place.size());
    ASSERT_TRUE(attack.socket.send(place + handle.substr(HEAD)));
    umf_remote_handle_t remote = make_context(20000); // by UCX, meanwhile
    umf_remote_memory_handle_t memory = nullptr;
    std::vector<char> bytes(SIZE);
    for (int i = 0; i < 30; i++) {
        ASSERT_EQ(umfRemoteOpen(remote, handle.data(), handle.size(), &memory), OK) << i;
        ASSERT_EQ(umfRemoteGet(memory, 0, bytes.data(), SIZE, nullptr), OK) << i;
        ASSERT_TRUE(is_all(bytes, 'v')) << i;
        ASSERT_EQ(umfRemoteClose(memory), OK);
    }
    EXPECT_EQ(attack.socket.call("stop"), "0") << "the get has got content";
    EXPECT_EQ(target.socket.call("read"), "v");
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
}

int main(int argc, char **argv) {
    return run_remote_tests(argc, argv, roles);
}
