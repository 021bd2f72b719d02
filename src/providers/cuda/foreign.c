/*
 * Foreign memory: memory that the program itself, or another library, has from the CUDA driver. It
 * is copied on the default stream of the calling thread in the context of the memory, so it comes
 * after the program's work on its own default stream.
 */
#include "object/foreign.h"

#include "providers/cuda/copy.h"
#include "providers/cuda/wait.h"

_Static_assert(sizeof(umf_cuda_context_t) <= UMF_FOREIGN_SELF_SIZE, "it fits");

static umf_result_t stream_of_thread(void *provider, void **queue) {
    (void)provider;
    *queue = CU_STREAM_PER_THREAD;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t stream_stays(void *provider, void *queue) {
    (void)provider, (void)queue;
    return UMF_RESULT_SUCCESS;
}

static const umf_memory_provider_ext_ops_t cuda_foreign_ext = {
    .struct_size = sizeof(cuda_foreign_ext),
    .queue_create = stream_of_thread,
    .queue_destroy = stream_stays,
    UMF_CUDA_WORK_OPS,
    .wait = umf_cuda_op_wait_for,
};

static bool query(const umf_cuda_driver_t *driver, const void *ptr, CUpointer_attribute attribute,
                  void *value) {
    return driver->cuPointerGetAttribute(value, attribute, (CUdeviceptr)(uintptr_t)ptr) ==
           CUDA_SUCCESS;
}

/* Virtual memory belongs to no context. Then it is that of the thread, or the primary one of the
 * device, if that is in use: who has the memory keeps it. */
static CUcontext context_of(const umf_cuda_driver_t *driver, const void *ptr, CUdevice device) {
    CUcontext context = NULL;
    if (!query(driver, ptr, CU_POINTER_ATTRIBUTE_CONTEXT, &context)) {
        context = NULL;
    }
    if (!context && driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS) {
        context = NULL;
    }
    if (!context && umf_cuda_primary_use(driver, device, &context)) {
        umf_cuda_primary_release(driver, device);
    }
    return context;
}

static void find_range(const umf_cuda_driver_t *driver, const void *ptr, umf_foreign_t *memory) {
    CUdeviceptr base = 0;
    size_t size = 0;
    if (query(driver, ptr, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, &base) &&
        query(driver, ptr, CU_POINTER_ATTRIBUTE_RANGE_SIZE, &size)) {
        memory->base = (uintptr_t)base;
        memory->size = size;
    }
}

static bool cuda_foreign_find(const void *ptr, umf_foreign_t *memory) {
    const umf_cuda_driver_t *driver = umf_cuda_driver_if_loaded();
    unsigned type = 0, is_managed = 0;
    if (!driver || !driver->cuPointerGetAttribute ||
        !query(driver, ptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, &type)) {
        return false;
    }
    *memory = (umf_foreign_t){.device = -1, .ext = &cuda_foreign_ext};
    query(driver, ptr, CU_POINTER_ATTRIBUTE_IS_MANAGED, &is_managed);
    memory->type = is_managed                   ? UMF_MEMORY_TYPE_SHARED
                   : type == CU_MEMORYTYPE_HOST ? UMF_MEMORY_TYPE_HOST
                                                : UMF_MEMORY_TYPE_DEVICE;
    query(driver, ptr, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, &memory->device);
    find_range(driver, ptr, memory);
    umf_cuda_context_t *self = (umf_cuda_context_t *)memory->self;
    CUdevice device = memory->device < 0 ? 0 : memory->device;
    *self = (umf_cuda_context_t){
        .driver = driver, .handle = context_of(driver, ptr, device), .device = device};
    if (!self->handle) {
        memory->ext = NULL;
    }
    return true;
}

static umf_foreign_finder_t finder = {.find = cuda_foreign_find};

__attribute__((constructor)) static void finder_register(void) {
    umf_foreign_register(&finder);
}
