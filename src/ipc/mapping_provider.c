/* Mapping: the calls to the provider, and the data it gets. */
#include "ipc/mapping_own.h"

#include "base/log.h"
#include "peer/named.h"
#include "peer/process.h"

/* Checks that all bytes of a handle are there. */
static umf_result_t mapping_check_size(const umf_wire_t *wire, size_t size, size_t own_size) {
    size_t whole = UMF_WIRE_HEADER + (size_t)wire->data_size;
    if (whole <= (size == UMF_MAPPING_OWN_SIZE ? own_size : size)) {
        return UMF_RESULT_SUCCESS;
    }
    if (size != UMF_MAPPING_OWN_SIZE) {
        UMF_LOG_ERROR("an IPC handle of %zu bytes was cut off after %zu", whole, size);
    } else {
        UMF_LOG_ERROR("an IPC handle of %zu bytes, the pool's own have %zu and no more is read: "
                      "open it by umfOpenIPCHandleSized",
                      whole, own_size);
    }
    return UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

/* The number of bytes behind the header in handles of the provider itself. */
static umf_result_t mapping_own_size(umf_memory_provider_handle_t provider, size_t *size) {
    umf_result_t result = umfMemoryProviderGetIPCHandleSize(provider, size);
    if (result == UMF_RESULT_SUCCESS && *size > UINT32_MAX - UMF_WIRE_DATA_SLACK) {
        *size = UINT32_MAX - UMF_WIRE_DATA_SLACK; /* the longest handle possible */
    }
    return result;
}

umf_result_t umf_mapping_check_header(umf_mapping_owner_t *owner, const void *header, size_t size,
                                      umf_wire_t *wire) {
    size_t own_size;
    umf_result_t result = mapping_own_size(owner->provider, &own_size);
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_wire_check(header, own_size + UMF_WIRE_DATA_SLACK, wire);
    }
    if (result == UMF_RESULT_SUCCESS) {
        own_size += UMF_WIRE_HEADER;
        atomic_store_explicit(&owner->handle_size, own_size, memory_order_relaxed);
        result = mapping_check_size(wire, size, own_size);
    }
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (wire->kind && owner->kind && wire->kind != owner->kind) {
        UMF_LOG_ERROR(
            "the IPC handle was made by a provider of another kind than the pool's (%016llx, "
            "the pool's is %016llx)",
            (unsigned long long)wire->kind, (unsigned long long)owner->kind);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_mapping_copy_size(const umf_mapping_t *mapping, size_t *size) {
    size_t own_size;
    umf_result_t result = mapping_own_size(mapping->provider, &own_size);
    if (result == UMF_RESULT_SUCCESS) {
        size_t longest = own_size + UMF_WIRE_DATA_SLACK;
        size_t least = umf_mapping_data_bytes(mapping->wire.data_size);
        *size = longest > least ? longest : least;
    }
    return result;
}

bool umf_mapping_is_of_elsewhere(const umf_mapping_t *mapping) {
    umf_process_t self;
    umf_process_self(&self);
    return mapping->wire.boot_id != self.boot_id && umf_ipc_is_for_any_machine(mapping->provider);
}

static umf_result_t mapping_ask_for_elsewhere(umf_mapping_t *mapping, void *copy, void **base) {
    umf_result_t result = umf_ipc_check(mapping->provider, copy, mapping->wire.size);
    return result ? result : umfMemoryProviderOpenIPCHandle(mapping->provider, copy, base);
}

umf_result_t umf_mapping_ask_provider(umf_mapping_t *mapping, void *copy, void **base) {
    if (umf_mapping_is_of_elsewhere(mapping)) {
        return mapping_ask_for_elsewhere(mapping, copy, base);
    }
    umf_process_t process = {
        .boot_id = mapping->wire.boot_id,
        .start_time = mapping->wire.start_time,
        .pid = mapping->wire.pid,
        .pid_ns = mapping->wire.pid_ns,
    };
    umf_producers_t *producers = &umf_mapping_owner(mapping)->producers;
    umf_producer_t *producer = NULL;
    umf_result_t result = umf_producers_check(producers, &process, &producer);
    if (result == UMF_RESULT_ERROR_INVALID_ARGUMENT) {
        /* The producer has ended. A name that it left behind is removed. */
        int error;
        umf_named_reap(&error);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_ipc_check(mapping->provider, copy, mapping->wire.size);
    }
    if (result == UMF_RESULT_SUCCESS) {
        umf_process_known_t known = {.process = process, .file = umf_producer_file(producer)};
        umf_process_trust(&known);
        result = umfMemoryProviderOpenIPCHandle(mapping->provider, copy, base);
        umf_process_distrust();
    }
    if (result == UMF_RESULT_SUCCESS) {
        umf_producers_remember(producers, producer);
    }
    umf_producer_put(producer);
    return result;
}
