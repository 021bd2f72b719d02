#include "ext/vault/transfer.h"

#include <stdatomic.h>

#include "ext/staging/stage.h"
#include "ext/vault/table.h"
#include "system/os.h"

/* The end of a transfer at its file. Several threads use it. */
typedef struct file_end_t {
    const umf_transfer_t *transfer;
    _Atomic uint64_t sum;
    _Atomic int error;
} file_end_t;

static umf_result_t copy_by_file(const umf_stage_end_t *end, void *queue, size_t at, size_t size,
                                 char *buffer, bool is_into_buffer) {
    file_end_t *file = (file_end_t *)(uintptr_t)end->what;
    const umf_transfer_t *transfer = file->transfer;
    int error = 0, none = 0;
    (void)queue;
    if (is_into_buffer) {
        error = umf_os_read_at(transfer->fd, buffer, size, transfer->offset + at);
    } else if (transfer->fd >= 0) {
        error = umf_os_write_at(transfer->fd, buffer, size, transfer->offset + at);
    }
    if (error != 0) {
        atomic_compare_exchange_strong(&file->error, &none, error);
        return UMF_RESULT_ERROR_UNKNOWN;
    }
    if (transfer->has_sum) {
        atomic_fetch_add(&file->sum, umf_table_slab_sum(buffer, at, size));
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_transfer_run(umf_transfer_t *transfer) {
    umf_operand_t operand;
    file_end_t file = {.transfer = transfer};
    size_t done;
    umf_operand_of_provider(&operand, transfer->provider);
    umf_stage_end_t device_end = {
        .operand = &operand, .what = transfer->memory, .copy = umf_stage_copy_by_provider};
    umf_stage_end_t file_end = {.what = &file, .copy = copy_by_file};
    umf_result_t result =
        umf_stage_run(transfer->is_to_device ? &device_end : &file_end,
                      transfer->is_to_device ? &file_end : &device_end, transfer->size, &done);
    transfer->sum = umf_table_digest_of(atomic_load(&file.sum));
    transfer->error = atomic_load(&file.error);
    return result;
}
