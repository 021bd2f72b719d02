/*
 * A hash table of addresses with open addressing and linear probing. The entry of an address that
 * was a handle once is never removed, so readers need no lock, and a destroyed handle differs from
 * garbage. The metadata arena reuses addresses, so there are no more entries than there were
 * objects at one time.
 */
#include "base/handle.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "system/os.h"

#define ENTRIES_MIN 1024u
#define ALIVE ((uintptr_t)1)

typedef struct entry_t {
    _Atomic uintptr_t address; /* 0: free. Set once */
    _Atomic uintptr_t state;   /* the kind plus ALIVE */
} entry_t;

typedef struct table_t {
    size_t mask;
    entry_t *entries;
} table_t;

UMF_LOCK_STATIC(handle_lock, UMF_RANK_HANDLES);
static entry_t first_entries[ENTRIES_MIN];
static const table_t first_table = {ENTRIES_MIN - 1, first_entries};
static _Atomic(const table_t *) handle_table = &first_table; /* Sync: handle_lock for writers */
static size_t handle_count;                                  /* Sync: handle_lock */

/* The entry of the address, or the free entry where it belongs. The table is never full. */
static entry_t *entry_of(const table_t *table, uintptr_t address) {
    uint64_t hash = (uint64_t)(address >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    size_t i = (size_t)(hash >> 32) & table->mask;
    for (;; i = (i + 1) & table->mask) {
        uintptr_t found = atomic_load_explicit(&table->entries[i].address, memory_order_acquire);
        if (found == address || found == 0) {
            return &table->entries[i];
        }
    }
}

static uintptr_t state_of(const void *handle) {
    const table_t *table = atomic_load_explicit(&handle_table, memory_order_acquire);
    const entry_t *entry = entry_of(table, (uintptr_t)handle);
    /* The address is read again, because a free entry may have been taken by another address. */
    return handle &&
                   atomic_load_explicit(&entry->address, memory_order_acquire) == (uintptr_t)handle
               ? atomic_load_explicit(&entry->state, memory_order_acquire)
               : 0;
}

static const umf_handle_kind_t *kind_of(uintptr_t state) {
    return (const umf_handle_kind_t *)(state & ~ALIVE);
}

const umf_handle_kind_t *umf_handle_kind(const void *handle) {
    uintptr_t state = state_of(handle);
    return state & ALIVE ? kind_of(state) : NULL;
}

/* --- changes --- */

static void entry_set_locked(entry_t *entry, uintptr_t address, uintptr_t state) {
    umf_assert_locked(&handle_lock);
    atomic_store_explicit(&entry->state, state, memory_order_release);
    atomic_store_explicit(&entry->address, address, memory_order_release);
}

/* The old table stays, because threads may be reading it. All old tables together are smaller than
 * the new one. */
static bool table_grow_locked(const table_t *old) {
    umf_assert_locked(&handle_lock);
    size_t count = 2 * (old->mask + 1);
    void *memory = NULL;
    if (umf_os_map(&memory, sizeof(table_t) + count * sizeof(entry_t), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != 0) {
        return false;
    }
    table_t *table = memory;
    table->mask = count - 1;
    table->entries = (entry_t *)(table + 1);
    for (size_t i = 0; i <= old->mask; i++) {
        uintptr_t address = atomic_load_explicit(&old->entries[i].address, memory_order_relaxed);
        if (address) {
            entry_set_locked(entry_of(table, address), address,
                             atomic_load_explicit(&old->entries[i].state, memory_order_relaxed));
        }
    }
    atomic_store_explicit(&handle_table, table, memory_order_release);
    return true;
}

static bool begin_locked(uintptr_t address, uintptr_t state) {
    umf_assert_locked(&handle_lock);
    const table_t *table = atomic_load_explicit(&handle_table, memory_order_relaxed);
    entry_t *entry = entry_of(table, address);
    if (atomic_load_explicit(&entry->address, memory_order_relaxed) == 0) {
        if ((handle_count + 1) * 4 > (table->mask + 1) * 3) {
            if (!table_grow_locked(table)) {
                return false;
            }
            entry = entry_of(atomic_load_explicit(&handle_table, memory_order_relaxed), address);
        }
        handle_count++;
    }
    entry_set_locked(entry, address, state);
    return true;
}

umf_result_t umf_handle_begin(const void *handle, const umf_handle_kind_t *kind) {
    umf_lock(&handle_lock);
    bool is_added = begin_locked((uintptr_t)handle, (uintptr_t)kind | ALIVE);
    umf_unlock(&handle_lock);
    if (!is_added) {
        UMF_LOG_ERROR("no memory to register the handle of %s", kind->name);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return UMF_RESULT_SUCCESS;
}

void *umf_handle_new(size_t size, const umf_handle_kind_t *kind) {
    void *made = umf_meta_alloc(size);
    if (!made) {
        UMF_LOG_ERROR("no memory for %s", kind->name);
        return NULL;
    }
    if (umf_handle_begin(made, kind) != UMF_RESULT_SUCCESS) {
        umf_meta_free(made, size);
        return NULL;
    }
    return made;
}

static bool end_locked(uintptr_t address, const umf_handle_kind_t *kind) {
    umf_assert_locked(&handle_lock);
    const table_t *table = atomic_load_explicit(&handle_table, memory_order_relaxed);
    entry_t *entry = entry_of(table, address);
    if (atomic_load_explicit(&entry->state, memory_order_relaxed) != ((uintptr_t)kind | ALIVE)) {
        return false;
    }
    atomic_store_explicit(&entry->state, (uintptr_t)kind, memory_order_release);
    return true;
}

bool umf_handle_end(const void *handle, const umf_handle_kind_t *kind, const char *function) {
    umf_lock(&handle_lock);
    bool is_ended = handle && end_locked((uintptr_t)handle, kind);
    umf_unlock(&handle_lock);
    if (!is_ended) {
        umf_handle_refuse(handle, kind->name, function);
    }
    return is_ended;
}

umf_result_t umf_handle_delete(void *handle, size_t size, const umf_handle_kind_t *kind,
                               const char *function) {
    if (handle && !umf_handle_end(handle, kind, function)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_meta_free(handle, size);
    return UMF_RESULT_SUCCESS;
}

void umf_handle_refuse(const void *handle, const char *requested, const char *function) {
    uintptr_t state = state_of(handle);
    if (!handle) {
        umf_log_error(function, "the handle is NULL, %s is wanted", requested);
    } else if (state == 0) {
        umf_log_error(function, "%p is no handle of this library, %s is wanted", handle, requested);
    } else {
        umf_log_error(function, "%p %s %s, %s is wanted", handle,
                      state & ALIVE ? "is" : "was destroyed, it was", kind_of(state)->name,
                      requested);
    }
}
