#include "ext/movement/place.h"

#include <errno.h>

#include "base/log.h"
#include "system/keep_errno.h"
#include "system/os.h"

static const umf_memory_provider_ext_ops_t no_ext = {.struct_size = sizeof(no_ext)};

/* --- kinds of memory of providers --------------------------------------------------------------
 */

/* In the member `place` of a provider: a umf_place_kind_t, or this. */
enum { PLACE_PROBED = 16 }; /* no type is reported: addresses are probed each time */

static int kind_of_type(umf_usm_memory_type_t type) {
    switch (type) {
    case UMF_MEMORY_TYPE_HOST:
        return UMF_PLACE_PINNED;
    case UMF_MEMORY_TYPE_DEVICE:
        return UMF_PLACE_DEVICE;
    case UMF_MEMORY_TYPE_SHARED:
        return UMF_PLACE_SHARED;
    default:
        return UMF_PLACE_UNKNOWN;
    }
}

/* Asks the kernel for the word that holds the address. */
static bool is_reached(uintptr_t addr, bool is_written) {
    UMF_KEEP_ERRNO;
    void *word = (void *)umf_align_down(addr, sizeof(uint64_t));
    return (is_written ? umf_os_probe_change(word) : umf_os_probe_read(word)) != EFAULT;
}

/* If the provider reports no type, memory whose first bytes are writable counts as host memory. */
static UMF_COLD int provider_ask(umf_memory_provider_handle_t provider, uintptr_t base) {
    umf_usm_memory_type_t type = UMF_MEMORY_TYPE_UNKNOWN;
    if (provider->ops.ext_get_allocation_properties &&
        provider->ops.ext_get_allocation_properties(provider->self, (void *)base,
                                                    UMF_MEMORY_PROPERTY_POINTER_TYPE,
                                                    &type) != UMF_RESULT_SUCCESS) {
        type = UMF_MEMORY_TYPE_UNKNOWN;
    }
    int kind = kind_of_type(type);
    if (kind == UMF_PLACE_UNKNOWN) {
        kind = !provider->ext->copy && is_reached(base, true) ? UMF_PLACE_HOST : PLACE_PROBED;
    }
    atomic_store_explicit(&provider->place, kind, memory_order_relaxed);
    return kind;
}

static umf_place_kind_t provider_kind(umf_memory_provider_handle_t provider, uintptr_t base,
                                      bool is_written) {
    int kind = atomic_load_explicit(&provider->place, memory_order_relaxed);
    if (umf_unlikely(kind == 0)) {
        kind = provider_ask(provider, base);
    }
    if (umf_unlikely(kind == PLACE_PROBED)) {
        return is_reached(base, is_written) ? UMF_PLACE_HOST : UMF_PLACE_DEVICE;
    }
    return (umf_place_kind_t)kind;
}

/* --- whose an address is -----------------------------------------------------------------------
 */

/* Another thread may split it, or merge it with its neighbour. */
static size_t span_size(const umf_span_t *span) {
    return __atomic_load_n(&span->size, __ATOMIC_RELAXED);
}

static bool span_holds(const umf_span_t *span, uintptr_t addr, size_t size) {
    size_t room = span_size(span);
    return addr >= span->base && size <= room && addr - span->base <= room - size;
}

/* Moves the use from the innermost span to one around it that holds the whole range, if there is
 * one. */
static umf_span_t *use_around(umf_span_t *innermost, uintptr_t addr, size_t size) {
    for (uint32_t at = umf_span_index(innermost); at; at = umf_span_at(at)->outer) {
        umf_span_t *span = umf_span_at(at);
        if (span == innermost && umf_likely(span_holds(span, addr, size))) {
            return innermost;
        }
        if (span != innermost && span_holds(span, addr, size)) {
            umf_use_begin(at);
            umf_use_end(umf_span_index(innermost));
            return span;
        }
    }
    return innermost;
}

static void find_in_span(umf_side_t *side, const umf_span_t *span, bool is_written) {
    bool is_import = umf_span_kind(span) == UMF_SPAN_IMPORT;
    side->span = umf_span_index(span);
    side->source = is_import ? UMF_PLACE_FROM_IMPORT : UMF_PLACE_FROM_POOL;
    side->provider = is_import ? umf_core_import_provider(span) : umf_tracked_of(span)->root;
    side->is_closed = is_import && !umf_core_import_is_open(span);
    side->pool = is_import
                     ? NULL
                     : atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    side->base = span->base;
    side->room = span_size(span);
    side->ext = side->provider->ext;
    side->self = side->provider->self;
    side->kind = provider_kind(side->provider, side->base, is_written);
}

static void find_foreign(umf_side_t *side) {
    side->source = UMF_PLACE_FROM_DRIVER;
    side->kind = (umf_place_kind_t)kind_of_type(side->foreign.type);
    side->device = side->foreign.device;
    side->base = side->foreign.base;
    side->room = side->foreign.size;
    if (side->foreign.ext) {
        side->ext = side->foreign.ext;
        side->self = side->foreign.self;
    }
}

/* Larger ones are worth the question to a driver: it may have pinned them. */
#define PLAIN_MAX ((size_t)64 << 10)
/* So near above our frame is the stack of the caller. */
#define STACK_NEAR ((uintptr_t)16 << 10)

bool umf_side_is_plain(uintptr_t addr, size_t size) {
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    return size < PLAIN_MAX &&
           ((addr >= frame && size < STACK_NEAR && addr - frame < STACK_NEAR - size) ||
            umf_os_is_in_heap(addr, size) || umf_os_is_in_data(addr, size));
}

/* Can the CPU access the ends, and is memory mapped everywhere between them? */
static bool is_accessible(uintptr_t addr, size_t size, bool is_written) {
    UMF_KEEP_ERRNO;
    uintptr_t last = addr + size - (size > 0), page = umf_os_page_size();
    return is_reached(addr, is_written) &&
           (addr / page == last / page ||
            (is_reached(last, is_written) && umf_os_is_mapped(addr, size)));
}

static void find_unknown(umf_side_t *side, umf_place_kind_t word,
                         umf_memory_provider_handle_t helper) {
    side->kind = word == UMF_PLACE_UNKNOWN ? UMF_PLACE_HOST : word;
    if (helper) {
        side->provider = helper->root;
        side->ext = helper->ext;
        side->self = helper->self;
    }
}

void umf_side_find(umf_side_t *side, const void *addr, size_t size, bool is_written,
                   umf_place_kind_t word, umf_memory_provider_handle_t helper) {
    umf_span_t *span = umf_span_use(&umf_map_global, (uintptr_t)addr);
    side->addr = (uintptr_t)addr;
    side->size = size;
    side->source = UMF_PLACE_FROM_NOBODY;
    side->span = 0;
    side->pool = NULL;
    side->provider = NULL;
    side->ext = &no_ext;
    side->self = NULL;
    side->base = 0;
    side->room = 0;
    side->device = -1;
    side->is_leaving = false;
    side->is_closed = false;
    side->is_missing = false;
    if (umf_likely(span != NULL)) {
        find_in_span(side, use_around(span, side->addr, size), is_written);
    } else if (umf_unlikely(umf_map_find(&umf_map_global, side->addr) != 0)) {
        side->is_leaving = true;
        side->kind = UMF_PLACE_UNKNOWN;
    } else if (word == UMF_PLACE_HOST || umf_side_is_plain(side->addr, size)) {
        find_unknown(side, UMF_PLACE_HOST, helper);
    } else if (umf_foreign_find(addr, &side->foreign)) {
        find_foreign(side);
    } else {
        find_unknown(side, word, helper);
        side->is_missing =
            side->kind == UMF_PLACE_HOST && !is_accessible(side->addr, size, is_written);
    }
}

/* --- checks ------------------------------------------------------------------------------------
 */

static UMF_COLD umf_result_t leaves(const umf_side_t *side) {
    if (!side->addr) {
        UMF_LOG_ERROR("the %s is NULL, %zu bytes are requested", side->name, side->size);
    } else if (side->is_missing) {
        UMF_LOG_ERROR("the CPU cannot access the %s %p, or not all of its %zu bytes: no memory is "
                      "mapped there, or it is protected",
                      side->name, (void *)side->addr, side->size);
    } else if (side->is_closed) {
        UMF_LOG_ERROR("the %s %p of %zu bytes was opened from an IPC handle, and is closed",
                      side->name, (void *)side->addr, side->size);
    } else if (side->is_leaving) {
        UMF_LOG_ERROR("the %s %p of %zu bytes is being freed by another thread", side->name,
                      (void *)side->addr, side->size);
    } else if (side->room == 0) {
        UMF_LOG_ERROR("the %s %p of %zu bytes goes beyond the last address", side->name,
                      (void *)side->addr, side->size);
    } else {
        size_t offset = side->addr - side->base;
        UMF_LOG_ERROR("the %s %p of %zu bytes leaves its allocation: %zu bytes are there, up to "
                      "the end of the %zu at %p",
                      side->name, (void *)side->addr, side->size,
                      offset < side->room ? side->room - offset : 0, side->room,
                      (void *)side->base);
    }
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static UMF_COLD umf_result_t is_suspended(const umf_side_t *side) {
    UMF_LOG_ERROR("the %s %p of %zu bytes is in pool %p, which is suspended: resume it first",
                  side->name, (void *)side->addr, side->size, (void *)side->pool);
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

umf_result_t umf_side_check(const umf_side_t *side) {
    uintptr_t last;
    if (umf_unlikely(!side->addr || side->is_leaving || side->is_closed || side->is_missing ||
                     __builtin_add_overflow(side->addr, (uintptr_t)side->size - 1, &last))) {
        return leaves(side);
    }
    if (side->room && umf_unlikely(side->addr < side->base || side->size > side->room ||
                                   side->addr - side->base > side->room - side->size)) {
        return leaves(side);
    }
    if (side->pool && umf_unlikely(umf_pool_is_suspended(side->pool))) {
        return is_suspended(side);
    }
    return UMF_RESULT_SUCCESS;
}

static const void *domain_of(const umf_side_t *side) {
    const void *domain = NULL;
    if (!side->ext->copy_domain ||
        side->ext->copy_domain(side->self, &domain) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    return domain;
}

bool umf_side_is_same_domain(const umf_side_t *a, const umf_side_t *b) {
    if (a->provider && a->provider == b->provider) {
        return true;
    }
    const void *domain = domain_of(a);
    return domain && domain == domain_of(b);
}

/* --- the public question -----------------------------------------------------------------------
 */

static int device_number(const umf_side_t *side) {
    const umf_memory_provider_ops_t *ops = side->provider ? &side->provider->ops : NULL;
    size_t size = 0;
    int number = -1;
    if (!side->span || !ops->ext_get_allocation_properties ||
        !ops->ext_get_allocation_properties_size || side->kind == UMF_PLACE_HOST ||
        ops->ext_get_allocation_properties_size(side->self, UMF_MEMORY_PROPERTY_DEVICE, &size) !=
            UMF_RESULT_SUCCESS ||
        size != sizeof(number)) {
        return side->device;
    }
    umf_result_t result = ops->ext_get_allocation_properties(side->self, (void *)side->base,
                                                             UMF_MEMORY_PROPERTY_DEVICE, &number);
    return result == UMF_RESULT_SUCCESS ? number : -1;
}

UMF_API_EXT_1 umf_result_t umfPlaceOf(const void *ptr, umf_place_t *place) {
    UMF_KEEP_ERRNO;
    umf_side_t side;
    if (!place || place->struct_size < sizeof(*place)) {
        UMF_LOG_ERROR("place is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_side_find(&side, ptr, 1, false, UMF_PLACE_UNKNOWN, NULL);
    bool is_suspended = side.pool && umf_pool_is_suspended(side.pool);
    *place = (umf_place_t){
        .struct_size = place->struct_size,
        .kind = side.kind,
        .source = side.source,
        .device = device_number(&side),
        .is_reachable = ptr && side.kind != UMF_PLACE_DEVICE && !is_suspended && !side.is_missing &&
                        !side.is_closed,
        .is_suspended = is_suspended,
        .pool = side.pool,
        .provider = side.provider,
        .base = (void *)side.base,
        .size = side.room,
        .offset = side.room ? side.addr - side.base : 0,
    };
    umf_side_release(&side);
    return UMF_RESULT_SUCCESS;
}
