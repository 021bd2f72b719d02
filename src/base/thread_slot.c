/*
 * One block of memory per (thread, owner).
 *
 * A thread has a table: an array of block pointers by the owner's index. Only its own thread reads
 * the array without a lock. All writes, and all linking and unlinking of blocks, need the
 * THREAD_SLOT lock.
 *
 * Two sides may free a block: its thread, when it ends, and its owner, when it is destroyed. The
 * side that takes the block out of the table under the lock frees it. An ending thread marks the
 * block in its table as `exiting` while it calls the owner without the lock. An owner that is being
 * destroyed waits until none of its blocks has that mark. The block stays in the owner's list until
 * the call is over. So the owner finds it, and umf_thread_slot_each never visits a freed one.
 *
 * In a forked child the tables of the other threads are dead. Their blocks stay with their owners
 * and are freed with them. The fork count shows that an `exiting` mark belongs to a dead table, and
 * no thread waits for it. The table itself leaks: a few hundred bytes for each thread of the
 * parent.
 */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "base/thread_slot_own.h"
#include "system/pause.h"

#define LOCAL_OWNERS_MAX ((size_t)1 << 20)
#define LOCAL_WORD_BITS 64
#define LOCAL_WORDS (LOCAL_OWNERS_MAX / LOCAL_WORD_BITS)

const union umf_thread_slot_empty_t umf_thread_slot_empty;

static umf_thread_slot_array_t slot_none; /* Immutable after start */

/* Filled at run time: as initialised data the loader would have to relocate each pointer. */
__attribute__((constructor(101))) static void slot_fill_none(void) {
    for (size_t i = 0; i < UMF_THREAD_SLOT_COUNT_MIN; i++) {
        atomic_init(&slot_none.blocks[i], UMF_THREAD_SLOT_EMPTY);
    }
}

/* Programs that link this file without the core have no current pools. */
#pragma weak umf_pool_none

#define LOCAL_TLS_NONE                                                                             \
    .blocks = slot_none.blocks, .count = UMF_THREAD_SLOT_COUNT_MIN,                                \
    .frees_left = UMF_THREAD_SLOT_TICK_FREES,                                                      \
    .current = (struct umf_memory_pool_t *)(uintptr_t)&umf_pool_none

UMF_THREAD_SLOT_TLS umf_thread_slot_tls_t umf_thread_slot_tls = {LOCAL_TLS_NONE};

static umf_thread_slot_array_t *array_of(_Atomic(umf_thread_slot_t *) *blocks) {
    return UMF_CONTAINER_OF(blocks, umf_thread_slot_array_t, blocks);
}

umf_thread_slot_table_t *umf_thread_slot_own_table(void) {
    return array_of(umf_thread_slot_tls.blocks)->table;
}

static _Atomic uint64_t slot_last_number;

uint64_t umf_thread_slot_number_slow(void) {
    uint64_t last = atomic_fetch_add_explicit(&slot_last_number, 1, memory_order_relaxed);
    umf_thread_slot_tls.number = last + 1;
    return umf_thread_slot_tls.number;
}

umf_lock_t umf_thread_slot_lock = {.rank = UMF_RANK_THREAD_SLOT};

__attribute__((constructor)) static void slot_lock_register(void) {
    umf_lock_register(&umf_thread_slot_lock);
}

/* Indices in use, one bit each. Sync: THREAD_SLOT lock. No word below `slot_first_word` has a free
 * bit.
 */
static uint64_t slot_indices[LOCAL_WORDS];
static size_t slot_first_word;

static enum { KEY_NONE, KEY_READY, KEY_FAILED } slot_key_state; /* Sync: THREAD_SLOT lock */
static pthread_key_t slot_key;

static size_t slot_array_size(uint32_t count) {
    return offsetof(umf_thread_slot_array_t, blocks) + count * sizeof(_Atomic(umf_thread_slot_t *));
}

/* --- owners --- */

static bool slot_index_get_locked(uint32_t *index) {
    slot_indices[0] |= 1; /* index 0 means none */
    for (size_t word = slot_first_word; word < LOCAL_WORDS; word++) {
        if (slot_indices[word] != UINT64_MAX) {
            unsigned bit = (unsigned)__builtin_ctzll(~slot_indices[word]);
            slot_indices[word] |= UINT64_C(1) << bit;
            slot_first_word = word;
            *index = (uint32_t)(word * LOCAL_WORD_BITS + bit);
            return true;
        }
    }
    slot_first_word = LOCAL_WORDS;
    return false;
}

static void slot_index_put_locked(uint32_t index) {
    size_t word = index / LOCAL_WORD_BITS;
    slot_indices[word] &= ~(UINT64_C(1) << index % LOCAL_WORD_BITS);
    if (word < slot_first_word) {
        slot_first_word = word;
    }
}

umf_result_t umf_thread_slot_index_get(uint32_t *index) {
    umf_lock(&umf_thread_slot_lock);
    bool is_found = slot_index_get_locked(index);
    umf_unlock(&umf_thread_slot_lock);
    if (!is_found) {
        UMF_LOG_ERROR("%zu pools exist: no more are possible, destroy some first",
                      LOCAL_OWNERS_MAX - 1);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    return UMF_RESULT_SUCCESS;
}

void umf_thread_slot_index_put(uint32_t index) {
    umf_lock(&umf_thread_slot_lock);
    slot_index_put_locked(index);
    umf_unlock(&umf_thread_slot_lock);
}

umf_result_t umf_thread_slot_owner_init(umf_thread_slot_owner_t *owner, uint32_t index, size_t size,
                                        void (*thread_exit)(umf_thread_slot_owner_t *,
                                                            umf_thread_slot_t *)) {
    assert(size >= sizeof(umf_thread_slot_t) && size < UINT32_MAX - 64);
    owner->owns_index = index == 0;
    if (owner->owns_index) {
        umf_result_t result = umf_thread_slot_index_get(&index);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    owner->index = index;
    owner->size = (uint32_t)umf_meta_isolated_size(size);
    owner->first = NULL;
    owner->thread_exit = thread_exit;
    return UMF_RESULT_SUCCESS;
}

static void slot_link_locked(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    block->prev = NULL;
    block->next = owner->first;
    if (owner->first) {
        owner->first->prev = block;
    }
    owner->first = block;
}

void umf_thread_slot_unlink_locked(umf_thread_slot_owner_t *owner, umf_thread_slot_t *block) {
    *(block->prev ? &block->prev->next : &owner->first) = block->next;
    if (block->next) {
        block->next->prev = block->prev;
    }
}

/* Takes a block out of its thread's table. */
static void slot_detach_locked(umf_thread_slot_t *block) {
    umf_thread_slot_table_t *table = block->thread;
    uint32_t index = block->owner->index;
    if (umf_thread_slot_table_block(table, index) == block) {
        atomic_store_explicit(&table->blocks[index], UMF_THREAD_SLOT_EMPTY, memory_order_relaxed);
    }
}

static bool slot_is_exiting_locked(const umf_thread_slot_owner_t *owner) {
    for (const umf_thread_slot_t *block = owner->first; block; block = block->next) {
        const umf_thread_slot_table_t *table = block->thread;
        if (table && table->exiting == block && table->fork_count == umf_fork_count()) {
            return true;
        }
    }
    return false;
}

/* Polls, because a condition variable would not survive a fork. The wait is rare and as short as
 * one `thread_exit`. */
static void slot_wait_exits_locked(const umf_thread_slot_owner_t *owner) {
    for (unsigned round = 0; slot_is_exiting_locked(owner); round++) {
        umf_unlock(&umf_thread_slot_lock);
        umf_pause(round);
        umf_lock(&umf_thread_slot_lock);
    }
}

void umf_thread_slot_owner_close(umf_thread_slot_owner_t *owner) {
    umf_lock(&umf_thread_slot_lock);
    slot_wait_exits_locked(owner);
    for (umf_thread_slot_t *block = owner->first; block; block = block->next) {
        if (block->thread) {
            slot_detach_locked(block);
            block->thread = NULL;
        }
    }
    umf_unlock(&umf_thread_slot_lock);
}

void umf_thread_slot_owner_fini(umf_thread_slot_owner_t *owner) {
    umf_thread_slot_owner_close(owner);
    umf_lock(&umf_thread_slot_lock);
    umf_thread_slot_t *block = owner->first;
    owner->first = NULL;
    if (owner->owns_index) {
        slot_index_put_locked(owner->index);
    }
    umf_unlock(&umf_thread_slot_lock);
    while (block) {
        umf_thread_slot_t *next = block->next;
        umf_meta_free(block, owner->size);
        block = next;
    }
}

void umf_thread_slot_each(umf_thread_slot_owner_t *owner,
                          void (*visit)(umf_thread_slot_t *block, void *arg), void *arg) {
    umf_lock(&umf_thread_slot_lock);
    for (umf_thread_slot_t *block = owner->first; block; block = block->next) {
        visit(block, arg);
    }
    umf_unlock(&umf_thread_slot_lock);
}

/* --- the end of a thread --- */

/* Releases the lock while the owner is called. */
static void slot_exit_locked(umf_thread_slot_table_t *table, umf_thread_slot_t *block) {
    umf_thread_slot_owner_t *owner = block->owner;
    slot_detach_locked(block);
    table->exiting = block;
    table->fork_count = umf_fork_count();
    umf_unlock(&umf_thread_slot_lock);
    if (owner->thread_exit) {
        owner->thread_exit(owner, block);
    }
    umf_lock(&umf_thread_slot_lock);
    table->exiting = NULL;
    umf_thread_slot_unlink_locked(owner, block);
    umf_meta_free(block, owner->size);
}

static void table_free_grown(umf_thread_slot_table_t *table) {
    if (table->blocks != table->first.blocks) {
        umf_meta_free(array_of(table->blocks), slot_array_size(table->count));
    }
}

/*
 * Runs when a thread ends. Other exit handlers may run later, and after the last of them the C
 * library still frees memory, which reaches us when we are malloc. A block created then would never
 * be freed, so none is created any more.
 */
static void table_on_thread_exit(void *arg) {
    umf_thread_slot_table_t *table = arg;
    umf_thread_slot_tls.is_ending = true;
    umf_lock(&umf_thread_slot_lock);
    table->is_ending = true; /* from here on no other thread takes a block from the table */
    for (uint32_t index = 0; index < table->end; index++) {
        umf_thread_slot_t *block = umf_thread_slot_table_block(table, index);
        if (block != UMF_THREAD_SLOT_EMPTY) {
            slot_exit_locked(table, block);
        }
    }
    umf_unlock(&umf_thread_slot_lock);
    umf_thread_slot_tls = (umf_thread_slot_tls_t){LOCAL_TLS_NONE, .is_ending = true,
                                                  .number = umf_thread_slot_tls.number};
    table_free_grown(table);
    umf_meta_free(table, sizeof(*table));
}

/* If the library can be unloaded, threads that end later must not call into it. */
__attribute__((destructor)) static void slot_unload(void) {
    umf_lock(&umf_thread_slot_lock);
    if (slot_key_state == KEY_READY) {
        pthread_key_delete(slot_key);
        slot_key_state = KEY_FAILED;
    }
    umf_unlock(&umf_thread_slot_lock);
}

bool umf_thread_slot_may_be_read_locked(const umf_thread_slot_table_t *table) {
    return table->has_exit && !table->is_ending && slot_key_state == KEY_READY;
}

/* --- making a block --- */

static bool slot_key_get(void) {
    umf_lock(&umf_thread_slot_lock);
    bool is_failed = false;
    if (slot_key_state == KEY_NONE) {
        is_failed = pthread_key_create(&slot_key, table_on_thread_exit) != 0;
        slot_key_state = is_failed ? KEY_FAILED : KEY_READY;
    }
    bool is_ready = slot_key_state == KEY_READY;
    umf_unlock(&umf_thread_slot_lock);
    if (is_failed) {
        UMF_LOG_WARN(
            "no thread-specific key is left: what ending threads have cached is given back "
            "only when its pool is destroyed");
    }
    return is_ready;
}

/* The calling thread's table, made if absent. */
static umf_thread_slot_table_t *table_get(void) {
    umf_thread_slot_table_t *table = umf_thread_slot_own_table();
    if (table) {
        return table;
    }
    table = umf_meta_alloc(sizeof(*table));
    if (!table) {
        return NULL;
    }
    table->first = slot_none;
    table->first.table = table;
    table->blocks = table->first.blocks;
    table->count = UMF_THREAD_SLOT_COUNT_MIN;
    table->tls = &umf_thread_slot_tls;
    table->made_fork_count = umf_fork_count();
    /* Set before the key is used: that may allocate and return here if we are malloc. */
    umf_thread_slot_tls.blocks = table->blocks;
    if (slot_key_get() && pthread_setspecific(slot_key, table) == 0) {
        umf_lock(&umf_thread_slot_lock);
        table->has_exit = true;
        umf_unlock(&umf_thread_slot_lock);
    }
    return table;
}

/* Makes room for `index`. */
static bool table_grow(umf_thread_slot_table_t *table, uint32_t index) {
    uint32_t count = table->count;
    while (count <= index) {
        count *= 2;
    }
    umf_thread_slot_array_t *array = umf_meta_alloc(slot_array_size(count));
    if (!array) {
        return false;
    }
    for (uint32_t i = table->count; i < count; i += UMF_THREAD_SLOT_COUNT_MIN) {
        memcpy(&array->blocks[i], slot_none.blocks, sizeof(slot_none.blocks));
    }
    umf_lock(&umf_thread_slot_lock);
    memcpy(array, array_of(table->blocks), slot_array_size(table->count));
    table_free_grown(table);
    table->blocks = umf_thread_slot_tls.blocks = array->blocks;
    table->count = umf_thread_slot_tls.count = count;
    umf_unlock(&umf_thread_slot_lock);
    return true;
}

static umf_thread_slot_t *slot_create(umf_thread_slot_owner_t *owner,
                                      umf_thread_slot_table_t *table) {
    umf_thread_slot_t *block = umf_meta_alloc(owner->size);
    if (!block) {
        return NULL;
    }
    block->owner = owner;
    block->thread = table;
    umf_lock(&umf_thread_slot_lock);
    umf_thread_slot_t *found = umf_thread_slot_table_block(table, owner->index);
    if (umf_likely(found == UMF_THREAD_SLOT_EMPTY)) {
        slot_link_locked(owner, block);
        atomic_store_explicit(&table->blocks[owner->index], block, memory_order_relaxed);
        table->end = owner->index < table->end ? table->end : owner->index + 1;
    }
    umf_unlock(&umf_thread_slot_lock);
    if (umf_unlikely(found !=
                     UMF_THREAD_SLOT_EMPTY)) { /* another thread had hidden it for a moment */
        umf_meta_free(block, owner->size);
        block = found;
    }
    return block;
}

umf_thread_slot_t *umf_thread_slot_make(umf_thread_slot_owner_t *owner) {
    umf_thread_slot_table_t *table = umf_thread_slot_tls.is_ending ? NULL : table_get();
    if (!table || (owner->index >= table->count && !table_grow(table, owner->index))) {
        return NULL;
    }
    umf_thread_slot_t *block = umf_thread_slot_get(owner->index);
    return block->owner ? block : slot_create(owner, table);
}
