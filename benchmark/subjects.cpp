// Measured subjects: the library's pools over providers, and the peers it is compared with.
#include "bench.h"

#include <umf/plugin.h>
#include <umf/pools/pool_coalescing.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_jemalloc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/pools/pool_scalable.h>
#include <umf/providers/provider_file_memory.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/providers/provider_os_memory.h>
#include <umf/queue.h>
#include <umf/text.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace bench {

const char *const not_built_in = "not built into this libumf";

namespace {

constexpr size_t HUGE_PAGE = size_t{2} << 20;

size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

// --- a provider as a user would write it
// --------------------------------------------------------------

// Cuts allocations from chunks of mmap and keeps what comes back on lists by size; nothing is
// joined.
struct Chunks {
    std::mutex mutex;
    std::map<size_t, std::vector<void *>> free_by_size;
    std::vector<std::pair<void *, size_t>> maps;
    char *top = nullptr, *end = nullptr;
    std::atomic<uint64_t> *calls = nullptr;

    ~Chunks() {
        for (const auto &map : maps) {
            munmap(map.first, map.second);
        }
    }

    void *take_free(size_t size, size_t alignment) {
        std::vector<void *> &list = free_by_size[size];
        for (size_t i = list.size(); i-- > 0;) {
            void *ptr = list[i];
            if (reinterpret_cast<uintptr_t>(ptr) % alignment == 0) {
                list[i] = list.back();
                list.pop_back();
                return ptr;
            }
        }
        return nullptr;
    }

    bool grow(size_t size) {
        const size_t length = round_up(std::max(size, size_t{64} << 20), HUGE_PAGE) + HUGE_PAGE;
        void *map = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED) {
            return false;
        }
        maps.emplace_back(map, length);
        // Whole pages of 2 MiB: the place of a block in 64 KiB decides how many levels of the map a
        // free reads.
        const uintptr_t base = reinterpret_cast<uintptr_t>(map);
        top = reinterpret_cast<char *>(round_up(base, HUGE_PAGE));
        end = static_cast<char *>(map) + length;
        return true;
    }

    void *cut(size_t size, size_t alignment) {
        const uintptr_t at = round_up(reinterpret_cast<uintptr_t>(top), alignment);
        if (!top || at + size > reinterpret_cast<uintptr_t>(end)) {
            return nullptr;
        }
        top = reinterpret_cast<char *>(at + size);
        return reinterpret_cast<void *>(at);
    }

    void *alloc(size_t size, size_t alignment) {
        size = round_up(size, 4096);
        alignment = std::max(alignment, size_t{4096});
        std::lock_guard<std::mutex> lock(mutex);
        void *ptr = take_free(size, alignment);
        if (!ptr) {
            ptr = cut(size, alignment);
        }
        if (!ptr && grow(size + alignment)) {
            ptr = cut(size, alignment);
        }
        return ptr;
    }

    void free(void *ptr, size_t size) {
        std::lock_guard<std::mutex> lock(mutex);
        free_by_size[round_up(size, 4096)].push_back(ptr);
    }
};

umf_result_t chunks_initialize(const void *params, void **provider) {
    Chunks *chunks = new Chunks;
    chunks->calls = static_cast<std::atomic<uint64_t> *>(const_cast<void *>(params));
    *provider = chunks;
    return UMF_RESULT_SUCCESS;
}

umf_result_t chunks_finalize(void *provider) {
    delete static_cast<Chunks *>(provider);
    return UMF_RESULT_SUCCESS;
}

umf_result_t chunks_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    Chunks *chunks = static_cast<Chunks *>(provider);
    chunks->calls->fetch_add(1, std::memory_order_relaxed);
    void *result = size ? chunks->alloc(size, alignment) : nullptr;
    if (!result) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *ptr = result;
    return UMF_RESULT_SUCCESS;
}

umf_result_t chunks_free(void *provider, void *ptr, size_t size) {
    Chunks *chunks = static_cast<Chunks *>(provider);
    chunks->calls->fetch_add(1, std::memory_order_relaxed);
    chunks->free(ptr, size);
    return UMF_RESULT_SUCCESS;
}

umf_result_t chunks_split(void *, void *, size_t, size_t) {
    return UMF_RESULT_SUCCESS;
}

umf_result_t chunks_merge(void *, void *, void *, size_t) {
    return UMF_RESULT_SUCCESS;
}

umf_result_t user_native_error(void *, const char **message, int32_t *error) {
    *message = "";
    *error = 0;
    return UMF_RESULT_SUCCESS;
}

umf_result_t user_page_size(void *, size_t, size_t *size) {
    *size = 4096;
    return UMF_RESULT_SUCCESS;
}

umf_result_t user_min_page_size(void *, const void *, size_t *size) {
    *size = 4096;
    return UMF_RESULT_SUCCESS;
}

umf_result_t user_cache_line_size(void *, size_t *size) {
    *size = 64;
    return UMF_RESULT_SUCCESS;
}

umf_result_t user_name(void *, const char **name) {
    *name = "bench";
    return UMF_RESULT_SUCCESS;
}

umf_memory_provider_ops_t user_provider_ops() {
    umf_memory_provider_ops_t ops = {};
    ops.version = UMF_PROVIDER_OPS_VERSION_CURRENT;
    ops.get_last_native_error = user_native_error;
    ops.get_recommended_page_size = user_page_size;
    ops.get_min_page_size = user_min_page_size;
    ops.get_cache_line_size = user_cache_line_size;
    ops.get_name = user_name;
    ops.ext_allocation_split = chunks_split;
    ops.ext_allocation_merge = chunks_merge;
    return ops;
}

// --- addresses without memory
// -------------------------------------------------------------------------

// Hands out pieces of a reserved range without access. The newest piece can be taken back.
struct Reserve {
    char *base;
    size_t size;
    std::atomic<size_t> used;
};

umf_result_t reserve_initialize(const void *, void **provider) {
    const size_t size = size_t{16} << 40;
    for (size_t n = size; n >= (size_t{1} << 30); n /= 2) {
        void *map = mmap(nullptr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map != MAP_FAILED) {
            *provider = new Reserve{static_cast<char *>(map), n, {}};
            return UMF_RESULT_SUCCESS;
        }
    }
    return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

umf_result_t reserve_finalize(void *provider) {
    Reserve *reserve = static_cast<Reserve *>(provider);
    munmap(reserve->base, reserve->size);
    delete reserve;
    return UMF_RESULT_SUCCESS;
}

umf_result_t reserve_alloc(void *provider, size_t size, size_t alignment, void **ptr) {
    Reserve *reserve = static_cast<Reserve *>(provider);
    alignment = std::max(alignment, size >= HUGE_PAGE ? HUGE_PAGE : size_t{4096});
    size_t used = reserve->used.load();
    size_t at;
    do {
        const uintptr_t base = reinterpret_cast<uintptr_t>(reserve->base);
        at = round_up(base + used, alignment) - base;
        if (size == 0 || at + size > reserve->size) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
    } while (!reserve->used.compare_exchange_weak(used, at + round_up(size, 4096)));
    *ptr = reserve->base + at;
    return UMF_RESULT_SUCCESS;
}

umf_result_t reserve_free(void *provider, void *ptr, size_t size) {
    Reserve *reserve = static_cast<Reserve *>(provider);
    const size_t at = static_cast<size_t>(static_cast<char *>(ptr) - reserve->base);
    size_t end = at + round_up(size, 4096);
    reserve->used.compare_exchange_strong(end, at);
    return UMF_RESULT_SUCCESS;
}

// The first free one of 64 pieces of 2 MiB, next to no work: what remains is the cost of recording
// it. `used` is a map of them.
umf_result_t null_alloc(void *provider, size_t, size_t, void **ptr) {
    Reserve *reserve = static_cast<Reserve *>(provider);
    const size_t used = reserve->used.load(std::memory_order_relaxed);
    if (used == SIZE_MAX) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    reserve->used.store(used | (used + 1), std::memory_order_relaxed);
    char *base =
        reinterpret_cast<char *>(round_up(reinterpret_cast<uintptr_t>(reserve->base), HUGE_PAGE));
    *ptr = base + static_cast<size_t>(__builtin_ctzll(~used)) * HUGE_PAGE;
    return UMF_RESULT_SUCCESS;
}

umf_result_t null_free(void *provider, void *ptr, size_t) {
    Reserve *reserve = static_cast<Reserve *>(provider);
    const size_t piece = static_cast<size_t>(static_cast<char *>(ptr) - reserve->base) / HUGE_PAGE;
    const size_t used = reserve->used.load(std::memory_order_relaxed);
    reserve->used.store(used & ~(size_t{1} << piece), std::memory_order_relaxed);
    return UMF_RESULT_SUCCESS;
}

// As "chunks", with queues. The table of its own is registered with operations beyond it.
const umf_memory_provider_ops_t *queues_ops(const umf_memory_provider_ops_t &plain) {
    static const umf_memory_provider_ops_t ops = plain;
    static const umf_memory_provider_ext_ops_t ext = [] {
        umf_memory_provider_ext_ops_t operations = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
        operations.queue_mark = [](void *, void *queue, void **mark) {
            *mark = queue;
            return UMF_RESULT_SUCCESS;
        };
        operations.mark_wait = [](void *, void *mark, int may_block) {
            const Queue *queue = static_cast<Queue *>(mark);
            while (may_block && queue->is_busy) {
                sched_yield();
            }
            return queue->is_busy ? 0 : 1;
        };
        return operations;
    }();
    static const umf_memory_provider_descriptor_t kind = {
        sizeof(kind), "bench_queues", &ops, &ext, nullptr, nullptr, nullptr};
    static const bool registered = [] {
        const auto add = UMF_BENCH_OPTIONAL(umfRegisterProvider);
        return add && add(&kind) == UMF_RESULT_SUCCESS;
    }();
    return registered ? &ops : nullptr;
}

const umf_memory_provider_ops_t *user_kind_ops(const std::string &kind) {
    static const umf_memory_provider_ops_t chunks = [] {
        umf_memory_provider_ops_t ops = user_provider_ops();
        ops.initialize = chunks_initialize;
        ops.finalize = chunks_finalize;
        ops.alloc = chunks_alloc;
        ops.free = chunks_free;
        return ops;
    }();
    static const umf_memory_provider_ops_t reserve = [] {
        umf_memory_provider_ops_t ops = user_provider_ops();
        ops.initialize = reserve_initialize;
        ops.finalize = reserve_finalize;
        ops.alloc = reserve_alloc;
        ops.free = reserve_free;
        return ops;
    }();
    static const umf_memory_provider_ops_t null = [] {
        umf_memory_provider_ops_t ops = reserve;
        ops.alloc = null_alloc;
        ops.free = null_free;
        return ops;
    }();
    return kind == "chunks"    ? &chunks
           : kind == "queues"  ? queues_ops(chunks)
           : kind == "reserve" ? &reserve
                               : &null;
}

umf_result_t create_os(umf_memory_visibility_t visibility, umf_memory_provider_handle_t *handle) {
    umf_os_memory_provider_params_handle_t params = nullptr;
    umf_result_t result = umfOsMemoryProviderParamsCreate(&params);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfOsMemoryProviderParamsSetVisibility(params, visibility);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umfMemoryProviderCreate(umfOsMemoryProviderOps(), params, handle);
    }
    umfOsMemoryProviderParamsDestroy(params);
    return result;
}

// Over a file that has no name for others.
umf_result_t create_file(umf_memory_visibility_t visibility, umf_memory_provider_handle_t *handle) {
    char path[] = "/var/tmp/umf_bench_XXXXXX";
    const int fd = mkstemp(path);
    if (fd == -1) {
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    close(fd);
    umf_file_memory_provider_params_handle_t params = nullptr;
    umf_result_t result = umfFileMemoryProviderParamsCreate(path, &params);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfFileMemoryProviderParamsSetVisibility(params, visibility);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umfMemoryProviderCreate(umfFileMemoryProviderOps(), params, handle);
    }
    umfFileMemoryProviderParamsDestroy(params);
    unlink(path);
    return result;
}

umf_result_t create_fixed(void *range, size_t size, umf_memory_provider_handle_t *handle) {
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    umf_result_t result = umfFixedMemoryProviderParamsCreate(range, size, &params);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, handle);
    }
    umfFixedMemoryProviderParamsDestroy(params);
    return result;
}

} // namespace

std::string result_text(umf_result_t result) {
    const auto name = UMF_BENCH_OPTIONAL(umfResultName);
    return name ? name(result) : "result " + std::to_string(result);
}

Provider::Provider(const char *kind) {
    const std::string name = kind;
    umf_result_t result;
    if (name == "os" || name == "os shared") {
        result = create_os(name == "os" ? UMF_MEM_MAP_PRIVATE : UMF_MEM_MAP_SHARED, &handle);
    } else if (name == "file" || name == "file shared") {
        result = create_file(name == "file" ? UMF_MEM_MAP_PRIVATE : UMF_MEM_MAP_SHARED, &handle);
    } else if (name == "fixed") {
        range_size = size_t{64} << 30;
        range = mmap(nullptr, range_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) {
            range = nullptr;
            error = "cannot reserve 64 GiB of addresses";
            return;
        }
        result = create_fixed(range, range_size, &handle);
    } else if (name.find("_vmm") != std::string::npos) {
        const auto create = UMF_BENCH_OPTIONAL(umfMemoryProviderCreateFromText);
        result = create ? create(kind, &handle) : UMF_RESULT_ERROR_NOT_SUPPORTED;
    } else {
        const umf_memory_provider_ops_t *ops = user_kind_ops(name);
        result =
            ops ? umfMemoryProviderCreate(ops, &calls, &handle) : UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    if (result != UMF_RESULT_SUCCESS) {
        handle = nullptr;
        error = "provider " + name + ": " + result_text(result);
    }
}

Provider::~Provider() {
    if (handle) {
        umfMemoryProviderDestroy(handle);
    }
    if (range) {
        munmap(range, range_size);
    }
}

void Pool::create(const umf_memory_pool_ops_t *ops, umf_pool_create_flags_t flags) {
    error = provider.error;
    if (!error.empty()) {
        return;
    }
    if (!ops) {
        error = not_built_in;
        return;
    }
    const umf_result_t result = umfPoolCreate(ops, provider.handle, nullptr, flags, &handle);
    if (result != UMF_RESULT_SUCCESS) {
        handle = nullptr;
        error = "umfPoolCreate: " + result_text(result);
    }
}

Pool::Pool(const char *pool, const char *provider_kind, umf_pool_create_flags_t flags)
    : provider(provider_kind) {
    create(pool_ops(pool), flags);
}

Pool::Pool(const umf_memory_pool_ops_t *ops, const char *provider_kind) : provider(provider_kind) {
    create(ops, UMF_POOL_CREATE_FLAG_NONE);
}

Pool::~Pool() {
    if (handle) {
        umfPoolDestroy(handle);
    }
}

static const umf_memory_pool_ops_t *coalescing_ops() {
    const auto ops = UMF_BENCH_OPTIONAL(umfCoalescingPoolOps);
    return ops ? ops() : nullptr;
}

const PoolKind pool_kinds[] = {
    {"proxy", umfProxyPoolOps},       {"disjoint", umfDisjointPoolOps},
    {"coalescing", coalescing_ops},   {"jemalloc", umfJemallocPoolOps},
    {"scalable", umfScalablePoolOps},
};
const size_t pool_kind_count = sizeof(pool_kinds) / sizeof(pool_kinds[0]);

const umf_memory_pool_ops_t *pool_ops(const char *name) {
    for (const PoolKind &kind : pool_kinds) {
        if (strcmp(kind.name, name) == 0) {
            return kind.ops();
        }
    }
    return nullptr;
}

// --- a pool that does nothing
// -------------------------------------------------------------------------

namespace {

struct EmptyPool {
    umf_memory_provider_handle_t provider;
    void *memory;
};

constexpr size_t EMPTY_POOL_SIZE = 4096;

umf_result_t empty_initialize(umf_memory_provider_handle_t provider, const void *, void **pool) {
    EmptyPool *empty = new EmptyPool{provider, nullptr};
    const umf_result_t result =
        umfMemoryProviderAlloc(provider, EMPTY_POOL_SIZE, 0, &empty->memory);
    if (result != UMF_RESULT_SUCCESS) {
        delete empty;
        return result;
    }
    *pool = empty;
    return UMF_RESULT_SUCCESS;
}

umf_result_t empty_finalize(void *pool) {
    EmptyPool *empty = static_cast<EmptyPool *>(pool);
    const umf_result_t result =
        umfMemoryProviderFree(empty->provider, empty->memory, EMPTY_POOL_SIZE);
    delete empty;
    return result;
}

void *empty_malloc(void *pool, size_t) {
    return static_cast<EmptyPool *>(pool)->memory;
}

void *empty_calloc(void *pool, size_t, size_t) {
    return static_cast<EmptyPool *>(pool)->memory;
}

void *empty_realloc(void *, void *ptr, size_t) {
    return ptr;
}

void *empty_aligned_malloc(void *pool, size_t, size_t) {
    return static_cast<EmptyPool *>(pool)->memory;
}

umf_result_t empty_usable_size(void *, const void *, size_t *size) {
    *size = EMPTY_POOL_SIZE;
    return UMF_RESULT_SUCCESS;
}

umf_result_t empty_free(void *, void *) {
    return UMF_RESULT_SUCCESS;
}

umf_result_t empty_last_error(void *) {
    return UMF_RESULT_SUCCESS;
}

} // namespace

const umf_memory_pool_ops_t *empty_pool_ops() {
    static const umf_memory_pool_ops_t ops = [] {
        umf_memory_pool_ops_t o = {};
        o.version = UMF_POOL_OPS_VERSION_CURRENT;
        o.initialize = empty_initialize;
        o.finalize = empty_finalize;
        o.malloc = empty_malloc;
        o.calloc = empty_calloc;
        o.realloc = empty_realloc;
        o.aligned_malloc = empty_aligned_malloc;
        o.malloc_usable_size = empty_usable_size;
        o.free = empty_free;
        o.get_last_allocation_error = empty_last_error;
        o.get_name = user_name;
        return o;
    }();
    return &ops;
}

// --- subjects of the library
// --------------------------------------------------------------------------

namespace {

template <class F> void *address_of(F *function) {
    void *address;
    memcpy(&address, &function, sizeof(address));
    return address;
}

Queue queue;

void *malloc_on_queue(void *pool, size_t size) {
    static const auto call = UMF_BENCH_OPTIONAL(umfPoolMallocOn);
    return call(static_cast<umf_memory_pool_handle_t>(pool), size, 0, &queue);
}

void free_on_queue(void *ptr) {
    static const auto call = UMF_BENCH_OPTIONAL(umfFreeOn);
    call(ptr, &queue);
}

} // namespace

Subject loop_subject() {
    Subject s;
    s.name = "(the loop itself, subtracted below)";
    return s;
}

Subject pool_subject(const char *pool, const char *provider, FreeBy by,
                     umf_pool_create_flags_t flags) {
    Subject s;
    s.name = std::string(pool) + " over " + provider;
    s.name += by == FreeBy::pool ? ", umfPoolFree" : by == FreeBy::queue ? ", umfFreeOn" : "";
    s.name += flags & UMF_POOL_CREATE_FLAG_DISABLE_TRACKING ? ", untracked" : "";
    s.shape = by == FreeBy::pool ? Shape::pool : Shape::heap;
    s.malloc_fn = address_of(umfPoolMalloc);
    s.free_fn = by == FreeBy::pool ? address_of(umfPoolFree) : address_of(umfFree);
    if (by == FreeBy::queue) {
        s.malloc_fn = address_of(malloc_on_queue);
        s.free_fn = address_of(free_on_queue);
    }
    auto owned = std::make_shared<Pool>(pool, provider, flags);
    s.ctx = owned->handle;
    s.absent = owned->error;
    s.trim = [owned] { umfPoolTrimMemory(owned->handle, 0); };
    if (strcmp(provider, "chunks") == 0) {
        s.provider_calls = [owned] { return owned->provider.calls.load(); };
    }
    s.owned = owned;
    return s;
}

std::vector<Subject> pools(bool every_provider, FreeBy by) {
    std::vector<Subject> all;
    for (const PoolKind &kind : pool_kinds) {
        for (const char *provider : {"os", "fixed", "chunks"}) {
            if (every_provider || strcmp(provider, "os") == 0) {
                all.push_back(pool_subject(kind.name, provider, by));
            }
        }
    }
    return all;
}

// --- peers
// --------------------------------------------------------------------------------------------

namespace {

// A peer's library, opened so that its malloc serves the benchmark only.
struct Library {
    void *handle = nullptr;
    std::string error;

    explicit Library(const char *file) : handle(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
        if (!handle) {
            const char *text = dlerror();
            error = text ? text : "cannot be loaded";
        }
    }
    void *symbol(const char *name) {
        void *address = handle ? dlsym(handle, name) : nullptr;
        if (handle && !address && error.empty()) {
            error = std::string("has no symbol ") + name;
        }
        return address;
    }
    template <class F> F function(const char *name) {
        F f;
        void *address = symbol(name);
        memcpy(&f, &address, sizeof(f));
        return f;
    }
};

Subject peer_subject(const char *name, Shape shape) {
    Subject s;
    s.name = name;
    s.shape = shape;
    return s;
}

Subject glibc_subject() {
    Subject s = peer_subject("glibc", Shape::plain);
    s.malloc_fn = dlsym(RTLD_DEFAULT, "malloc");
    s.free_fn = dlsym(RTLD_DEFAULT, "free");
    s.trim = [] { malloc_trim(0); };
    return s;
}

Subject jemalloc_subject() {
    static Library lib("libjemalloc.so.2");
    Subject s = peer_subject("jemalloc", Shape::plain);
    s.malloc_fn = lib.symbol("malloc");
    s.free_fn = lib.symbol("free");
    using mallctl_fn = int (*)(const char *, void *, size_t *, void *, size_t);
    const auto mallctl = lib.function<mallctl_fn>("mallctl");
    s.trim = [mallctl] {
        mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
        mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0); // 4096 stands for all arenas
    };
    s.absent = lib.error;
    return s;
}

// As a library has to carry it, without thread-local storage of the initial-exec model: the
// preloaded one may take as much of that as it wants. Built by scripts/bench.sh.
Subject jemalloc_inside_subject() {
    static Library lib(UMF_BENCH_SOURCE "/build/deps/jemalloc-inside/libjemalloc_inside.so.2");
    Subject s = peer_subject("jemalloc inside a library", Shape::plain);
    s.malloc_fn = lib.symbol("je_malloc");
    s.free_fn = lib.symbol("je_free");
    s.absent = lib.error;
    return s;
}

struct Mimalloc : Library {
    void *(*heap_new)() = function<void *(*)()>("mi_heap_new");
    void (*heap_delete)(void *) = function<void (*)(void *)>("mi_heap_delete");
    void (*collect)(bool) = function<void (*)(bool)>("mi_collect");
    Mimalloc() : Library("libmimalloc.so.2") {}
};

Mimalloc &mimalloc() {
    static Mimalloc lib;
    return lib;
}

// A heap of mimalloc serves the thread that made it; it is freed from any.
void *mimalloc_thread_heap() {
    static thread_local void *heap = mimalloc().heap_new();
    return heap;
}

Subject mimalloc_subject() {
    Mimalloc &lib = mimalloc();
    Subject s = peer_subject("mimalloc heap", Shape::heap);
    s.malloc_fn = lib.symbol("mi_heap_malloc");
    s.free_fn = lib.symbol("mi_free");
    s.thread_ctx = mimalloc_thread_heap;
    s.trim = [] { mimalloc().collect(true); };
    s.absent = lib.error;
    return s;
}

// oneTBB's memory pools; the layout is that of tbb/scalable_allocator.h.
struct TbbPolicy {
    void *(*alloc)(intptr_t, size_t &);
    int (*free)(intptr_t, void *, size_t);
    size_t granularity;
    int version;
    unsigned flags;
};
constexpr int TBB_POLICY_VERSION = 1;

void *tbb_raw_alloc(intptr_t, size_t &bytes) {
    void *map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return map == MAP_FAILED ? nullptr : map;
}

int tbb_raw_free(intptr_t, void *ptr, size_t bytes) {
    return munmap(ptr, bytes);
}

struct Tbb : Library {
    int (*create)(intptr_t, const TbbPolicy *, void **) = function<decltype(create)>(
        "_ZN3rml14pool_create_v1ElPKNS_13MemPoolPolicyEPPNS_10MemoryPoolE");
    bool (*destroy)(void *) =
        function<decltype(destroy)>("_ZN3rml12pool_destroyEPNS_10MemoryPoolE");
    int (*command)(int, void *) = function<decltype(command)>("scalable_allocation_command");
    Tbb() : Library("libtbbmalloc.so.2") {}
    void *create_pool() const {
        const TbbPolicy policy = {tbb_raw_alloc, tbb_raw_free, 2 << 20, TBB_POLICY_VERSION, 0};
        void *pool = nullptr;
        return create(0, &policy, &pool) == 0 ? pool : nullptr;
    }
};

Tbb &tbb() {
    static Tbb lib;
    return lib;
}

Subject tbb_pool_subject() {
    Tbb &lib = tbb();
    Subject s = peer_subject("TBB pool", Shape::pool);
    s.malloc_fn = lib.symbol("_ZN3rml11pool_mallocEPNS_10MemoryPoolEm");
    s.free_fn = lib.symbol("_ZN3rml9pool_freeEPNS_10MemoryPoolEPv");
    s.absent = lib.error;
    if (s.absent.empty()) {
        s.ctx = lib.create_pool();
        s.owned = std::shared_ptr<void>(s.ctx, [](void *pool) {
            if (pool) {
                tbb().destroy(pool);
            }
        });
        s.absent = s.ctx ? "" : "rml::pool_create_v1 failed";
    }
    return s;
}

Subject tbb_scalable_subject() {
    Tbb &lib = tbb();
    Subject s = peer_subject("TBB scalable", Shape::plain);
    s.malloc_fn = lib.symbol("scalable_malloc");
    s.free_fn = lib.symbol("scalable_free");
    s.trim = [] { tbb().command(0, nullptr); }; // TBBMALLOC_CLEAN_ALL_BUFFERS
    s.absent = lib.error;
    return s;
}

} // namespace

// Those with a column of their own.
const char *const peer_names[] = {"glibc", "jemalloc", "mimalloc heap", "TBB pool", "TBB scalable"};
const size_t peer_count = sizeof(peer_names) / sizeof(peer_names[0]);

std::vector<Subject> peers() {
    std::vector<Subject> all;
    for (Subject (*make)() : {glibc_subject, jemalloc_subject, mimalloc_subject, tbb_pool_subject,
                              tbb_scalable_subject, jemalloc_inside_subject}) {
        all.push_back(make());
    }
    return all;
}

std::unique_ptr<Job> peer_create_job(const char *peer) {
    if (strcmp(peer, "mimalloc heap") == 0 && mimalloc().error.empty()) {
        return make_fn_job([](uint64_t) {
            void *heap = mimalloc().heap_new();
            mimalloc().heap_delete(heap);
            return heap != nullptr;
        });
    }
    if (strcmp(peer, "TBB pool") == 0 && tbb().error.empty()) {
        return make_fn_job([](uint64_t) {
            void *pool = tbb().create_pool();
            return pool && tbb().destroy(pool);
        });
    }
    return nullptr;
}

Subject subject_by_name(const std::string &name) {
    const size_t over = name.find(" over ");
    if (over == std::string::npos) {
        for (Subject &peer : peers()) {
            if (peer.name == name) {
                return std::move(peer);
            }
        }
        return loop_subject();
    }
    const size_t comma = std::min(name.find(','), name.size());
    const std::string provider = name.substr(over + 6, comma - over - 6);
    const FreeBy by = comma == name.size()                          ? FreeBy::pointer
                      : name.find("umfFreeOn") != std::string::npos ? FreeBy::queue
                                                                    : FreeBy::pool;
    return pool_subject(name.substr(0, over).c_str(), provider.c_str(), by);
}

namespace {

// One allocation through the public functions, with what they promise checked.
std::string try_pool(const Subject &s, size_t size) {
    umf_memory_pool_handle_t pool = static_cast<umf_memory_pool_handle_t>(s.ctx);
    char *ptr = static_cast<char *>(umfPoolMalloc(pool, size));
    if (!ptr) {
        return "umfPoolMalloc(" + std::to_string(size) + ") failed, last error is " +
               result_text(umfPoolGetLastAllocationError(pool));
    }
    ptr[0] = ptr[size - 1] = 1;
    umf_memory_pool_handle_t found = nullptr;
    const bool by_pool = s.shape == Shape::pool;
    if (!by_pool && (umfPoolByPtr(ptr, &found) != UMF_RESULT_SUCCESS || found != pool)) {
        return "umfPoolByPtr does not find the pool of its memory";
    }
    const umf_result_t result = by_pool ? umfPoolFree(pool, ptr) : umfFree(ptr);
    return result == UMF_RESULT_SUCCESS ? "" : "free gives " + result_text(result);
}

} // namespace

void check_subject(Subject &subject, size_t size) {
    if (subject.absent.empty() && subject.malloc_fn == address_of(umfPoolMalloc)) {
        subject.absent = try_pool(subject, size);
    }
}

} // namespace bench
