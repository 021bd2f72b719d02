/* Copies in files: a generation becomes a file of a folder, and memory of devices is read from it.
 * A file has no seals, and may change at any time: the bytes that were read are compared with the
 * sum, not the file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/draft.h"
#include "ext/vault/fill/fill.h"
#include "ext/vault/folder/folder.h"
#include "ext/vault/transfer.h"
#include "system/checksum.h"
#include "system/os.h"

/* --- reading ---------------------------------------------------------------------------------- */

static umf_result_t copy_lost(const umf_fill_t *fill, int error) {
    errno = error;
    UMF_LOG_PERROR("the file of a snapshot of vault %s cannot be read", fill->vault->link.name);
    return umf_fill_broken(fill, "the file of its snapshot was cut, or cannot be read: drop the "
                                 "generation");
}

umf_vault_copied_t umf_fill_copied(const umf_vault_slab_t *info) {
    umf_vault_copied_t copied;
    memcpy(&copied, info->device, sizeof(copied));
    return copied;
}

umf_result_t umf_fill_read(const umf_fill_t *fill, umf_fill_slab_t *slab) {
    umf_vault_copied_t copied = umf_fill_copied(&slab->info);
    umf_transfer_t transfer = {.provider = fill->device->provider,
                               .memory = slab->memory,
                               .size = (size_t)slab->info.size,
                               .fd = slab->source,
                               .offset = copied.offset,
                               .is_to_device = true,
                               .has_sum = true};
    if (copied.offset == UMF_VAULT_NO_CONTENT) {
        return umf_vault_device_clear(fill->device->provider, slab->memory,
                                      (size_t)slab->info.size);
    }
    umf_result_t result = umf_transfer_run(&transfer);
    if (transfer.error) {
        return copy_lost(fill, transfer.error);
    }
    return result || transfer.sum == copied.sum
               ? result
               : umf_fill_broken(fill, "the file of its snapshot has other content than at its "
                                       "snapshot: drop the generation");
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A generation that becomes a file. */
typedef struct store_t {
    umf_fill_t *fill;
    umf_vault_handle_t folder;
    umf_vault_draft_handle_t draft;
    int fd;
    uint64_t *places;  /* of the slabs of the table */
    uint64_t *digests; /* of its entries */
    bool *are_written;
    uint64_t table, size;
    umf_vault_array_t stored; /* umf_vault_slab_t, of devices */
} store_t;

static size_t room_of(uint64_t count, size_t each) {
    return (size_t)(count + 1) * each;
}

/* The table of the file has a sum of each entry. */
static umf_result_t plan(store_t *store) {
    const umf_table_t *table = &store->fill->table;
    const umf_table_head_t *head = table->head;
    store->places = umf_meta_alloc(room_of(head->slabs, sizeof(uint64_t)));
    store->digests = umf_meta_alloc(room_of(head->entries, sizeof(uint64_t)));
    store->are_written = umf_meta_alloc(room_of(head->slabs, sizeof(bool)));
    if (!store->places || !store->digests || !store->are_written) {
        return umf_vault_no_memory(ENOMEM, "the table of a file");
    }
    store->table = head->size + (table->digests ? 0 : head->entries * sizeof(uint64_t));
    uint64_t at = sizeof(umf_folder_head_t) + store->table;
    bool fits = store->table <= UMF_FOLDER_TABLE_MAX;
    for (uint32_t i = 0; i < head->slabs && fits; i++) {
        fits = umf_folder_next(&at, &table->slabs[i], &store->places[i]);
    }
    store->size = umf_folder_round(at);
    return fits ? UMF_RESULT_SUCCESS
                : umf_folder_failed(store->folder, EFBIG, "the generation is too large for a file");
}

/* Memory of this process with the content of the slab. */
static umf_result_t slab_load(store_t *store, umf_fill_slab_t *slab) {
    umf_fill_t *fill = store->fill;
    umf_vault_copied_t copied = umf_fill_copied(&slab->info);
    if (slab->info.kind == UMF_VAULT_KIND_HOST) {
        return umf_fill_map(fill, slab);
    }
    umf_result_t result = umf_fill_host(slab);
    if (result != UMF_RESULT_SUCCESS || slab->info.kind == UMF_VAULT_KIND_DEVICE) {
        return result ? result : umf_fill_fetch(fill, slab);
    }
    int error = umf_os_read_at(slab->source, slab->host, (size_t)slab->info.size, copied.offset);
    return error ? copy_lost(fill, error) : UMF_RESULT_SUCCESS;
}

static void digests_add(store_t *store, uint32_t index, const char *host) {
    const umf_table_t *table = &store->fill->table;
    for (uint32_t i = 0; i < table->head->entries; i++) {
        const umf_table_entry_t *entry = &table->entries[i];
        if (entry->slab == index) {
            store->digests[i] = table->digests && table->digests[i]
                                    ? table->digests[i] /* compared before */
                                    : umf_table_digest(host + entry->offset, (size_t)entry->size);
        }
    }
}

/* `*sum`: the sum of the written bytes. `expected`: the sum of the copy that they come from; 0:
 * none. */
static umf_result_t slab_write(store_t *store, umf_fill_slab_t *slab, uint32_t index,
                               uint64_t expected, uint64_t *sum) {
    umf_fill_t *fill = store->fill;
    size_t size = (size_t)slab->info.size;
    umf_result_t result = slab_load(store, slab);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *sum = umf_table_digest_of(umf_table_slab_sum(slab->host, 0, size));
    if (expected && *sum != expected) {
        return umf_fill_broken(fill, "a copy has other content than at its snapshot: drop the "
                                     "generation");
    }
    result = umf_fill_check(fill, slab);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    digests_add(store, index, slab->host);
    store->are_written[index] = true;
    int error = umf_os_write_at(store->fd, slab->host, size, store->places[index]);
    return error ? umf_folder_failed(store->folder, error, "writing a snapshot")
                 : UMF_RESULT_SUCCESS;
}

/* One that the table does not have has no content in the file. */
static umf_result_t slab_store(void *arg, const umf_vault_slab_t *info, int *fd) {
    store_t *store = arg;
    umf_fill_t *fill = store->fill;
    umf_result_t result = store->places ? UMF_RESULT_SUCCESS : plan(store);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    uint32_t index = umf_fill_index(fill, info->serial);
    const umf_vault_slab_t *of = index < UINT32_MAX ? &fill->table.slabs[index] : NULL;
    bool is_copy = info->role == UMF_VAULT_CLASS_COPY;
    uint64_t known = is_copy ? umf_fill_copied(info).sum : 0;
    umf_vault_copied_t copied = {known ? known : 1, UMF_VAULT_NO_CONTENT};
    if (info->size > SIZE_MAX / 2 ||
        (of && (of->size != info->size || store->are_written[index] ||
                (of->kind == UMF_VAULT_KIND_DEVICE) !=
                    (is_copy || info->kind == UMF_VAULT_KIND_DEVICE)))) {
        return umf_fill_broken(fill, "a slab is not as its table says");
    }
    if (of && info->kind == UMF_VAULT_KIND_DEVICE) {
        result = umf_vault_device_get(fill->vault, UMF_FILL_MEMORY, of->device, &fill->device);
    }
    if (of && result == UMF_RESULT_SUCCESS) {
        fill->slabs[0] = (umf_fill_slab_t){.info = *info, .source = *fd, .made = -1};
        fill->count = 1;
        *fd = -1;
        result = slab_write(store, &fill->slabs[0], index, known, &copied.sum);
        copied.offset = store->places[index];
        umf_fill_cancel(fill);
    }
    if (result != UMF_RESULT_SUCCESS || (!is_copy && info->kind != UMF_VAULT_KIND_DEVICE)) {
        return result;
    }
    umf_vault_slab_t *stored = umf_vault_array_add(&store->stored, sizeof(*stored), 1);
    if (!stored) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *stored =
        (umf_vault_slab_t){.serial = info->serial, .size = info->size, .kind = UMF_VAULT_KIND_FILE};
    memcpy(stored->device, &copied, sizeof(copied));
    return UMF_RESULT_SUCCESS;
}

/* Writes the slabs that the service has of the generation. */
static umf_result_t content_write(store_t *store, uint64_t timeout_ms) {
    umf_fill_t *fill = store->fill;
    umf_result_t result;
    do {
        umf_vault_message_t answer;
        uint64_t from = fill->next;
        result = umf_fill_ask(fill, timeout_ms, &answer);
        result = result ? result : umf_fill_each(fill, slab_store, store);
        fill->next = answer.words[2];
        if (result == UMF_RESULT_SUCCESS && fill->next && fill->next <= from) {
            result = umf_fill_broken(fill, "the service sends no slabs");
        }
    } while (result == UMF_RESULT_SUCCESS && fill->next);
    return result ? result : store->places ? UMF_RESULT_SUCCESS : plan(store);
}

static int table_fill(const store_t *store, umf_table_source_t *sources, umf_vault_slab_t *slabs) {
    const umf_table_t *table = &store->fill->table;
    const umf_table_head_t *head = table->head;
    void *made = NULL;
    for (uint32_t i = 0; i < head->slabs; i++) {
        bool is_zero = table->slabs[i].role == UMF_VAULT_CLASS_ZERO;
        slabs[i] = (umf_vault_slab_t){.serial = is_zero ? 0 : i + 1,
                                      .size = table->slabs[i].size,
                                      .role = table->slabs[i].role,
                                      .kind = UMF_VAULT_KIND_HOST};
    }
    for (uint32_t i = 0; i < head->entries; i++) {
        const umf_table_entry_t *entry = &table->entries[i];
        const char *key = umf_table_key(table, i);
        sources[i] = (umf_table_source_t){.key = key,
                                          .note = key + entry->key_size + 1,
                                          .offset = entry->offset,
                                          .size = entry->size,
                                          .digest = store->digests[i],
                                          .slab = entry->slab,
                                          .note_size = entry->note_size,
                                          .key_size = entry->key_size,
                                          .flags = entry->flags};
    }
    int error = umf_os_map(&made, (size_t)store->table, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (error == 0) {
        umf_table_write(made, (size_t)store->table, sources, head->entries, slabs, head->slabs,
                        table->bytes, head->identity);
        error = umf_os_write_at(store->fd, made, (size_t)store->table, sizeof(umf_folder_head_t));
        umf_os_unmap(made, (size_t)store->table);
    }
    return error;
}

/* The head is last: a file without it is none. */
static umf_result_t table_write(store_t *store) {
    const umf_table_head_t *of = store->fill->table.head;
    umf_folder_head_t head = {
        .magic = UMF_FOLDER_MAGIC, .size = store->size, .table = store->table};
    umf_table_source_t *sources = umf_meta_alloc(room_of(of->entries, sizeof(*sources)));
    umf_vault_slab_t *slabs = umf_meta_alloc(room_of(of->slabs, sizeof(*slabs)));
    int error = sources && slabs ? 0 : ENOMEM;
    for (uint32_t i = 0; i < of->slabs && error == 0; i++) {
        if (!store->are_written[i] && store->fill->table.slabs[i].role != UMF_VAULT_CLASS_ZERO) {
            error = ENODATA;
        }
    }
    error = error ? error : umf_os_write_at(store->fd, "", 1, store->size - 1);
    error = error ? error : table_fill(store, sources, slabs);
    error = error ? error : umf_os_write_at(store->fd, &head, sizeof(head), 0);
    error = error ? error : umf_os_sync(store->fd);
    umf_meta_free(sources, room_of(of->entries, sizeof(*sources)));
    umf_meta_free(slabs, room_of(of->slabs, sizeof(*slabs)));
    return error == ENODATA ? umf_fill_broken(store->fill, "a slab of its table is missing")
                            : (error ? umf_folder_failed(store->folder, error, "writing a snapshot")
                                     : UMF_RESULT_SUCCESS);
}

/* The service gets a descriptor of the file for each slab. */
static umf_result_t file_give(store_t *store, int file) {
    umf_fill_t *fill = store->fill;
    umf_result_t result = UMF_RESULT_SUCCESS;
    int fds[UMF_VAULT_GIVE_MAX];
    for (unsigned i = 0; i < UMF_VAULT_GIVE_MAX; i++) {
        fds[i] = file;
    }
    for (size_t at = 0; at < store->stored.count && result == UMF_RESULT_SUCCESS;) {
        size_t left = store->stored.count - at;
        unsigned count = left < UMF_VAULT_GIVE_MAX ? (unsigned)left : UMF_VAULT_GIVE_MAX;
        umf_link_call_t call = {.message = {.op = UMF_VAULT_FILLED,
                                            .words = {fill->generation, fill->what, fill->file}},
                                .body = (umf_vault_slab_t *)store->stored.items + at,
                                .body_size = (uint32_t)(count * sizeof(umf_vault_slab_t)),
                                .pass = fds,
                                .passes = count,
                                .is_bound = true};
        result = umf_link_call(&fill->vault->link, &call);
        if (result == UMF_RESULT_SUCCESS && call.message.answer == UMF_VAULT_UNSEALED) {
            result = UMF_FAIL(UMF_REASON_DENIED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                              "%s: the file of a snapshot must belong to the user of the service",
                              store->folder->link.name);
        } else if (result == UMF_RESULT_SUCCESS) {
            result = umf_link_result(&fill->vault->link, &call.message, fill->vault->link.name);
        }
        at += count;
    }
    return result;
}

static umf_result_t file_publish(store_t *store) {
    int file;
    umf_result_t result = umf_folder_file_publish(store->draft, store->fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    int error = umf_folder_file_open(store->draft, store->fd, &file);
    if (error != 0) {
        return umf_folder_failed(store->folder, error, "the file of a snapshot cannot be opened");
    }
    result = file_give(store, file);
    umf_os_close(file);
    if (result != UMF_RESULT_SUCCESS) {
        umf_reason_t reason = umfLastReason();
        umf_vault_folder_drop(store->folder, store->draft->number, false);
        umf_last_reason_set(reason);
    }
    return result;
}

/* A number for the file that no other one has: of its device, its inode and the time. */
static uint64_t file_number(int fd) {
    umf_os_identity_t identity = {0};
    umf_os_identity(fd, &identity);
    uint64_t number = umf_sum(&identity, sizeof(identity));
    return number ? number : 1;
}

static umf_result_t store_all(store_t *store, uint64_t timeout_ms) {
    umf_fill_t *fill = store->fill;
    umf_result_t result = umf_folder_file_make(store->draft, &store->fd);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    fill->file = file_number(store->fd);
    result = content_write(store, timeout_ms);
    result = result ? result : table_write(store);
    result = result ? result : file_publish(store);
    umf_fill_end(fill);
    umf_os_close(store->fd);
    if (fill->table_at) {
        const umf_table_head_t *head = fill->table.head;
        umf_meta_free(store->places, room_of(head->slabs, sizeof(*store->places)));
        umf_meta_free(store->are_written, room_of(head->slabs, sizeof(*store->are_written)));
        umf_meta_free(store->digests, room_of(head->entries, sizeof(*store->digests)));
    }
    umf_meta_free(store->stored.items, store->stored.room);
    return result;
}

umf_result_t umf_fill_store(umf_fill_t *fill, const char *folder, uint64_t timeout_ms) {
    char name[UMF_VAULT_PLACE_SIZE + sizeof(UMF_FOLDER_PREFIX)];
    umf_vault_draft_params_t begin = UMF_VAULT_DRAFT_PARAMS_INIT;
    store_t store = {.fill = fill};
    int length = snprintf(name, sizeof(name), UMF_FOLDER_PREFIX "%s", folder);
    if (length >= (int)sizeof(name)) {
        UMF_LOG_ERROR("the path of a folder has at most %d bytes", UMF_VAULT_PLACE_SIZE - 1);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = umfVaultOpen(name, NULL, &store.folder);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    begin.timeout_ms = timeout_ms;
    result = umfVaultBegin(store.folder, &begin, &store.draft);
    if (result == UMF_RESULT_SUCCESS) {
        result = store_all(&store, timeout_ms);
        umf_reason_t reason = umfLastReason();
        umfVaultAbort(store.draft); /* after it has become a generation only its lock */
        umf_last_reason_set(reason);
    }
    umfVaultClose(store.folder);
    return result;
}
