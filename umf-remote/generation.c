#include "generation.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <umf.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/reason.h>
#include <umf/text.h>

#include "ext/fetch/wire.h"
#include "serve.h"
#include "system/checksum.h"

/* Runs have about this size, so that a reader that has most of a generation shares most of it. */
#define RUN_SIZE ((size_t)256 << 20)

/* A part of the view's memory: whole pages. */
typedef struct run_t {
    char *base;
    size_t size;
    unsigned flags;
    umf_memory_pool_handle_t pool; /* has it all as one block; NULL: it is not published */
    umf_remote_export_handle_t published;
} run_t;

typedef struct item_t {
    umf_vault_entry_t entry;
    uint32_t run;
} item_t;

struct generation_t {
    umf_vault_view_handle_t view;
    uint64_t number;
    item_t *items; /* by key */
    size_t count, room;
    run_t *runs;
    size_t run_count;
    char *table;
    size_t table_size;
    umf_remote_export_handle_t published;
};

void *block_new(size_t size) {
    static umf_memory_pool_handle_t pool;
    if (!pool && umfPoolCreateFromText("proxy over os", &pool) != UMF_RESULT_SUCCESS) {
        pool = NULL;
    }
    void *block = pool ? umfPoolMalloc(pool, size) : NULL;
    return block ? memset(block, 0, size) : NULL;
}

/* --- runs ------------------------------------------------------------------------------------- */

static int item_add(const umf_vault_entry_t *entry, void *arg) {
    generation_t *generation = arg;
    if (generation->count == generation->room) {
        size_t room = generation->room ? generation->room * 2 : 256;
        item_t *items = realloc(generation->items, room * sizeof(*items));
        if (!items) {
            return 1;
        }
        generation->items = items;
        generation->room = room;
    }
    generation->items[generation->count++] = (item_t){.entry = *entry};
    return 0;
}

static int by_address(const void *a, const void *b) {
    const item_t *one = *(item_t *const *)a, *two = *(item_t *const *)b;
    return (one->entry.ptr > two->entry.ptr) - (one->entry.ptr < two->entry.ptr);
}

/* Entries of the same pages are in one run, and those that follow them up to its size. */
static void run_find(generation_t *generation, item_t *item, size_t page) {
    char *begin = (char *)((uintptr_t)item->entry.ptr & ~(page - 1));
    uintptr_t last = (uintptr_t)item->entry.ptr + item->entry.size;
    char *end = (char *)((last + page - 1) & ~(page - 1));
    run_t *run = generation->run_count ? &generation->runs[generation->run_count - 1] : NULL;
    bool is_in = run && run->flags == item->entry.flags &&
                 (begin < run->base + run->size ||
                  (begin == run->base + run->size && (size_t)(end - run->base) <= RUN_SIZE));
    if (!is_in) {
        run = &generation->runs[generation->run_count++];
        *run = (run_t){.base = begin, .flags = item->entry.flags};
    }
    if (end > run->base + run->size) {
        run->size = (size_t)(end - run->base);
    }
    item->run = (uint32_t)(run - generation->runs);
}

static bool runs_make(generation_t *generation) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    item_t **sorted = malloc((generation->count + 1) * sizeof(*sorted));
    generation->runs = calloc(generation->count + 1, sizeof(*generation->runs));
    for (size_t i = 0; sorted && generation->runs && i < generation->count; i++) {
        sorted[i] = &generation->items[i];
    }
    if (sorted && generation->runs) {
        qsort(sorted, generation->count, sizeof(*sorted), by_address);
        for (size_t i = 0; i < generation->count; i++) {
            run_find(generation, sorted[i], page);
        }
    }
    bool is_made = sorted && generation->runs;
    free(sorted);
    return is_made;
}

/* A pool over the memory of the view, which no provider has. */
static bool run_publish(umf_remote_handle_t remote, run_t *run) {
    umf_fixed_memory_provider_params_handle_t params = NULL;
    umf_memory_provider_handle_t provider = NULL;
    void *block;
    umf_result_t result = umfFixedMemoryProviderParamsCreate(run->base, run->size, &params);
    if (result == UMF_RESULT_SUCCESS) {
        result = umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &provider);
        umfFixedMemoryProviderParamsDestroy(params);
    }
    if (result == UMF_RESULT_SUCCESS &&
        umfPoolCreate(umfProxyPoolOps(), provider, NULL, UMF_POOL_CREATE_FLAG_OWN_PROVIDER,
                      &run->pool) != UMF_RESULT_SUCCESS) {
        umfMemoryProviderDestroy(provider);
        run->pool = NULL;
        return false;
    }
    block = result == UMF_RESULT_SUCCESS ? umfPoolMalloc(run->pool, run->size) : NULL;
    return block == run->base && umfRemotePublish(remote, block, run->size, UMF_REMOTE_GET,
                                                  &run->published) == UMF_RESULT_SUCCESS;
}

static bool runs_publish(umf_remote_handle_t remote, generation_t *generation) {
    bool is_published = generation->run_count <= UMF_FETCH_RUNS_MAX;
    for (size_t i = 0; i < generation->run_count && is_published; i++) {
        run_t *run = &generation->runs[i];
        is_published = run->flags == UMF_VAULT_ZERO || run_publish(remote, run);
    }
    return is_published;
}

/* --- the table -------------------------------------------------------------------------------- */

static uint64_t digests_of(const item_t *item) {
    return item->entry.flags & UMF_VAULT_ZERO ? 0 : umf_fetch_pieces(item->entry.size);
}

/* Bytes of the table without and with what follows the digests. */
static size_t table_size(const generation_t *generation, uint64_t *digests, size_t identity) {
    size_t size = sizeof(umf_fetch_head_t) + generation->run_count * sizeof(umf_fetch_run_t) +
                  generation->count * sizeof(umf_fetch_entry_t) + identity +
                  generation->run_count * UMF_FETCH_HANDLE_MAX;
    *digests = 0;
    for (size_t i = 0; i < generation->count; i++) {
        const umf_vault_entry_t *entry = &generation->items[i].entry;
        *digests += digests_of(&generation->items[i]);
        size += strlen(entry->key) + 1 + entry->note_size;
    }
    return size + *digests * sizeof(uint64_t);
}

static void digest(const umf_vault_entry_t *entry, uint64_t *to) {
    for (size_t at = 0; at < entry->size; at += UMF_FETCH_PIECE) {
        size_t left = entry->size - at;
        *to++ = umf_sum((const char *)entry->ptr + at,
                        left < UMF_FETCH_PIECE ? left : (size_t)UMF_FETCH_PIECE);
    }
}

static void runs_write(const generation_t *generation, umf_fetch_run_t *to, char *bytes,
                       size_t *used) {
    for (size_t i = 0; i < generation->run_count; i++) {
        const run_t *run = &generation->runs[i];
        size_t size = run->published ? UMF_FETCH_HANDLE_MAX : 0;
        if (run->published) {
            umfRemoteGetHandle(run->published, bytes + *used, &size);
        }
        to[i] = (umf_fetch_run_t){
            .size = run->size, .handle = *used, .handle_size = (uint32_t)size, .flags = run->flags};
        *used += size;
    }
}

static void entries_write(const generation_t *generation, umf_fetch_entry_t *to, uint64_t *digests,
                          char *bytes, size_t *used) {
    uint64_t next = 0;
    for (size_t i = 0; i < generation->count; i++) {
        const item_t *item = &generation->items[i];
        const umf_vault_entry_t *entry = &item->entry;
        size_t key_size = strlen(entry->key);
        to[i] = (umf_fetch_entry_t){
            .offset = (uint64_t)((char *)entry->ptr - generation->runs[item->run].base),
            .size = entry->size,
            .key = *used,
            .digest = next,
            .run = item->run,
            .note_size = (uint16_t)entry->note_size,
            .key_size = (uint8_t)key_size,
            .flags = (uint8_t)entry->flags};
        memcpy(bytes + *used, entry->key, key_size + 1);
        *used += key_size + 1;
        if (entry->note_size) {
            memcpy(bytes + *used, entry->note, entry->note_size);
            *used += entry->note_size;
        }
        if (digests_of(item)) {
            digest(entry, digests + next);
            next += digests_of(item);
        }
    }
}

static bool table_make(generation_t *generation, const void *identity, size_t identity_size) {
    uint64_t digests;
    size_t size = table_size(generation, &digests, identity_size);
    generation->table = size <= UMF_FETCH_TABLE_MAX ? block_new(size) : NULL;
    if (!generation->table) {
        return false;
    }
    umf_fetch_head_t *head = (umf_fetch_head_t *)generation->table;
    umf_fetch_run_t *runs = (umf_fetch_run_t *)(head + 1);
    umf_fetch_entry_t *entries = (umf_fetch_entry_t *)(runs + generation->run_count);
    uint64_t *to = (uint64_t *)(entries + generation->count);
    char *bytes = (char *)(to + digests);
    size_t used = identity_size;
    if (identity_size) {
        memcpy(bytes, identity, identity_size);
    }
    runs_write(generation, runs, bytes, &used);
    entries_write(generation, entries, to, bytes, &used);
    generation->table_size = (size_t)(bytes + used - generation->table);
    *head = (umf_fetch_head_t){.magic = UMF_FETCH_TABLE,
                               .size = generation->table_size,
                               .generation = generation->number,
                               .digests = digests,
                               .runs = (uint32_t)generation->run_count,
                               .entries = (uint32_t)generation->count,
                               .identity = (uint32_t)identity_size};
    head->check = umf_sum(head + 1, generation->table_size - sizeof(*head));
    return true;
}

/* --- the whole -------------------------------------------------------------------------------- */

static bool generation_fill(umf_remote_handle_t remote, generation_t *generation) {
    const void *identity = NULL;
    size_t identity_size = 0;
    return umfVaultViewGeneration(generation->view, &generation->number) == UMF_RESULT_SUCCESS &&
           umfVaultViewIdentity(generation->view, &identity, &identity_size) ==
               UMF_RESULT_SUCCESS &&
           umfVaultEach(generation->view, NULL, item_add, generation) == UMF_RESULT_SUCCESS &&
           runs_make(generation) && runs_publish(remote, generation) &&
           table_make(generation, identity, identity_size) &&
           umfRemotePublish(remote, generation->table, generation->table_size, UMF_REMOTE_GET,
                            &generation->published) == UMF_RESULT_SUCCESS;
}

generation_t *generation_publish(umf_remote_handle_t remote, const char *name,
                                 umf_vault_view_handle_t view) {
    generation_t *generation = calloc(1, sizeof(*generation));
    if (!generation) {
        umfVaultDetach(view);
        complain(false, "vault %s: no memory", name);
        return NULL;
    }
    generation->view = view;
    umfLastErrorClear();
    if (!generation_fill(remote, generation)) {
        bool is_too_large = !*umfLastErrorText();
        complain(!is_too_large, "vault %s cannot be served%s", name,
                 is_too_large ? ": no memory, or its table would be too large" : "");
        generation_end(generation);
        return NULL;
    }
    return generation;
}

void generation_end(generation_t *generation) {
    if (!generation) {
        return;
    }
    if (generation->published) {
        umfRemoteWithdraw(generation->published);
    }
    for (size_t i = 0; generation->runs && i < generation->run_count; i++) {
        run_t *run = &generation->runs[i];
        if (run->published) {
            umfRemoteWithdraw(run->published);
        }
        if (run->pool) {
            umfFree(run->base); /* the pages are the view's */
            umfPoolDestroy(run->pool);
        }
    }
    if (generation->table) {
        umfFree(generation->table);
    }
    free(generation->runs);
    free(generation->items);
    umfVaultDetach(generation->view);
    free(generation);
}

uint64_t generation_number(const generation_t *generation) {
    return generation ? generation->number : 0;
}

umf_remote_export_handle_t generation_table(const generation_t *generation, uint64_t *size) {
    *size = generation->table_size;
    return generation->published;
}
