#include "vmm_shim.h"

#include <sys/wait.h>
#include <unistd.h>

#include "providers/vmm/own.h"

#define SHIM_PAGE ((size_t)65536)
#define SHIM_BASE ((uintptr_t)1 << 40)

typedef struct shim_vmm_t {
    umf_vmm_t vmm;
    uintptr_t marks, ended; /* the last that was made, and that has ended */
    unsigned asked_again;   /* marks that had ended */
    unsigned unmapped;
    bool is_child, destroys;
    int status; /* of the child */
} shim_vmm_t;

static umf_result_t shim_reserve(void *backend, size_t size, size_t alignment, uintptr_t *base) {
    (void)backend, (void)size, (void)alignment;
    *base = SHIM_BASE;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t shim_addresses(void *backend, uintptr_t base, size_t size) {
    (void)backend, (void)base, (void)size;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t shim_unmap(void *backend, uintptr_t base, size_t size) {
    (void)base, (void)size;
    ((shim_vmm_t *)backend)->unmapped++;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t shim_create(void *backend, size_t size, umf_physical_t *physical) {
    (void)backend, (void)size;
    *physical = 1;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t shim_destroy(void *backend, umf_physical_t physical) {
    (void)backend, (void)physical;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t shim_map(void *backend, uintptr_t base, size_t size, umf_physical_t physical) {
    (void)backend, (void)base, (void)size, (void)physical;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t shim_settle(void *backend) {
    (void)backend;
    return UMF_RESULT_SUCCESS;
}

static umf_result_t shim_mark(void *backend, void **mark) {
    *mark = (void *)++((shim_vmm_t *)backend)->marks;
    return UMF_RESULT_SUCCESS;
}

static void run_child(shim_vmm_t *shim) {
    size_t left = 0;
    umf_result_t result = UMF_RESULT_SUCCESS;
    shim->is_child = true;
    if (shim->destroys) {
        umf_vmm_fini(&shim->vmm);
    } else {
        result = umf_vmm_free_pending(shim, 1, &left);
    }
    _exit(result != UMF_RESULT_SUCCESS || shim->asked_again || left || shim->unmapped != 1);
}

static bool shim_mark_completed(void *backend, void *mark, bool waits) {
    shim_vmm_t *shim = backend;
    (void)waits;
    shim->asked_again += (uintptr_t)mark <= shim->ended;
    shim->ended = (uintptr_t)mark;
    if (!shim->is_child) {
        pid_t child = fork();
        if (child == 0) {
            run_child(shim);
        }
        waitpid(child, &shim->status, 0);
    }
    return true;
}

static const umf_vmm_backend_t shim_backend = {
    .reserve = shim_reserve,
    .unreserve = shim_addresses,
    .create = shim_create,
    .destroy = shim_destroy,
    .map = shim_map,
    .unmap = shim_unmap,
    .settle = shim_settle,
    .mark = shim_mark,
    .mark_completed = shim_mark_completed,
};

int shim_fork_while_a_mark_ends(bool destroys) {
    shim_vmm_t shim = {.status = -1, .destroys = destroys};
    void *ptr;
    umf_fork_register_inner();
    umf_fork_register_outer();
    if (umf_vmm_init(&shim.vmm, &shim_backend, SHIM_PAGE, 0) != UMF_RESULT_SUCCESS ||
        umf_vmm_alloc(&shim, SHIM_PAGE, 0, &ptr) != UMF_RESULT_SUCCESS ||
        umf_vmm_free(&shim, ptr, SHIM_PAGE) != UMF_RESULT_SUCCESS || shim.unmapped != 1) {
        return -1;
    }
    umf_vmm_fini(&shim.vmm);
    return shim.status;
}
