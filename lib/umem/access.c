/* Whose memory reaches whom, and which contexts stand for the same memory. */
#include "umem/own.h"

#include <string.h>

#include <umf/result.h>

/* How access from one kind to another is decided. */
typedef enum rule_t { NO = 0, YES, SAME_NAME, DEVICE, STREAM } rule_t;

#define KINDS (umemRMMDevice + 1)

/* By kind of the source, then of the destination. */
static const rule_t rules[KINDS][KINDS] = {
    [umemHostDevice] = {[umemHostDevice] = YES},
    [umemFileDevice] = {[umemFileDevice] = SAME_NAME},
    [umemCudaDevice] = {[umemCudaDevice] = DEVICE, [umemCudaManagedDevice] = YES},
    [umemCudaHostDevice] = {[umemHostDevice] = YES,
                            [umemCudaDevice] = YES,
                            [umemCudaHostDevice] = YES,
                            [umemCudaManagedDevice] = YES,
                            [umemRMMDevice] = YES},
    [umemCudaManagedDevice] = {[umemHostDevice] = YES, [umemCudaManagedDevice] = YES},
    [umemMMapDevice] = {[umemHostDevice] = YES, [umemMMapDevice] = SAME_NAME},
    [umemRMMDevice] = {[umemRMMDevice] = STREAM},
};

static const char *filename_of(const umemVirtual *ctx) {
    return ctx->type == umemFileDevice ? ((const umemFile *)ctx)->filename
                                       : ((const umemMMap *)ctx)->filename;
}

static bool same_name(const umemVirtual *one, const umemVirtual *other) {
    const char *name = filename_of(one), *other_name = filename_of(other);
    return name && other_name && strcmp(name, other_name) == 0;
}

static bool reaches_peer(umemVirtual *src, int device, int peer) {
    umem_why_t why = {""};
    bool reaches = device == peer || umem_pool_serves_peer(device, peer, &why);
    if (why.text[0]) {
        umem_set_status(src, umemRuntimeError, why.text);
    }
    return reaches && !why.text[0];
}

static bool same_stream(const umemRMM *one, const umemRMM *other) {
    return one->device == other->device && one->stream == other->stream;
}

bool umem_kinds_accessible(umemVirtual *const src_ctx, umemVirtual *const dest_ctx) {
    UMEM_KEEP_ERRNO;
    if ((unsigned)src_ctx->type >= KINDS || (unsigned)dest_ctx->type >= KINDS) {
        return false;
    }
    switch (rules[src_ctx->type][dest_ctx->type]) {
    case YES:
        return true;
    case SAME_NAME:
        return same_name(src_ctx, dest_ctx);
    case DEVICE:
        return reaches_peer(src_ctx, ((umemCuda *)src_ctx)->device, ((umemCuda *)dest_ctx)->device);
    case STREAM:
        return same_stream((umemRMM *)src_ctx, (umemRMM *)dest_ctx);
    default:
        return false;
    }
}

bool umem_is_same_device(void *const one_ctx, void *const other_ctx) {
    umemVirtual *one = one_ctx, *other = other_ctx;
    if (one == other) {
        return true;
    }
    if (one->type != other->type) {
        return false;
    }
    switch (one->type) {
    case umemCudaDevice:
        return ((umemCuda *)one)->device == ((umemCuda *)other)->device;
    case umemRMMDevice:
        return ((umemRMM *)one)->device == ((umemRMM *)other)->device;
    case umemFileDevice:
    case umemMMapDevice:
        return same_name(one, other);
    default:
        return one->type != umemVirtualDevice;
    }
}
