/* IPC handles of this process, by their content and by the address of their memory. */
#include "providers/cuda/own.h"

#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "ds/hash.h"
#include "system/os.h"

typedef struct own_t {
    CUipcMemHandle handle; /* Immutable, as all members without a note */
    uintptr_t address;
    umf_cuda_context_t context;
    int pid;           /* a forked child inherits the table, but it has no CUDA */
    size_t users;      /* Sync: lock */
    uint64_t is_alive; /* Sync: atomic */
} own_t;

UMF_LOCK_STATIC(own_lock, UMF_RANK_PROVIDER);
/* Memory that is freed but still open is in this table only. Sync: lock, as below. */
static umf_hash_t own_by_address;
static umf_hash_t own_by_content;

static uint64_t own_key(const CUipcMemHandle *handle) {
    uint64_t key = UINT64_C(0xcbf29ce484222325);
    for (size_t at = 0; at < sizeof(*handle); at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, (const char *)handle + at, sizeof(word));
        key = (key ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        key ^= key >> 29;
    }
    return key ? key : 1;
}

static own_t *own_find_locked(const CUipcMemHandle *handle) {
    own_t *own = umf_hash_get(&own_by_content, own_key(handle));
    return own && own->pid == umf_os_pid() && memcmp(&own->handle, handle, sizeof(*handle)) == 0
               ? own
               : NULL;
}

static bool own_list_locked(own_t *own) {
    if (!umf_hash_put(&own_by_address, own->address, own)) {
        return false;
    }
    if (!umf_hash_put(&own_by_content, own_key(&own->handle), own)) {
        umf_hash_remove(&own_by_address, own->address);
        return false;
    }
    return true;
}

void umf_cuda_own_add(const CUipcMemHandle *handle, void *ptr, const umf_cuda_context_t *context) {
    own_t *own = umf_meta_alloc(sizeof(*own));
    if (own) {
        *own = (own_t){.handle = *handle,
                       .address = (uintptr_t)ptr,
                       .context = *context,
                       .pid = umf_os_pid(),
                       .is_alive = 1};
    }
    umf_lock(&own_lock);
    bool is_known = umf_hash_get(&own_by_address, (uintptr_t)ptr) != NULL;
    bool is_kept = own && !is_known && own_list_locked(own);
    umf_unlock(&own_lock);
    if (!is_kept) {
        umf_meta_free(own, sizeof(*own));
    }
    if (!is_kept && !is_known) {
        UMF_LOG_WARN("no memory to remember the IPC handle of %p: it cannot be opened here", ptr);
    }
}

void *umf_cuda_own_open(const CUipcMemHandle *handle) {
    umf_lock(&own_lock);
    own_t *own = own_find_locked(handle);
    void *ptr = NULL;
    if (own) {
        own->users++;
        ptr = (void *)own->address;
    }
    umf_unlock(&own_lock);
    return ptr;
}

bool umf_cuda_own_close(const void *ptr, umf_cuda_context_t *context) {
    *context = (umf_cuda_context_t){0};
    umf_lock(&own_lock);
    own_t *own = umf_hash_get(&own_by_address, (uintptr_t)ptr);
    bool is_open = own && own->users > 0;
    bool is_last = false;
    if (is_open) {
        own->users--;
        is_last = own->users == 0 && !own->is_alive;
    }
    if (is_last) {
        umf_hash_remove(&own_by_address, own->address);
        *context = own->context;
    }
    umf_unlock(&own_lock);
    if (is_last) {
        umf_meta_free(own, sizeof(*own));
    }
    return is_open;
}

bool umf_cuda_own_retire(const void *ptr) {
    umf_lock(&own_lock);
    own_t *own = umf_hash_get(&own_by_address, (uintptr_t)ptr);
    bool is_open = own && own->users > 0;
    if (own) {
        umf_hash_remove(&own_by_content, own_key(&own->handle));
        __atomic_store_n(&own->is_alive, 0, __ATOMIC_RELEASE);
    }
    if (own && !is_open) {
        umf_hash_remove(&own_by_address, own->address);
    }
    umf_unlock(&own_lock);
    if (own && !is_open) {
        umf_meta_free(own, sizeof(*own));
    }
    return is_open;
}

const uint64_t *umf_cuda_own_watch(const CUipcMemHandle *handle) {
    umf_lock(&own_lock);
    const own_t *own = own_find_locked(handle);
    const uint64_t *word = own && own->users > 0 ? &own->is_alive : NULL;
    umf_unlock(&own_lock);
    return word;
}
