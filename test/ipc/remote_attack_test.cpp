// A peer that reads and writes memory of another process by one-sided requests of UCX, without a
// word of ours: it succeeds where the other side allows such access, and is dropped by a context of
// umf/remote.h. And an owner that never answers. UCX is called as its documentation describes it.
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/reason.h>
#include <umf/remote.h>
#include <umf/text.h>

#include "fakes/descriptors.h"
#include "fakes/raw_ucx.h"
#include "fakes/remote_range.h"
#include "fakes/role.h"
#include "fakes/shared_bytes.h"
#include "fakes/sum.h"

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

// Answers its address, and "greeted" after a message, and says nothing to others. Progresses until
// its socket is closed.
int silent(Socket &socket, const std::string &) {
    Raw raw;
    bool is_greeted = false;
    if (!raw.open() || !raw.notice(1, &is_greeted)) {
        return 1;
    }
    socket.send(raw.address());
    char letter;
    while (recv(socket.get(), &letter, 1, MSG_DONTWAIT) != 0) {
        bool before = is_greeted;
        raw.progress(raw.worker);
        if (is_greeted && !before) {
            socket.send("greeted");
        }
    }
    return 0;
}

const Roles roles = {
    {"victim", victim}, {"owner", owner}, {"attacker", attacker}, {"silent", silent}};

constexpr size_t HEAD = 88, LENGTH = 6, CHECK = 8, ADDRESS_LENGTH = 84; // of a handle

// The handle with another address of UCX.
std::string at_address(const std::string &handle, const std::string &address) {
    std::string forged = handle.substr(0, HEAD) + address;
    uint16_t length = static_cast<uint16_t>(forged.size());
    uint32_t address_length = static_cast<uint32_t>(address.size());
    memcpy(&forged[LENGTH], &length, sizeof(length));
    memcpy(&forged[ADDRESS_LENGTH], &address_length, sizeof(address_length));
    memset(&forged[CHECK], 0, 8);
    uint64_t sum = sum_of(reinterpret_cast<const unsigned char *>(forged.data()), forged.size());
    memcpy(&forged[CHECK], &sum, sizeof(sum));
    return forged;
}

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

// UCX has connected, and the greeting is there. What the owner's UCX asks then is answered before
// the connection ends; without an answer of the owner it ends with its deadline.
TEST(Greeting, OfACanceledOpenIsNotCutOff) {
    Process target("owner", ""), other("silent", "");
    std::string about = target.socket.receive(), address = other.socket.receive();
    ASSERT_GT(about.size(), HEAD + 30);
    const std::string handle = at_address(about.substr(about.find(' ') + 1), address);
    umf_remote_handle_t remote = make_context(6000);
    umf_remote_memory_handle_t memory = nullptr;
    const size_t before = count_open_descriptors();
    auto is_greeted = [](void *socket) -> int {
        return !static_cast<Socket *>(socket)->receive(MSG_DONTWAIT).empty();
    };
    ASSERT_EQ(umfRemoteOpenUntil(remote, handle.data(), handle.size(), is_greeted, &other.socket,
                                 &memory),
              UMF_RESULT_ERROR_USER_SPECIFIC)
        << umfLastErrorText();
    usleep(2500000); // its thread has looked at it
    EXPECT_GT(count_open_descriptors(), before) << "the connection has ended";
    for (int i = 0; i < 300 && count_open_descriptors() > before; i++) {
        usleep(100000);
    }
    EXPECT_EQ(count_open_descriptors(), before) << "it has no end";
    EXPECT_EQ(umfRemoteDestroy(remote), OK);
}

int main(int argc, char **argv) {
    return run_remote_tests(argc, argv, roles);
}
