/*
 * UCX called as its documentation describes it, without a header of it: members of its structures
 * are only appended, and masks say which are set. UMF_TEST_UCX names another libucp.so.0.
 */
#ifndef UMF_TEST_FAKES_RAW_UCX_H
#define UMF_TEST_FAKES_RAW_UCX_H

#include <cstdint>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace ucx {

using Status = int8_t;
struct ContextParams {
    uint64_t mask, features, rest[14];
};
struct ContextAttributes {
    uint64_t mask;
    size_t request_size;
    int thread_mode;
    uint64_t memory_types, rest[16];
};
struct WorkerParams {
    uint64_t mask;
    int thread_mode;
    uint64_t rest[32];
};
struct EndpointParams {
    uint64_t mask;
    const void *address;
    uint64_t rest[20];
};
struct MapParams {
    uint64_t mask;
    void *address;
    size_t length;
    unsigned flags, protection;
    int memory_type;
    uint64_t rest[6];
};
struct HandlerParams {
    uint64_t mask;
    unsigned id;
    uint32_t flags;
    Status (*call)(void *, const void *, size_t, void *, size_t, const void *);
    void *arg;
    uint64_t rest[4];
};
struct RequestParams {
    uint32_t mask, flags;
    uint64_t rest[20];
};
constexpr uint64_t RMA = 2, AM = 0x40;

using Transfer = void *(*)(void *, void *, size_t, uint64_t, void *, const RequestParams *);
using Check = Status (*)(void *);

// Not the result of a call that is over: a request, whose status has to be asked for.
inline bool is_request(const void *of) {
    return reinterpret_cast<uintptr_t>(of) - 1 <
           static_cast<uintptr_t>(static_cast<intptr_t>(-101));
}

// A context and a worker that allow one-sided access.
struct Raw {
    void *library = nullptr, *context = nullptr, *worker = nullptr;
    unsigned (*progress)(void *) = nullptr;

    template <typename T> T find(const char *name) const {
        void *found = dlsym(library, name);
        EXPECT_NE(found, nullptr) << name;
        return reinterpret_cast<T>(found);
    }
    bool load() {
        const char *file = getenv("UMF_TEST_UCX");
        library = dlopen(file ? file : "libucp.so.0", RTLD_NOW | RTLD_LOCAL);
        return library != nullptr;
    }
    // Transports, and the device of the network; by default TCP over the loopback device.
    bool open(const char *transports = "tcp", const char *device = "lo") {
        ContextParams params = {1, RMA | AM, {}};
        WorkerParams worker_params = {1, 0, {}};
        void *config = nullptr;
        if (!load()) {
            return false;
        }
        using Modify = Status (*)(void *, const char *, const char *);
        using Init = Status (*)(unsigned, unsigned, const ContextParams *, const void *, void **);
        auto modify = find<Modify>("ucp_config_modify");
        progress = find<unsigned (*)(void *)>("ucp_worker_progress");
        if (find<Status (*)(const char *, const char *, void **)>("ucp_config_read")(
                nullptr, nullptr, &config) != 0) {
            return false;
        }
        bool made = modify(config, "NET_DEVICES", device) == 0 &&
                    modify(config, "TLS", transports) == 0 &&
                    find<Init>("ucp_init_version")(1, 13, &params, config, &context) == 0;
        find<void (*)(void *)>("ucp_config_release")(config);
        return made && find<Status (*)(void *, const WorkerParams *, void **)>("ucp_worker_create")(
                           context, &worker_params, &worker) == 0;
    }
    // Endpoints end with it.
    void close() {
        if (worker) {
            find<void (*)(void *)>("ucp_worker_destroy")(worker);
        }
        if (context) {
            find<void (*)(void *)>("ucp_cleanup")(context);
        }
        worker = context = nullptr;
    }
    std::string address() const {
        void *bytes = nullptr;
        size_t size = 0;
        find<Status (*)(void *, void **, size_t *)>("ucp_worker_get_address")(worker, &bytes,
                                                                              &size);
        std::string copy(static_cast<char *>(bytes), size);
        find<void (*)(void *, void *)>("ucp_worker_release_address")(worker, bytes);
        return copy;
    }
    void *connect(const std::string &to) const {
        EndpointParams params = {1, to.data(), {}};
        void *endpoint = nullptr;
        auto create = find<Status (*)(void *, const EndpointParams *, void **)>("ucp_ep_create");
        return create(worker, &params, &endpoint) == 0 ? endpoint : nullptr;
    }
    // `arrived` becomes true with a message of this number.
    bool notice(unsigned id, bool *arrived) const {
        HandlerParams params = {13, id, 0, nullptr, arrived, {}};
        params.call = [](void *arg, const void *, size_t, void *, size_t, const void *) -> Status {
            *static_cast<bool *>(arg) = true;
            return 0;
        };
        return find<Status (*)(void *, const HandlerParams *)>("ucp_worker_set_am_recv_handler")(
                   worker, &params) == 0;
    }
    // NULL if UCX refuses. `type` is its number of a kind of memory; negative: it finds out.
    void *map(void *memory, size_t size, int type = -1) const {
        MapParams params = {type < 0 ? 3u : 19u, memory, size, 0, 0, type, {}};
        void *mapped = nullptr;
        auto call = find<Status (*)(void *, const MapParams *, void **)>("ucp_mem_map");
        return call(context, &params, &mapped) == 0 ? mapped : nullptr;
    }
    bool unmap(void *mapped) const {
        return find<Status (*)(void *, void *)>("ucp_mem_unmap")(context, mapped) == 0;
    }
    // The key by which the peer of an endpoint reaches mapped memory; NULL on failure.
    void *key(void *endpoint, void *mapped) const {
        void *packed = nullptr, *made = nullptr;
        size_t size = 0;
        auto pack = find<Status (*)(void *, void *, void **, size_t *)>("ucp_rkey_pack");
        auto unpack = find<Status (*)(void *, const void *, void **)>("ucp_ep_rkey_unpack");
        if (pack(context, mapped, &packed, &size) != 0) {
            return nullptr;
        }
        bool is_made = unpack(endpoint, packed, &made) == 0;
        find<void (*)(void *)>("ucp_rkey_buffer_release")(packed);
        return is_made ? made : nullptr;
    }
};

} // namespace ucx

#endif
