/* Lists of memory targets: how they are created, changed and filtered. */
#include "numa/memspace.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "numa/memtarget.h"
#include "topology/topology.h"

#define MEMSPACE_ROOM_MIN 4

const umf_handle_kind_t umf_handle_memspace = {"a memspace"};

/* --- making and changing ---------------------------------------------------------------------- */

/* Grows the array to at least `room` places. */
static umf_result_t memspace_reserve(umf_memspace_handle_t memspace, size_t room) {
    size_t bytes;
    if (room <= memspace->room) {
        return UMF_RESULT_SUCCESS;
    }
    umf_memtarget_handle_t *targets =
        umf_mul(room, sizeof(*targets), &bytes) ? umf_meta_alloc(bytes) : NULL;
    if (!targets) {
        UMF_LOG_ERROR("no memory for a memspace of %zu targets", room);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (memspace->count) {
        memcpy(targets, memspace->targets, memspace->count * sizeof(*targets));
    }
    umf_meta_free(memspace->targets, memspace->room * sizeof(*targets));
    memspace->targets = targets;
    memspace->room = room;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_memspace_create(umf_memspace_kind_t kind, size_t room,
                                 umf_memspace_handle_t *memspace) {
    umf_memspace_handle_t made = umf_meta_alloc(sizeof(*made));
    if (!made) {
        UMF_LOG_ERROR("no memory for a memspace");
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->kind = kind;
    umf_result_t result = memspace_reserve(made, room);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_handle_begin(made, &umf_handle_memspace);
        if (result != UMF_RESULT_SUCCESS) {
            umf_meta_free(made->targets, made->room * sizeof(*made->targets));
        }
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_meta_free(made, sizeof(*made));
        return result;
    }
    *memspace = made;
    return UMF_RESULT_SUCCESS;
}

void umf_memspace_destroy(umf_memspace_handle_t memspace) {
    if (memspace) {
        umf_handle_end(memspace, &umf_handle_memspace, __func__);
        for (size_t i = 0; i < memspace->count; i++) {
            umf_memtarget_destroy(memspace->targets[i]);
        }
        umf_meta_free(memspace->targets, memspace->room * sizeof(*memspace->targets));
        umf_meta_free(memspace, sizeof(*memspace));
    }
}

umf_result_t umf_memspace_append(umf_memspace_handle_t memspace, unsigned id) {
    if (memspace->count == memspace->room) {
        size_t room = memspace->room ? memspace->room * 2 : MEMSPACE_ROOM_MIN;
        umf_result_t result = memspace_reserve(memspace, room);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    umf_memtarget_handle_t target = umf_memtarget_create(id);
    if (!target) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    memspace->targets[memspace->count++] = target;
    return UMF_RESULT_SUCCESS;
}

/* The index of the target with that number; the count if there is none. */
static size_t memspace_find(umf_const_memspace_handle_t memspace, unsigned id) {
    size_t i = 0;
    while (i < memspace->count && memspace->targets[i]->id != id) {
        i++;
    }
    return i;
}

/* Whether the caller may change the memspace: predefined ones are constant. */
static bool memspace_is_own(umf_const_memspace_handle_t memspace, const char *function) {
    if (!umf_handle_check(memspace, &umf_handle_memspace, function)) {
        return false;
    }
    if (memspace->kind != UMF_MEMSPACE_ORDINARY) {
        UMF_LOG_ERROR("a predefined memspace belongs to the library and cannot be changed or "
                      "destroyed: change a clone of it (umfMemspaceClone)");
        return false;
    }
    return true;
}

static bool memspace_has_place(const void *place) {
    if (!place) {
        UMF_LOG_ERROR("no place for the memspace (hMemspace is NULL)");
    }
    return place != NULL;
}

UMF_API_1_0 umf_result_t umfMemspaceNew(umf_memspace_handle_t *hMemspace) {
    return memspace_has_place(hMemspace) ? umf_memspace_create(UMF_MEMSPACE_ORDINARY, 0, hMemspace)
                                         : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* The targets of `like`, or with NULL those of `ids`. */
static umf_result_t memspace_make(umf_const_memspace_handle_t like, const unsigned *ids,
                                  size_t count, umf_memspace_handle_t *out) {
    umf_memspace_handle_t made = NULL;
    umf_result_t result = umf_memspace_create(UMF_MEMSPACE_ORDINARY, count, &made);
    for (size_t i = 0; result == UMF_RESULT_SUCCESS && i < count; i++) {
        result = umf_memspace_append(made, like ? like->targets[i]->id : ids[i]);
    }
    if (result != UMF_RESULT_SUCCESS) {
        umf_memspace_destroy(made);
        return result;
    }
    *out = made;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfMemspaceCreateFromNumaArray(unsigned *nodeIds, size_t numIds,
                                                        umf_memspace_handle_t *hMemspace) {
    if (!memspace_has_place(hMemspace)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!nodeIds || numIds == 0) {
        UMF_LOG_ERROR("the list of NUMA nodes is %s", nodeIds ? "empty" : "NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return memspace_make(NULL, nodeIds, numIds, hMemspace);
}

UMF_API_1_0 umf_result_t umfMemspaceClone(umf_const_memspace_handle_t hMemspace,
                                          umf_memspace_handle_t *hNewMemspace) {
    if (!umf_handle_check(hMemspace, &umf_handle_memspace, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!memspace_has_place(hNewMemspace)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return memspace_make(hMemspace, NULL, hMemspace->count, hNewMemspace);
}

UMF_API_1_0 umf_result_t umfMemspaceDestroy(umf_memspace_handle_t hMemspace) {
    if (!memspace_is_own(hMemspace, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_memspace_destroy(hMemspace);
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 size_t umfMemspaceMemtargetNum(umf_const_memspace_handle_t hMemspace) {
    return umf_handle_check(hMemspace, &umf_handle_memspace, __func__) ? hMemspace->count : 0;
}

UMF_API_1_0 umf_const_memtarget_handle_t
umfMemspaceMemtargetGet(umf_const_memspace_handle_t hMemspace, unsigned targetNum) {
    return umf_handle_check(hMemspace, &umf_handle_memspace, __func__) &&
                   targetNum < hMemspace->count
               ? hMemspace->targets[targetNum]
               : NULL;
}

UMF_API_1_0 umf_result_t umfMemspaceMemtargetAdd(umf_memspace_handle_t hMemspace,
                                                 umf_const_memtarget_handle_t hMemtarget) {
    if (!memspace_is_own(hMemspace, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_handle_check(hMemtarget, &umf_handle_memtarget, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (memspace_find(hMemspace, hMemtarget->id) < hMemspace->count) {
        UMF_LOG_ERROR("NUMA node %u is in the memspace already", hMemtarget->id);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return umf_memspace_append(hMemspace, hMemtarget->id);
}

UMF_API_1_0 umf_result_t umfMemspaceMemtargetRemove(umf_memspace_handle_t hMemspace,
                                                    umf_const_memtarget_handle_t hMemtarget) {
    if (!memspace_is_own(hMemspace, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!umf_handle_check(hMemtarget, &umf_handle_memtarget, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t at = memspace_find(hMemspace, hMemtarget->id);
    if (at == hMemspace->count) {
        UMF_LOG_ERROR("NUMA node %u is not in the memspace", hMemtarget->id);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    /* hMemtarget may be the handle of this very target, so it is not used afterwards. */
    umf_memtarget_destroy(hMemspace->targets[at]);
    hMemspace->count--;
    memmove(&hMemspace->targets[at], &hMemspace->targets[at + 1],
            (hMemspace->count - at) * sizeof(*hMemspace->targets));
    return UMF_RESULT_SUCCESS;
}

/* --- filters ---------------------------------------------------------------------------------- */

/* Asks the filter about every target before the first one is removed. 1 in `answers` keeps it. */
static umf_result_t memspace_ask(umf_const_memspace_handle_t memspace,
                                 umf_memspace_filter_func_t filter, void *args, bool *answers) {
    for (size_t i = 0; i < memspace->count; i++) {
        int answer = filter(memspace, memspace->targets[i], args);
        if (answer < 0) {
            UMF_LOG_ERROR("the filter answered %d for NUMA node %u; the memspace stays as it was",
                          answer, memspace->targets[i]->id);
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
        answers[i] = answer > 0;
    }
    return UMF_RESULT_SUCCESS;
}

static void memspace_keep(umf_memspace_handle_t memspace, const bool *answers) {
    size_t kept = 0;
    for (size_t i = 0; i < memspace->count; i++) {
        if (answers[i]) {
            memspace->targets[kept++] = memspace->targets[i];
        } else {
            umf_memtarget_destroy(memspace->targets[i]);
        }
    }
    memspace->count = kept;
}

static umf_result_t memspace_filter(umf_memspace_handle_t memspace,
                                    umf_memspace_filter_func_t filter, void *args) {
    size_t bytes = memspace->count * sizeof(bool);
    bool *answers = umf_meta_alloc(bytes);
    if (!answers) {
        UMF_LOG_ERROR("no memory to filter %zu targets", memspace->count);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_result_t result = memspace_ask(memspace, filter, args, answers);
    if (result == UMF_RESULT_SUCCESS) {
        memspace_keep(memspace, answers);
    }
    umf_meta_free(answers, bytes);
    return result;
}

UMF_API_1_0 umf_result_t umfMemspaceUserFilter(umf_memspace_handle_t hMemspace,
                                               umf_memspace_filter_func_t filter, void *args) {
    if (!memspace_is_own(hMemspace, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!filter) {
        UMF_LOG_ERROR("the filter is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return memspace_filter(hMemspace, filter, args);
}

typedef struct memspace_ids_t {
    const unsigned *ids;
    size_t count;
} memspace_ids_t;

static int memspace_is_listed(umf_const_memspace_handle_t memspace,
                              umf_const_memtarget_handle_t target, void *args) {
    const memspace_ids_t *list = args;
    (void)memspace;
    for (size_t i = 0; i < list->count; i++) {
        if (list->ids[i] == target->id) {
            return 1;
        }
    }
    return 0;
}

UMF_API_1_0 umf_result_t umfMemspaceFilterById(umf_memspace_handle_t hMemspace, unsigned *ids,
                                               size_t size) {
    if (!memspace_is_own(hMemspace, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!ids || size == 0) {
        UMF_LOG_ERROR("the list of NUMA nodes to keep is %s", ids ? "empty" : "NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memspace_ids_t list = {.ids = ids, .count = size};
    return memspace_filter(hMemspace, memspace_is_listed, &list);
}

typedef struct memspace_size_t {
    const umf_topology_t *topology;
    size_t size;
} memspace_size_t;

static int memspace_is_large(umf_const_memspace_handle_t memspace,
                             umf_const_memtarget_handle_t target, void *args) {
    const memspace_size_t *requested = args;
    (void)memspace;
    const umf_topology_node_t *node = umf_topology_find(requested->topology, target->id);
    return node && node->capacity >= requested->size;
}

UMF_API_1_0 umf_result_t umfMemspaceFilterByCapacity(umf_memspace_handle_t hMemspace,
                                                     int64_t size) {
    if (!memspace_is_own(hMemspace, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (size < 0) {
        UMF_LOG_ERROR("a capacity of %lld bytes is negative", (long long)size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    memspace_size_t requested = {.size = (size_t)size};
    umf_result_t result = umf_topology_get(&requested.topology);
    return result == UMF_RESULT_SUCCESS ? memspace_filter(hMemspace, memspace_is_large, &requested)
                                        : result;
}
