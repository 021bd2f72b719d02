#include "ext/movement/memory_kind.h"

#include <errno.h>

#include "base/log.h"
#include "system/keep_errno.h"
#include "system/os.h"

static const umf_memory_provider_ext_ops_t no_ext = {.struct_size = sizeof(no_ext)};

/* --- kinds of memory of providers --------------------------------------------------------------
 */

/* In the member `memory_kind` of a provider: a umf_place_kind_t, or this. */
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
    atomic_store_explicit(&provider->memory_kind, kind, memory_order_relaxed);
    return kind;
}

static umf_place_kind_t provider_kind(umf_memory_provider_handle_t provider, uintptr_t base,
                                      bool is_written) {
    int kind = atomic_load_explicit(&provider->memory_kind, memory_order_relaxed);
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

static void find_in_span(umf_operand_t *operand, const umf_span_t *span, bool is_written) {
    bool is_import = umf_span_kind(span) == UMF_SPAN_IMPORT;
    operand->span = umf_span_index(span);
    operand->source = is_import ? UMF_PLACE_FROM_IMPORT : UMF_PLACE_FROM_POOL;
    operand->provider = is_import ? umf_core_import_provider(span) : umf_tracked_of(span)->root;
    operand->is_closed = is_import && !umf_core_import_is_open(span);
    operand->pool =
        is_import ? NULL
                  : atomic_load_explicit(&umf_pool_table[span->set->pool], memory_order_acquire);
    operand->base = span->base;
    operand->room = span_size(span);
    operand->ext = operand->provider->ext;
    operand->self = operand->provider->self;
    operand->kind = provider_kind(operand->provider, operand->base, is_written);
}

static void find_foreign(umf_operand_t *operand) {
    operand->source = UMF_PLACE_FROM_DRIVER;
    operand->kind = (umf_place_kind_t)kind_of_type(operand->foreign.type);
    operand->device = operand->foreign.device;
    operand->base = operand->foreign.base;
    operand->room = operand->foreign.size;
    if (operand->foreign.ext) {
        operand->ext = operand->foreign.ext;
        operand->self = operand->foreign.self;
    }
}

/* Larger ones are worth the question to a driver: it may have pinned them. */
#define PLAIN_MAX ((size_t)64 << 10)
/* So near above our frame is the stack of the caller. */
#define STACK_NEAR ((uintptr_t)16 << 10)

bool umf_operand_is_plain(uintptr_t addr, size_t size) {
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

static void find_unknown(umf_operand_t *operand, umf_place_kind_t word,
                         umf_memory_provider_handle_t helper) {
    operand->kind = word == UMF_PLACE_UNKNOWN ? UMF_PLACE_HOST : word;
    if (helper) {
        operand->provider = helper->root;
        operand->ext = helper->ext;
        operand->self = helper->self;
    }
}

void umf_operand_find(umf_operand_t *operand, const void *addr, size_t size, bool is_written,
                      umf_place_kind_t word, umf_memory_provider_handle_t helper) {
    umf_span_t *span = umf_span_use(&umf_map_global, (uintptr_t)addr);
    operand->addr = (uintptr_t)addr;
    operand->size = size;
    operand->source = UMF_PLACE_FROM_NOBODY;
    operand->span = 0;
    operand->pool = NULL;
    operand->provider = NULL;
    operand->ext = &no_ext;
    operand->self = NULL;
    operand->base = 0;
    operand->room = 0;
    operand->device = -1;
    operand->is_leaving = false;
    operand->is_closed = false;
    operand->is_missing = false;
    if (umf_likely(span != NULL)) {
        find_in_span(operand, use_around(span, operand->addr, size), is_written);
    } else if (umf_unlikely(umf_map_find(&umf_map_global, operand->addr) != 0)) {
        operand->is_leaving = true;
        operand->kind = UMF_PLACE_UNKNOWN;
    } else if (word == UMF_PLACE_HOST || umf_operand_is_plain(operand->addr, size)) {
        find_unknown(operand, UMF_PLACE_HOST, helper);
    } else if (umf_foreign_find(addr, &operand->foreign)) {
        find_foreign(operand);
    } else {
        find_unknown(operand, word, helper);
        operand->is_missing =
            operand->kind == UMF_PLACE_HOST && !is_accessible(operand->addr, size, is_written);
    }
}

/* --- checks ------------------------------------------------------------------------------------
 */

static UMF_COLD umf_result_t leaves(const umf_operand_t *operand) {
    if (!operand->addr) {
        UMF_LOG_ERROR("the %s is NULL, %zu bytes are requested", operand->name, operand->size);
    } else if (operand->is_missing) {
        UMF_LOG_ERROR("the CPU cannot access the %s %p, or not all of its %zu bytes: no memory is "
                      "mapped there, or it is protected",
                      operand->name, (void *)operand->addr, operand->size);
    } else if (operand->is_closed) {
        UMF_LOG_ERROR("the %s %p of %zu bytes was opened from an IPC handle, and is closed",
                      operand->name, (void *)operand->addr, operand->size);
    } else if (operand->is_leaving) {
        UMF_LOG_ERROR("the %s %p of %zu bytes is being freed by another thread", operand->name,
                      (void *)operand->addr, operand->size);
    } else if (operand->room == 0) {
        UMF_LOG_ERROR("the %s %p of %zu bytes goes beyond the last address", operand->name,
                      (void *)operand->addr, operand->size);
    } else {
        size_t offset = operand->addr - operand->base;
        UMF_LOG_ERROR("the %s %p of %zu bytes leaves its allocation: %zu bytes are there, up to "
                      "the end of the %zu at %p",
                      operand->name, (void *)operand->addr, operand->size,
                      offset < operand->room ? operand->room - offset : 0, operand->room,
                      (void *)operand->base);
    }
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

static UMF_COLD umf_result_t is_suspended(const umf_operand_t *operand) {
    UMF_LOG_ERROR("the %s %p of %zu bytes is in pool %p, which is suspended: resume it first",
                  operand->name, (void *)operand->addr, operand->size, (void *)operand->pool);
    return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
}

umf_result_t umf_operand_check(const umf_operand_t *operand) {
    uintptr_t last;
    if (umf_unlikely(!operand->addr || operand->is_leaving || operand->is_closed ||
                     operand->is_missing ||
                     __builtin_add_overflow(operand->addr, (uintptr_t)operand->size - 1, &last))) {
        return leaves(operand);
    }
    if (operand->room &&
        umf_unlikely(operand->addr < operand->base || operand->size > operand->room ||
                     operand->addr - operand->base > operand->room - operand->size)) {
        return leaves(operand);
    }
    if (operand->pool && umf_unlikely(umf_pool_is_suspended(operand->pool))) {
        return is_suspended(operand);
    }
    return UMF_RESULT_SUCCESS;
}

static const void *domain_of(const umf_operand_t *operand) {
    const void *domain = NULL;
    if (!operand->ext->copy_domain ||
        operand->ext->copy_domain(operand->self, &domain) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    return domain;
}

bool umf_operand_is_same_domain(const umf_operand_t *a, const umf_operand_t *b) {
    if (a->provider && a->provider == b->provider) {
        return true;
    }
    const void *domain = domain_of(a);
    return domain && domain == domain_of(b);
}

/* --- the public question -----------------------------------------------------------------------
 */

static int device_number(const umf_operand_t *operand) {
    const umf_memory_provider_ops_t *ops = operand->provider ? &operand->provider->ops : NULL;
    size_t size = 0;
    int number = -1;
    if (!operand->span || !ops->ext_get_allocation_properties ||
        !ops->ext_get_allocation_properties_size || operand->kind == UMF_PLACE_HOST ||
        ops->ext_get_allocation_properties_size(operand->self, UMF_MEMORY_PROPERTY_DEVICE, &size) !=
            UMF_RESULT_SUCCESS ||
        size != sizeof(number)) {
        return operand->device;
    }
    umf_result_t result = ops->ext_get_allocation_properties(operand->self, (void *)operand->base,
                                                             UMF_MEMORY_PROPERTY_DEVICE, &number);
    return result == UMF_RESULT_SUCCESS ? number : -1;
}

UMF_API_EXT_1_3 umf_result_t umfPlaceOf(const void *ptr, umf_place_t *place) {
    UMF_KEEP_ERRNO;
    umf_operand_t operand;
    if (!place || place->struct_size < sizeof(*place)) {
        UMF_LOG_ERROR("place is NULL, or its struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_operand_find(&operand, ptr, 1, false, UMF_PLACE_UNKNOWN, NULL);
    bool is_suspended = operand.pool && umf_pool_is_suspended(operand.pool);
    *place = (umf_place_t){
        .struct_size = place->struct_size,
        .kind = operand.kind,
        .source = operand.source,
        .device = device_number(&operand),
        .is_reachable = ptr && operand.kind != UMF_PLACE_DEVICE && !is_suspended &&
                        !operand.is_missing && !operand.is_closed,
        .is_suspended = is_suspended,
        .pool = operand.pool,
        .provider = operand.provider,
        .base = (void *)operand.base,
        .size = operand.room,
        .offset = operand.room ? operand.addr - operand.base : 0,
    };
    umf_operand_release(&operand);
    return UMF_RESULT_SUCCESS;
}
