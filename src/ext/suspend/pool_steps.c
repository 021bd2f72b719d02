/* The steps of a suspend and a resume of one pool: content, memory and the callbacks about it. */
#include "ext/staging/queue.h"
#include "ext/suspend/suspendable.h"
#include "object/provider/memory_watch.h"

/* --- saving and restoring --------------------------------------------------------------------- */

static bool is_kept(const umf_suspendable_t *suspendable) {
    return suspendable->policy.keep != UMF_SUSPEND_ZERO &&
           suspendable->policy.keep != UMF_SUSPEND_DISCARD;
}

umf_result_t umf_suspendable_save(umf_suspendable_t *suspendable) {
    if (suspendable->count == 0 || !is_kept(suspendable)) {
        return UMF_RESULT_SUCCESS;
    }
    if (!umf_store_can(umf_suspendable_provider(suspendable), suspendable->policy.keep)) {
        return UMF_RESULT_ERROR_NOT_SUPPORTED;
    }
    umf_result_t result =
        umf_store_create(umf_suspendable_provider(suspendable), &suspendable->policy,
                         suspendable->part_bytes, &suspendable->store);
    return result == UMF_RESULT_SUCCESS
               ? umf_store_save(suspendable->store, suspendable->parts, suspendable->part_count)
               : result;
}

static umf_result_t queue_zeroes(const umf_operand_t *operand, void *queue, void *arg) {
    const umf_suspendable_t *suspendable = arg;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < suspendable->part_count && result == UMF_RESULT_SUCCESS; i++) {
        result = operand->ext->fill(operand->self, queue, suspendable->parts[i].base, 0,
                                    suspendable->parts[i].size);
    }
    return result;
}

static umf_result_t suspendable_zero(umf_suspendable_t *suspendable) {
    umf_operand_t operand;
    umf_operand_of_provider(&operand, umf_suspendable_provider(suspendable));
    return umf_queue_run(&operand, queue_zeroes, suspendable, NULL);
}

umf_result_t umf_suspendable_load(umf_suspendable_t *suspendable) {
    if (suspendable->count == 0 || suspendable->policy.keep == UMF_SUSPEND_DISCARD) {
        return UMF_RESULT_SUCCESS;
    }
    return suspendable->policy.keep == UMF_SUSPEND_ZERO
               ? suspendable_zero(suspendable)
               : umf_store_load(suspendable->store, suspendable->parts, suspendable->part_count);
}

/* --- memory ----------------------------------------------------------------------------------- */

umf_result_t umf_suspendable_create(umf_suspendable_t *suspendable, size_t *missing) {
    umf_suspend_vm_t vm = umf_suspendable_vm(suspendable);
    return suspendable->count
               ? vm.ext->vm_create(vm.self, suspendable->bases, suspendable->count, missing)
               : UMF_RESULT_SUCCESS;
}

umf_result_t umf_suspendable_attach(umf_suspendable_t *suspendable) {
    umf_suspend_vm_t vm = umf_suspendable_vm(suspendable);
    return suspendable->count ? vm.ext->vm_attach(vm.self, suspendable->bases, suspendable->count)
                              : UMF_RESULT_SUCCESS;
}

/* A range that callbacks are called for: a part, or a piece, where the pool has its own, since all
 * of that one's pages change. `size` 0: it is gone. */
typedef struct told_t {
    void *base;
    size_t size;
} told_t;

static size_t told_count(const umf_suspendable_t *suspendable) {
    return umf_suspendable_own_pieces(suspendable) ? suspendable->count : suspendable->part_count;
}

static told_t told_at(const umf_suspendable_t *suspendable, size_t i) {
    if (umf_suspendable_own_pieces(suspendable)) {
        const umf_suspend_piece_t *piece = &suspendable->pieces[i];
        return (told_t){piece->base, piece->gone ? 0 : piece->size};
    }
    return (told_t){suspendable->parts[i].base, suspendable->parts[i].size};
}

/* Those before `count`, the last one first. */
static void notify_unmapping(const umf_suspendable_t *suspendable, size_t count) {
    for (size_t i = count; i-- > 0;) {
        const told_t told = told_at(suspendable, i);
        umf_memory_watch_unmapping(suspendable->pool->tracked, told.base, told.size, 0);
    }
}

void umf_suspendable_notify_unmapping(const umf_suspendable_t *suspendable) {
    if (umf_memory_watch_of(suspendable->pool->tracked)) {
        notify_unmapping(suspendable, told_count(suspendable));
    }
}

umf_result_t umf_suspendable_notify_mapped(const umf_suspendable_t *suspendable) {
    const umf_tracked_provider_t *tracked = suspendable->pool->tracked;
    size_t count = umf_memory_watch_of(tracked) ? told_count(suspendable) : 0;
    for (size_t i = 0; i < count; i++) {
        const told_t told = told_at(suspendable, i);
        umf_result_t result = umf_memory_watch_mapped(tracked, told.base, told.size);
        if (result != UMF_RESULT_SUCCESS) {
            notify_unmapping(suspendable, i);
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_suspendable_detach(umf_suspendable_t *suspendable) {
    umf_suspend_vm_t vm = umf_suspendable_vm(suspendable);
    return suspendable->count ? vm.ext->vm_detach(vm.self, suspendable->bases, suspendable->count)
                              : UMF_RESULT_SUCCESS;
}
