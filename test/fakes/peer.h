/*
 * Processes that share memory: each peer owns a pool made from text and obeys requests, be it
 * producer or consumer. What travels between peers are the bytes of handles, nothing else.
 *
 *     class Servant : public PoolServant { ... special features of this memory ... };
 *     int serve(Socket &socket, const std::string &text) { return Servant(socket, text).run(); }
 *     const Roles roles = {{"peer", serve<>}};
 *
 *     PoolPeer producer("peer", "proxy over os:visibility=shared"), consumer(...);
 *     producer.alloc(0, size);
 *     consumer.open(0, producer.get(0));
 */
#ifndef UMF_TEST_FAKES_PEER_H
#define UMF_TEST_FAKES_PEER_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/text.h>

#include "fakes/content.h"
#include "fakes/descriptors.h"
#include "fakes/fork_at_rest.h"
#include "fakes/handle.h"
#include "fakes/role.h"

struct Op {
    enum : uint32_t {
        Alloc,       // a: size -> value: address
        Free,        // slot
        Recycle,     // slot, a: size -> value: 1 if another allocation has its address now
        Fill,        // slot, a: size, b: seed
        Check,       // slot, a: size, b: seed -> value: 1 if it is what Fill wrote
        Get,         // slot, a: offset -> bytes
        Open,        // bytes -> value: address
        Close,       // slot, a: added to the address
        RawGet,      // slot, a: size -> bytes of the provider
        RawPut,      // bytes of the provider
        RawOpen,     // bytes of the provider -> value: address
        RawClose,    // slot, a: size
        Forget,      // destroys the pool
        Anew,        // destroys the pool and makes it again
        Descriptors, // -> value: open descriptors
        Mappings,    // -> value: shared mappings
        Alive,       // -> value: live objects in the software driver
        Fail, // a: the n-th next call of the software driver fails -> value: failures to come
        Fork, // the peer goes on in a child; a: 1: the parent ends, 0: it waits for the child
        Quit,
        Own, // further operations of a test begin here
    };
};

struct Request {
    uint32_t op;
    uint32_t slot; // where the peer keeps the address
    uint64_t a, b;
    uint32_t size;
    unsigned char bytes[2048];
};

struct Reply {
    int32_t result;
    uint32_t size;
    uint64_t value;
    unsigned char bytes[2048];

    void set(const void *data, size_t length) {
        auto first = static_cast<const unsigned char *>(data);
        size = static_cast<uint32_t>(std::min(length, sizeof(bytes)));
        std::copy(first, first + size, bytes);
    }
};

template <class T> std::string message_of(const T &made) {
    return std::string(reinterpret_cast<const char *>(&made), sizeof(made));
}

template <class T> bool read_message(const std::string &message, T *made) {
    bool is_one = message.size() == sizeof(*made);
    memcpy(made, message.data(), is_one ? sizeof(*made) : 0);
    return is_one;
}

// --- the peer ---

class PoolServant {
  protected:
    Socket &socket;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    std::vector<char *> slots = std::vector<char *>(20000);

    // Where the CPU may not touch the memory.
    virtual bool write(void *to, const Bytes &content) {
        memcpy(to, content.data(), content.size());
        return true;
    }
    virtual bool read(const void *from, Bytes &content) {
        memcpy(content.data(), from, content.size());
        return true;
    }

    // Of the software driver, where there is one.
    virtual uint64_t alive() {
        return 0;
    }
    virtual uint64_t fail_at(long) {
        return 0;
    }

    virtual umf_result_t serve_own(const Request &, Reply &) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }

    static Bytes bytes_of(const Request &request) {
        return Bytes(request.bytes, request.bytes + request.size);
    }

    umf_result_t open(const Request &request, void **ptr) {
        return open_handle(handler, bytes_of(request), ptr);
    }

    umf_result_t keep(const Request &request, Reply &reply, void *ptr, umf_result_t result) {
        slots[request.slot] = static_cast<char *>(ptr);
        reply.value = reinterpret_cast<uintptr_t>(ptr);
        return result;
    }

    umf_result_t create() {
        umf_result_t result = umfPoolCreateFromText(text.c_str(), &pool);
        if (result != UMF_RESULT_SUCCESS) {
            fprintf(stderr, "%s: not created: %s\n", text.c_str(), umfTextError());
            return result;
        }
        umfPoolGetMemoryProvider(pool, &provider);
        return umfPoolGetIPCHandler(pool, &handler);
    }

    umf_result_t destroy() {
        umf_result_t result = pool ? umfPoolDestroy(pool) : UMF_RESULT_SUCCESS;
        pool = nullptr;
        return result;
    }

  private:
    const std::string text;

    umf_result_t alloc(const Request &request, Reply &reply) {
        void *ptr = umfPoolMalloc(pool, request.a);
        return keep(request, reply, ptr,
                    ptr ? UMF_RESULT_SUCCESS : umfPoolGetLastAllocationError(pool));
    }

    // Frees, and allocates until the address comes again.
    bool recycle(const Request &request) {
        std::vector<void *> others;
        char *&slot = slots[request.slot];
        umfFree(slot);
        for (int i = 0; i < 100; i++) {
            void *ptr = umfPoolMalloc(pool, request.a);
            if (ptr == slot) {
                break;
            }
            others.push_back(ptr);
        }
        std::for_each(others.begin(), others.end(), umfFree);
        return others.size() < 100;
    }

    umf_result_t fill_slot(const Request &request) {
        Bytes content(request.a);
        fill(content.data(), content.size(), request.b);
        return write(slots[request.slot], content) ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_UNKNOWN;
    }

    bool check_slot(const Request &request) {
        Bytes content(request.a);
        return read(slots[request.slot], content) &&
               is_filled(content.data(), content.size(), request.b);
    }

    umf_result_t get(const Request &request, Reply &reply) {
        Bytes bytes;
        umf_result_t result = get_handle(slots[request.slot] + request.a, &bytes);
        reply.set(bytes.data(), bytes.size());
        return result;
    }

    umf_result_t raw_get(const Request &request, Reply &reply) {
        size_t size = 0;
        umf_result_t result = umfMemoryProviderGetIPCHandleSize(provider, &size);
        reply.size = static_cast<uint32_t>(size);
        return result == UMF_RESULT_SUCCESS
                   ? umfMemoryProviderGetIPCHandle(provider, slots[request.slot], request.a,
                                                   reply.bytes)
                   : result;
    }

    umf_result_t raw_open(const Request &request, Reply &reply) {
        auto copy = aligned_copy(bytes_of(request));
        void *ptr = nullptr;
        umf_result_t result = umfMemoryProviderOpenIPCHandle(provider, copy.data(), &ptr);
        return keep(request, reply, ptr, result);
    }

    umf_result_t serve_raw(Request &request, Reply &reply) {
        switch (request.op) {
        case Op::RawGet:
            return raw_get(request, reply);
        case Op::RawPut:
            return umfMemoryProviderPutIPCHandle(provider, request.bytes);
        case Op::RawOpen:
            return raw_open(request, reply);
        case Op::RawClose:
            return umfMemoryProviderCloseIPCHandle(provider, slots[request.slot], request.a);
        default:
            return serve_own(request, reply);
        }
    }

    umf_result_t serve_process(Request &request, Reply &reply) {
        switch (request.op) {
        case Op::Descriptors:
            wait_for_rest(); // the broker closes connections that have ended
            reply.value = count_open_descriptors();
            return UMF_RESULT_SUCCESS;
        case Op::Mappings:
            reply.value = count_shared_mappings();
            return UMF_RESULT_SUCCESS;
        case Op::Alive:
            reply.value = alive();
            return UMF_RESULT_SUCCESS;
        case Op::Fail:
            reply.value = fail_at(static_cast<long>(request.a));
            return UMF_RESULT_SUCCESS;
        case Op::Fork:
            go_on_in_a_child(request.a == 1);
            return UMF_RESULT_SUCCESS;
        default:
            return serve_raw(request, reply);
        }
    }

    umf_result_t serve(Request &request, Reply &reply) {
        void *ptr = nullptr;
        umf_result_t result;
        switch (request.op) {
        case Op::Alloc:
            return alloc(request, reply);
        case Op::Free:
            return umfFree(slots[request.slot]);
        case Op::Recycle:
            reply.value = recycle(request);
            return UMF_RESULT_SUCCESS;
        case Op::Fill:
            return fill_slot(request);
        case Op::Check:
            reply.value = check_slot(request);
            return UMF_RESULT_SUCCESS;
        case Op::Get:
            return get(request, reply);
        case Op::Open:
            result = open(request, &ptr);
            return keep(request, reply, ptr, result);
        case Op::Close:
            return umfCloseIPCHandle(slots[request.slot] + request.a);
        case Op::Forget:
            return destroy();
        case Op::Anew:
            destroy();
            return create();
        default:
            return serve_process(request, reply);
        }
    }

  public:
    // A servant makes its pool when it has made what that needs.
    PoolServant(Socket &of_test, const std::string &pool_text) : socket(of_test), text(pool_text) {}
    virtual ~PoolServant() = default;
    PoolServant(const PoolServant &) = delete;
    PoolServant &operator=(const PoolServant &) = delete;

    // Until the test is gone or wants the end.
    int run() {
        create();
        Request request;
        while (read_message(socket.receive(), &request)) {
            if (request.op == Op::Quit) {
                return destroy() == UMF_RESULT_SUCCESS ? 0 : 1;
            }
            Reply reply = {};
            reply.result = serve(request, reply);
            socket.send(message_of(reply));
        }
        return 0;
    }
};

// The role of a servant that needs nothing but the text of its pool.
template <class Servant = PoolServant> int serve(Socket &socket, const std::string &text) {
    return Servant(socket, text).run();
}

// --- the test's side ---

class PoolPeer : public Process {
  protected:
    static Request request_of(uint32_t op, uint32_t slot = 0, uint64_t a = 0, uint64_t b = 0,
                              const Bytes &bytes = {}) {
        Request request = {};
        request.op = op;
        request.slot = slot;
        request.a = a;
        request.b = b;
        request.size = static_cast<uint32_t>(bytes.size());
        std::copy(bytes.begin(), bytes.end(), request.bytes);
        return request;
    }

    Reply call(uint32_t op, uint32_t slot = 0, uint64_t a = 0, uint64_t b = 0,
               const Bytes &bytes = {}) {
        Reply reply = {};
        if (!read_message(socket.call(message_of(request_of(op, slot, a, b, bytes))), &reply)) {
            reply.result = -1; // the peer is gone: it crashed
        }
        return reply;
    }

    static umf_result_t result_of(const Reply &reply) {
        EXPECT_GE(reply.result, 0) << "the peer has crashed";
        return static_cast<umf_result_t>(reply.result);
    }
    static uint64_t value_of(const Reply &reply) {
        EXPECT_EQ(reply.result, UMF_RESULT_SUCCESS);
        return reply.value;
    }
    static Bytes bytes_of(const Reply &reply) {
        EXPECT_EQ(reply.result, UMF_RESULT_SUCCESS);
        return Bytes(reply.bytes, reply.bytes + reply.size);
    }

    void end(int status_wanted) {
        EXPECT_EQ(wait(), status_wanted);
        socket.close();
    }

  public:
    PoolPeer(const std::string &role, const std::string &text) : Process(role, text) {
        EXPECT_NE(pid, -1);
    }
    // See Process: it may not be there.
    PoolPeer(pid_t wanted, const std::string &role, const std::string &text)
        : Process(wanted, role, text) {}
    // The peer fails, too, if its pool does, or its driver finds something alive at the end.
    ~PoolPeer() {
        if (pid != -1) {
            quit();
        }
    }

    void quit() {
        socket.send(message_of(request_of(Op::Quit)));
        end(0);
    }
    void kill() {
        ::kill(pid, SIGKILL);
        end(SIGKILL);
    }

    uint64_t alloc(uint32_t slot, size_t size) {
        return value_of(call(Op::Alloc, slot, size));
    }
    umf_result_t try_alloc(uint32_t slot, size_t size) {
        return result_of(call(Op::Alloc, slot, size));
    }
    void free(uint32_t slot) {
        EXPECT_EQ(result_of(call(Op::Free, slot)), UMF_RESULT_SUCCESS);
    }
    // Puts other memory in the place of an allocation, whose handle `with` has seen before.
    template <class With> void recycle(uint32_t slot, size_t size, With with) {
        for (int tries = 0; tries < 10; tries++) {
            with(get(slot));
            if (value_of(call(Op::Recycle, slot, size)) == 1) {
                return;
            }
            alloc(slot, size); // something else took the place: then with another one
        }
        ADD_FAILURE() << "the address did not come back";
    }
    void fill(uint32_t slot, size_t size, uint64_t seed) {
        value_of(call(Op::Fill, slot, size, seed));
    }
    bool check(uint32_t slot, size_t size, uint64_t seed) {
        return value_of(call(Op::Check, slot, size, seed)) == 1;
    }
    Bytes get(uint32_t slot, size_t offset = 0) {
        return bytes_of(call(Op::Get, slot, offset));
    }
    umf_result_t try_get(uint32_t slot) {
        return result_of(call(Op::Get, slot));
    }
    uint64_t open(uint32_t slot, const Bytes &handle) {
        return value_of(call(Op::Open, slot, 0, 0, handle));
    }
    umf_result_t try_open(uint32_t slot, const Bytes &handle) {
        return result_of(call(Op::Open, slot, 0, 0, handle));
    }
    umf_result_t close(uint32_t slot, size_t added = 0) {
        return result_of(call(Op::Close, slot, added));
    }
    Bytes raw_get(uint32_t slot, size_t size) {
        return bytes_of(call(Op::RawGet, slot, size));
    }
    umf_result_t raw_put(const Bytes &data) {
        return result_of(call(Op::RawPut, 0, 0, 0, data));
    }
    umf_result_t raw_open(uint32_t slot, const Bytes &data) {
        return result_of(call(Op::RawOpen, slot, 0, 0, data));
    }
    umf_result_t raw_close(uint32_t slot, size_t size) {
        return result_of(call(Op::RawClose, slot, size));
    }
    void forget() {
        EXPECT_EQ(result_of(call(Op::Forget)), UMF_RESULT_SUCCESS);
    }
    void anew() {
        value_of(call(Op::Anew));
    }
    void go_on_in_a_child(bool parent_ends = false) {
        value_of(call(Op::Fork, 0, parent_ends));
    }
    uint64_t descriptors() {
        return value_of(call(Op::Descriptors));
    }
    uint64_t mappings() {
        return value_of(call(Op::Mappings));
    }
    uint64_t alive() {
        return value_of(call(Op::Alive));
    }
    // The n-th next call fails. Tells whether the last one that was to fail did.
    bool fail_at(uint64_t n) {
        return value_of(call(Op::Fail, 0, n)) == 0;
    }
};

// --- what holds of every kind of memory ---

// Each sees writes of the other.
inline void expect_content_goes_both_ways(PoolPeer &producer, PoolPeer &consumer, size_t size) {
    producer.alloc(0, size);
    producer.fill(0, size, 1);
    consumer.open(0, producer.get(0));
    EXPECT_TRUE(consumer.check(0, size, 1));
    consumer.fill(0, size, 2);
    EXPECT_TRUE(producer.check(0, size, 2));
    EXPECT_EQ(consumer.close(0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(consumer.close(0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_TRUE(producer.check(0, size, 2));
    producer.free(0);
}

// The producer can open its own memory, at another address.
inline void expect_opens_in_the_producer(PoolPeer &producer, size_t size) {
    uint64_t address = producer.alloc(0, size);
    producer.fill(0, size, 1);
    EXPECT_NE(producer.open(1, producer.get(0)), address);
    EXPECT_TRUE(producer.check(1, size, 1));
    producer.fill(1, size, 2);
    EXPECT_TRUE(producer.check(0, size, 2));
    EXPECT_EQ(producer.close(1), UMF_RESULT_SUCCESS);
    EXPECT_EQ(producer.close(0), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    producer.free(0);
}

// Memory that was freed before; the handle stays for what comes next.
inline Bytes expect_freed_memory_is_refused(PoolPeer &producer, PoolPeer &consumer, size_t size) {
    producer.alloc(0, size);
    Bytes handle = producer.get(0);
    producer.free(0);
    EXPECT_EQ(consumer.try_open(0, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(producer.try_open(1, handle), UMF_RESULT_ERROR_INVALID_ARGUMENT) << "in itself too";
    return handle;
}

#endif
