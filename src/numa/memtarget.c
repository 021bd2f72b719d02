/* One NUMA node as the member of a memspace. */
#include "numa/memtarget.h"

#include "base/log.h"
#include "base/meta.h"
#include "system/common.h"
#include "topology/topology.h"

const umf_handle_kind_t umf_handle_memtarget = {"a memory target"};

umf_memtarget_handle_t umf_memtarget_create(unsigned id) {
    umf_memtarget_handle_t target = umf_handle_new(sizeof(*target), &umf_handle_memtarget);
    if (target) {
        target->id = id;
    }
    return target;
}

void umf_memtarget_destroy(umf_memtarget_handle_t target) {
    umf_handle_end(target, &umf_handle_memtarget, __func__);
    umf_meta_free(target, sizeof(*target));
}

static bool memtarget_can_answer(umf_const_memtarget_handle_t target, const void *place,
                                 const char *function) {
    if (!umf_handle_check(target, &umf_handle_memtarget, function)) {
        return false;
    }
    if (!place) {
        UMF_LOG_ERROR("the place for the answer is NULL");
    }
    return place != NULL;
}

UMF_API_1_0 umf_result_t umfMemtargetGetType(umf_const_memtarget_handle_t hMemtarget,
                                             umf_memtarget_type_t *type) {
    if (!memtarget_can_answer(hMemtarget, type, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *type = UMF_MEMTARGET_TYPE_NUMA;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfMemtargetGetCapacity(umf_const_memtarget_handle_t hMemtarget,
                                                 size_t *capacity) {
    const umf_topology_t *topology;
    if (!memtarget_can_answer(hMemtarget, capacity, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umf_topology_get(&topology);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    const umf_topology_node_t *node = umf_topology_find(topology, hMemtarget->id);
    if (!node) {
        UMF_LOG_ERROR("there is no NUMA node %u on this machine", hMemtarget->id);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *capacity = node->capacity;
    return UMF_RESULT_SUCCESS;
}

UMF_API_1_0 umf_result_t umfMemtargetGetId(umf_const_memtarget_handle_t hMemtarget, unsigned *id) {
    if (!memtarget_can_answer(hMemtarget, id, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *id = hMemtarget->id;
    return UMF_RESULT_SUCCESS;
}
