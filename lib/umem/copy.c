/*
 * Copies and sets of memory whose addresses are pointers: umfCopy and umfFill.
 *
 * Memory of a device is used on a stream: the one of the context if it is asynchronous, else the
 * default stream, as a program's kernels are. Then the work is done on return.
 */
#include "umem/own.h"

#include <umf/copy.h>
#include <umf/result.h>

/* Bytes that are on the way between two devices at once. */
#define STAGE ((size_t)4 << 20)

/* CU_STREAM_LEGACY: to umfCopy NULL is none. */
#define DEFAULT_STREAM ((void *)(uintptr_t)1)

typedef struct stream_t {
    void *queue; /* NULL: the CPU works on this memory */
    bool is_async;
} stream_t;

static stream_t stream_of_program(bool async, uintptr_t stream) {
    return (stream_t){async && stream ? (void *)stream : DEFAULT_STREAM, async};
}

static stream_t stream_of(const umemVirtual *ctx) {
    switch (ctx->type) {
    case umemCudaDevice:
        return (stream_t){DEFAULT_STREAM, false};
    case umemCudaManagedDevice:
        return stream_of_program(((const umemCudaManaged *)ctx)->async,
                                 ((const umemCudaManaged *)ctx)->stream);
    case umemRMMDevice:
        return stream_of_program(((const umemRMM *)ctx)->async, ((const umemRMM *)ctx)->stream);
    default:
        return (stream_t){NULL, false};
    }
}

/* The kind of memory, for addresses that are in no pool. */
static umf_place_kind_t place_of(const umemVirtual *ctx) {
    switch (ctx->type) {
    case umemCudaDevice:
    case umemRMMDevice:
        return UMF_PLACE_DEVICE;
    case umemCudaHostDevice:
        return UMF_PLACE_PINNED;
    case umemCudaManagedDevice:
        return UMF_PLACE_SHARED;
    default:
        return UMF_PLACE_HOST;
    }
}

/* The provider that copies addresses in no pool, such as those of cudaMalloc; NULL for memory of
 * the host. false: there is none, and the status has the reason. */
static bool find_provider(umemVirtual *ctx, umf_memory_provider_handle_t *provider) {
    *provider = NULL;
    if (place_of(ctx) == UMF_PLACE_HOST) {
        return true;
    }
    umf_memory_pool_handle_t pool = umem_pool_of(ctx, 1, umemRuntimeError);
    return pool && umfPoolGetMemoryProvider(pool, provider) == UMF_RESULT_SUCCESS;
}

/* The driver accepts its own addresses only. Any other would end the program, or the device's
 * context.
 */
static umf_result_t check_address(const umemVirtual *ctx, uintptr_t adr) {
    umf_place_t place = UMF_PLACE_INIT;
    if (place_of(ctx) == UMF_PLACE_HOST) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = umfPlaceOf((void *)adr, &place);
    if (result == UMF_RESULT_SUCCESS && place.source == UMF_PLACE_FROM_NOBODY) {
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return result;
}

/* A copy of the CPU's waits for all that is on the queue before. */
umf_result_t umem_stream_wait(void *queue, umf_memory_provider_handle_t provider) {
    char from = 0, to;
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.queue = queue;
    params.provider = provider;
    params.to_kind = params.from_kind = UMF_PLACE_HOST;
    return umfCopy(&to, &from, 1, &params);
}

void umem_block_settle(umemVirtual *ctx, uintptr_t adr) {
    stream_t stream = stream_of(ctx);
    umf_memory_pool_handle_t pool;
    umf_memory_provider_handle_t provider;
    if (stream.is_async && umfPoolByPtr((void *)adr, &pool) == UMF_RESULT_SUCCESS &&
        umfPoolGetMemoryProvider(pool, &provider) == UMF_RESULT_SUCCESS) {
        umem_stream_wait(stream.queue, provider);
    }
}

/* --- sets ------------------------------------------------------------------------------------- */

void umem_block_set(umemVirtual *const ctx, uintptr_t adr, int c, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    const unsigned char byte = (unsigned char)c;
    stream_t stream = stream_of(ctx);
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.queue = stream.queue;
    params.to_kind = place_of(ctx);
    if (nbytes == 0 || !find_provider(ctx, &params.provider)) {
        return;
    }
    umf_result_t result = check_address(ctx, adr);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfFill((void *)adr, &byte, sizeof(byte), nbytes, &params);
    }
    if (result == UMF_RESULT_SUCCESS && stream.queue && !stream.is_async) {
        result = umem_stream_wait(stream.queue, params.provider);
    }
    TRY_RETURN(ctx, result != UMF_RESULT_SUCCESS, umemRuntimeError, return,
               "umem_set: %zu bytes at %#" PRIxPTR " of context %s: %s", nbytes, adr,
               umem_get_device_name(ctx), umfResultText(result));
}

/* --- copies ----------------------------------------------------------------------------------- */

typedef struct operand_t {
    umemVirtual *ctx;
    uintptr_t adr;
    umf_memory_provider_handle_t provider; /* NULL: memory of the host */
} operand_t;

static bool is_block(const umemVirtual *ctx) {
    return ctx->vptr->copy_to == umem_block_copy_to;
}

static bool is_host(const umemVirtual *ctx) {
    return ctx->type == umemHostDevice;
}

/* Whether the copy may go on after the return: if all its streams are asynchronous, and no memory
 * of the host takes part, which the CPU uses without asking a stream. */
static bool may_go_on(stream_t to, stream_t from, const umf_copy_params_t *params) {
    bool is_of_device = params->to_kind != UMF_PLACE_HOST && params->to_kind != UMF_PLACE_PINNED &&
                        params->from_kind != UMF_PLACE_HOST &&
                        params->from_kind != UMF_PLACE_PINNED;
    return to.is_async && from.is_async && is_of_device;
}

/* The device that has the memory; -1: all reach it. */
static int device_of(const umemVirtual *ctx) {
    switch (ctx->type) {
    case umemCudaDevice:
        return ((const umemCuda *)ctx)->device;
    case umemRMMDevice:
        return ((const umemRMM *)ctx)->device;
    default:
        return -1;
    }
}

/* Each operand has a stream of its own: both pass first, then it is copied and complete. */
static umf_result_t copy_across(operand_t dest, operand_t src, size_t nbytes,
                                umf_copy_params_t *params) {
    umf_result_t result = umem_stream_wait(stream_of(src.ctx).queue, src.provider);
    if (result == UMF_RESULT_SUCCESS) {
        result = umem_stream_wait(stream_of(dest.ctx).queue, dest.provider);
    }
    return result ? result : umfCopy((void *)dest.adr, (void *)src.adr, nbytes, params);
}

static umf_result_t copy_on(operand_t dest, operand_t src, size_t nbytes) {
    stream_t to = stream_of(dest.ctx), from = stream_of(src.ctx);
    umf_copy_params_t params = UMF_COPY_PARAMS_INIT;
    params.to_kind = place_of(dest.ctx);
    params.from_kind = place_of(src.ctx);
    params.provider = src.provider ? src.provider : dest.provider;
    if (to.queue && from.queue &&
        (to.queue != from.queue || device_of(dest.ctx) != device_of(src.ctx))) {
        return copy_across(dest, src, nbytes, &params);
    }
    params.queue = from.queue ? from.queue : to.queue;
    umf_result_t result = umfCopy((void *)dest.adr, (void *)src.adr, nbytes, &params);
    if (result == UMF_RESULT_SUCCESS && params.queue && !may_go_on(to, from, &params)) {
        result = umem_stream_wait(params.queue, params.provider);
    }
    return result;
}

/* Virtual memory of a device that is not mapped for the other one cannot be copied by it. */
static bool is_out_of_reach(const umemVirtual *dest, const umemVirtual *src) {
    umem_why_t why;
    int to = device_of(dest), from = device_of(src);
    return to >= 0 && from >= 0 && to != from && !umem_pool_serves_peer(from, to, &why);
}

/* By a buffer of the host, piece by piece. */
static umf_result_t copy_staged(operand_t dest, operand_t src, size_t nbytes) {
    umemHost host;
    umem_why_t why;
    size_t room = nbytes < STAGE ? nbytes : STAGE, size;
    umf_memory_pool_handle_t pool = umem_pool_of_host(&why);
    operand_t stage = {&host.super, pool ? (uintptr_t)umfPoolMalloc(pool, room) : 0, NULL};
    umf_result_t result = stage.adr ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    umemHost_ctor(&host);
    for (; result == UMF_RESULT_SUCCESS && nbytes > 0; nbytes -= size) {
        size = nbytes < room ? nbytes : room;
        result = copy_on(stage, src, size);
        result = result ? result : copy_on(dest, stage, size);
        dest.adr += size;
        src.adr += size;
    }
    umfPoolFree(pool, (void *)stage.adr);
    return result;
}

/* Both addresses are pointers. */
static void copy_blocks(umemVirtual *blamed, operand_t dest, operand_t src, size_t nbytes) {
    if (!find_provider(dest.ctx, &dest.provider) || !find_provider(src.ctx, &src.provider)) {
        return;
    }
    umf_result_t result = check_address(dest.ctx, dest.adr);
    if (result == UMF_RESULT_SUCCESS) {
        result = check_address(src.ctx, src.adr);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = is_out_of_reach(dest.ctx, src.ctx) ? copy_staged(dest, src, nbytes)
                                                    : copy_on(dest, src, nbytes);
    }
    TRY_RETURN(blamed, result != UMF_RESULT_SUCCESS, umemRuntimeError, return,
               "copy of %zu bytes from %#" PRIxPTR " of %s to %#" PRIxPTR " of %s: %s", nbytes,
               src.adr, umem_get_device_name(src.ctx), dest.adr, umem_get_device_name(dest.ctx),
               umfResultText(result));
}

/* Errors of a copy between host memory and another context are the other one's. */
static umemVirtual *blamed_of(umemVirtual *first, umemVirtual *second) {
    return is_host(first) && !is_host(second) ? second : first;
}

void umem_block_copy_to(umemVirtual *const src_ctx, uintptr_t src_adr, umemVirtual *const dest_ctx,
                        uintptr_t dest_adr, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (nbytes == 0) {
        return;
    }
    if (is_block(dest_ctx)) {
        copy_blocks(blamed_of(src_ctx, dest_ctx), (operand_t){dest_ctx, dest_adr, NULL},
                    (operand_t){src_ctx, src_adr, NULL}, nbytes);
    } else if (is_host(src_ctx)) {
        umem_copy_from(dest_ctx, dest_adr, src_ctx, src_adr, nbytes);
    } else {
        umem_copy_to_via_host(src_ctx, src_adr, dest_ctx, dest_adr, nbytes);
    }
}

void umem_block_copy_from(umemVirtual *const dest_ctx, uintptr_t dest_adr,
                          umemVirtual *const src_ctx, uintptr_t src_adr, size_t nbytes) {
    UMEM_KEEP_ERRNO;
    if (nbytes == 0) {
        return;
    }
    if (is_block(src_ctx)) {
        copy_blocks(blamed_of(dest_ctx, src_ctx), (operand_t){dest_ctx, dest_adr, NULL},
                    (operand_t){src_ctx, src_adr, NULL}, nbytes);
    } else if (is_host(dest_ctx)) {
        umem_copy_to(src_ctx, src_adr, dest_ctx, dest_adr, nbytes);
    } else {
        umem_copy_from_via_host(dest_ctx, dest_adr, src_ctx, src_adr, nbytes);
    }
}
