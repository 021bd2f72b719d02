/* Pinned: blocks of units. The units of a block go back to the system together. */
#include "ext/staging/pinned.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/aligned_map.h"
#include "base/event_count.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/meta.h"
#include "cache/decay.h"
#include "ds/list.h"
#include "ext/staging/undone.h"
#include "ext/staging/workers.h"
#include "system/os.h"
#include "system/pause.h"

#define PINNED_BLOCK_UNITS 8

struct umf_pinned_block_t {
    umf_list_t link;                       /* Sync: pinned_lock */
    umf_memory_provider_handle_t provider; /* Immutable */
    size_t count;                          /* number of units. Immutable */
    unsigned ready;                        /* one bit for each unit not in use. Sync: pinned_lock */
    bool is_plain;                         /* Immutable */
    bool is_pinned;                        /* Sync: pinned_lock */
    uint64_t unused_since;                 /* if all units are ready. Sync: pinned_lock */
    uint64_t trim;                         /* the last that has looked at it. Sync: pinned_lock */
    void *work;     /* a mark that the device had not reached; of the thread that ends the block */
    unsigned forks; /* in `pinned_ending`: of the process that ends it. Sync: pinned_lock */
    umf_event_count_t turn; /* advances when the last unit was touched */
    _Atomic size_t touched; /* number of units */
    umf_pinned_t units[PINNED_BLOCK_UNITS];
};

UMF_LOCK_STATIC(pinned_lock, UMF_RANK_SUSPEND);
/* Sync: pinned_lock */
static umf_list_t pinned_blocks = {&pinned_blocks, &pinned_blocks};
/* Blocks that a thread unpins: their providers are not destroyed meanwhile. Sync: pinned_lock */
static umf_list_t pinned_ending = {&pinned_ending, &pinned_ending};
static umf_event_count_t pinned_ended; /* advanced when a block has left that list */
static _Atomic int pinned_lease = 5000;

static unsigned block_all(const umf_pinned_block_t *block) {
    return (1U << block->count) - 1;
}

/* Copies are fastest from the node of the device. A failure does not matter, because the memory
 * works on any node. */
static void block_place(umf_memory_provider_handle_t provider, void *base, size_t size) {
    enum { MODE_PREFERRED = 1, WORD_BITS = 8 * sizeof(unsigned long), MAX_NODES = 1024 };
    unsigned long mask[MAX_NODES / WORD_BITS] = {0};
    unsigned node;
    if (!provider->ext->host_node ||
        provider->ext->host_node(provider->self, &node) != UMF_RESULT_SUCCESS ||
        node >= MAX_NODES) {
        return;
    }
    mask[node / WORD_BITS] = 1UL << node % WORD_BITS;
    int error = umf_os_mbind(base, size, MODE_PREFERRED, mask, MAX_NODES);
    if (error) {
        UMF_LOG_DEBUG("host memory to keep content in is not placed on node %u: error %d", node,
                      error);
    }
}

static umf_pinned_block_t *block_create(umf_memory_provider_handle_t provider, size_t count,
                                        bool is_plain) {
    umf_pinned_block_t *block = umf_meta_alloc(sizeof(*block));
    if (!block) {
        UMF_LOG_ERROR("no memory for bookkeeping");
        return NULL;
    }
    void *base;
    size_t size = count * UMF_PINNED_UNIT;
    int error = umf_os_map_aligned(size, 0, PROT_READ | PROT_WRITE, &base);
    if (error) {
        errno = error;
        UMF_LOG_PERROR("no %zu bytes of host memory to keep content in", size);
        umf_meta_free(block, sizeof(*block));
        return NULL;
    }
    block_place(provider, base, size);
    block->provider = provider;
    block->is_plain = is_plain;
    block->count = count;
    for (size_t i = 0; i < count; i++) {
        block->units[i] =
            (umf_pinned_t){.block = block, .base = (char *)base + i * UMF_PINNED_UNIT};
    }
    umf_list_init(&block->link);
    return block;
}

static bool mark_has_passed(const umf_pinned_block_t *block, bool waits) {
    umf_memory_provider_handle_t provider = block->provider;
    return provider->ext->mark_all_wait(provider->self, block->work, waits) != 0;
}

/* A driver waits for the device, too, when it unpins. */
static bool block_unpin(umf_pinned_block_t *block) {
    umf_memory_provider_handle_t provider = block->provider;
    if (block->work && mark_has_passed(block, true)) {
        block->work = NULL;
    }
    return !block->is_pinned || !provider->ext->host_unpin ||
           provider->ext->host_unpin(provider->self, block->units[0].base,
                                     block->count * UMF_PINNED_UNIT) == UMF_RESULT_SUCCESS;
}

/* Gives a block that is in no list and no longer pinned back to the system. */
static void block_destroy(umf_pinned_block_t *block) {
    size_t size = block->count * UMF_PINNED_UNIT;
    char *base = block->units[0].base;
    umf_os_unmap(base, size);
    umf_os_map_freed(base, size);
    umf_meta_free(block, sizeof(*block));
}

/* Takes a block out of the list for block_end. */
static void move_to_end_locked(umf_pinned_block_t *block) {
    umf_list_remove(&block->link);
    umf_list_add(&pinned_ending, &block->link);
    block->forks = umf_fork_count();
}

/* Threads of a parent process end nothing in its child. */
static bool is_ending_locked(umf_memory_provider_handle_t provider) {
    for (umf_list_t *at = pinned_ending.next; at != &pinned_ending; at = at->next) {
        const umf_pinned_block_t *block = UMF_CONTAINER_OF(at, umf_pinned_block_t, link);
        if (block->provider == provider && block->forks == umf_fork_count()) {
            return true;
        }
    }
    return false;
}

/* Unpins a block. A driver may still write to one that it does not unpin, and refuses to pin its
 * addresses again: they stay mapped. It is used again, or stays with the process where its provider
 * ends. */
static void block_end(umf_pinned_block_t *block, bool is_end) {
    bool is_unused = block->ready == block_all(block);
    bool is_gone = is_unused && block_unpin(block);
    if (!is_gone) {
        UMF_LOG_WARN("%zu bytes of pinned host memory at %p stay pinned%s",
                     block->count * UMF_PINNED_UNIT, (void *)block->units[0].base,
                     is_end ? " until the process ends" : ": they are used for the next copies");
    }
    umf_lock(&pinned_lock);
    umf_list_remove(&block->link);
    if (!is_gone && !is_end) {
        block->unused_since = umf_decay_now();
        umf_list_add(&pinned_blocks, &block->link);
    }
    umf_unlock(&pinned_lock);
    umf_event_count_advance(&pinned_ended);
    if (is_gone) {
        block_destroy(block);
    } else if (is_end && is_unused) {
        umf_meta_free(block, sizeof(*block));
    }
}

static size_t take_retained(umf_memory_provider_handle_t provider, umf_pinned_t **units,
                            size_t count, bool is_plain) {
    size_t taken = 0;
    umf_lock(&pinned_lock);
    for (umf_list_t *at = pinned_blocks.next; at != &pinned_blocks && taken < count;
         at = at->next) {
        umf_pinned_block_t *block = UMF_CONTAINER_OF(at, umf_pinned_block_t, link);
        bool is_usable = block->provider == provider && block->is_plain == is_plain &&
                         (is_plain || block->is_pinned);
        while (is_usable && block->ready && taken < count) {
            units[taken++] = &block->units[__builtin_ctz(block->ready)];
            block->ready &= block->ready - 1;
        }
    }
    umf_unlock(&pinned_lock);
    return taken;
}

static umf_result_t take(umf_memory_provider_handle_t provider, umf_pinned_t **units, size_t count,
                         size_t *ready, bool is_plain) {
    size_t taken = take_retained(provider, units, count, is_plain);
    *ready = taken;
    while (taken < count) {
        size_t more = count - taken < PINNED_BLOCK_UNITS ? count - taken : PINNED_BLOCK_UNITS;
        umf_pinned_block_t *block = block_create(provider, more, is_plain);
        if (!block) {
            umf_pinned_put(units, taken);
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        umf_lock(&pinned_lock);
        umf_list_add(&pinned_blocks, &block->link);
        umf_unlock(&pinned_lock);
        for (size_t i = 0; i < more; i++) {
            units[taken++] = &block->units[i];
        }
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_pinned_take(umf_memory_provider_handle_t provider, umf_pinned_t **units,
                             size_t count, size_t *ready) {
    return take(provider, units, count, ready, false);
}

umf_result_t umf_pinned_take_plain(umf_memory_provider_handle_t provider, umf_pinned_t **units,
                                   size_t count) {
    size_t ready;
    return take(provider, units, count, &ready, true);
}

static void unit_put(umf_pinned_t *unit) {
    umf_pinned_block_t *block = unit->block;
    if (block->is_plain) { /* no failure matters: the pages stay */
        umf_os_advise(unit->base, UMF_PINNED_UNIT, MADV_FREE);
    }
    umf_lock(&pinned_lock);
    block->ready |= 1U << (unit - block->units);
    bool is_unused = block->ready == block_all(block);
    bool is_useless =
        is_unused && !block->is_plain && (!block->is_pinned || umf_pinned_lease() == 0);
    if (is_useless) {
        move_to_end_locked(block);
    }
    block->unused_since = umf_decay_now();
    umf_unlock(&pinned_lock);
    if (is_useless) {
        block_end(block, false);
    }
}

void umf_pinned_put(umf_pinned_t **units, size_t count) {
    while (count > 0) {
        unit_put(units[--count]);
    }
}

/* --- new units: several threads touch them, one pins each block as soon as it is touched --------
 */

typedef struct make_t {
    umf_pinned_t **units;
    size_t count, ready;
    umf_result_t (*use)(void *arg, size_t unit);
    void *arg;
    pthread_t pinner;
    _Atomic size_t next; /* the unit that is touched next */
    _Atomic bool stop;
    umf_result_t result; /* of the pinner */
} make_t;

/* Makes the pages of the next unit resident. false: there is none. */
static bool touch_next(make_t *make) {
    size_t next = atomic_fetch_add(&make->next, 1), page = umf_os_page_size();
    if (next >= make->count) {
        return false;
    }
    umf_pinned_block_t *block = make->units[next]->block;
    for (size_t at = 0; at < UMF_PINNED_UNIT; at += page) {
        ((volatile char *)make->units[next]->base)[at] = 0;
    }
    if (atomic_fetch_add(&block->touched, 1) + 1 == block->count) {
        umf_event_count_advance(&block->turn);
    }
    return true;
}

/* Helps while the block is not wholly touched; waits for others at the end. */
static void wait_for_touch(make_t *make, umf_pinned_block_t *block) {
    for (;;) {
        uint32_t seen = umf_event_count_read(&block->turn);
        if (atomic_load(&block->touched) == block->count) {
            return;
        }
        if (!touch_next(make)) {
            umf_event_count_wait(&block->turn, seen);
        }
    }
}

static umf_result_t block_pin(umf_pinned_block_t *block) {
    umf_memory_provider_handle_t provider = block->provider;
    size_t size = block->count * UMF_PINNED_UNIT;
    umf_result_t result = provider->ext->host_pin(provider->self, block->units[0].base, size);
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("%zu bytes of host memory cannot be pinned; another way to keep content "
                      "needs less of it",
                      size);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_lock(&pinned_lock);
    block->is_pinned = true;
    umf_unlock(&pinned_lock);
    return UMF_RESULT_SUCCESS;
}

static umf_result_t make_usable(make_t *make, size_t unit, size_t *usable) {
    umf_pinned_block_t *block = make->units[unit]->block;
    if (unit < *usable) {
        return UMF_RESULT_SUCCESS;
    }
    *usable += block->count;
    wait_for_touch(make, block);
    return block_pin(block);
}

static void make_pin(make_t *make) {
    size_t usable = make->ready;
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (size_t unit = 0; unit < make->count && result == UMF_RESULT_SUCCESS; unit++) {
        result = make_usable(make, unit, &usable);
        if (result == UMF_RESULT_SUCCESS && make->use) {
            result = make->use(make->arg, unit);
        }
    }
    make->result = result;
    atomic_store(&make->stop, true);
}

static void make_run(void *arg) {
    make_t *make = arg;
    if (pthread_equal(make->pinner, pthread_self())) {
        make_pin(make);
    } else {
        while (!atomic_load(&make->stop) && touch_next(make)) {
        }
    }
}

umf_result_t umf_pinned_make(umf_pinned_t **units, size_t count, size_t ready,
                             umf_result_t (*use)(void *arg, size_t unit), void *arg) {
    make_t make = {.units = units,
                   .count = count,
                   .ready = ready,
                   .use = use,
                   .arg = arg,
                   .pinner = pthread_self(),
                   .next = ready};
    size_t cpus = umf_os_cpu_count(), fresh = count - ready;
    umf_workers_run(1 + (fresh < cpus ? fresh : cpus), make_run, &make);
    return make.result;
}

/* --- the lease ----------------------------------------------------------------------------------
 */

int umf_pinned_lease(void) {
    return atomic_load_explicit(&pinned_lease, memory_order_relaxed);
}

void umf_pinned_set_lease(int milliseconds) {
    atomic_store_explicit(&pinned_lease, milliseconds, memory_order_relaxed);
}

#define MS UINT64_C(1000000) /* of nanoseconds */

/* Since so many nanoseconds its lease is over. false: it is not. */
static bool is_over_locked(const umf_pinned_block_t *block, uint64_t now, uint64_t *since) {
    uint64_t unused = now - block->unused_since, lease = (uint64_t)umf_pinned_lease() * MS;
    *since = unused - lease;
    return !block->is_plain && block->is_pinned && block->ready == block_all(block) &&
           unused >= lease;
}

/* Has all work of the device completed? A device that cannot be asked has none. A mark that it has
 * not reached stays with the block. */
static bool is_device_idle(umf_pinned_block_t *block) {
    enum { POLLS = 8 }; /* a mark of an idle device takes a moment, too */
    umf_memory_provider_handle_t provider = block->provider;
    if (!provider->ext->mark_all || !provider->ext->mark_all_wait) {
        return true;
    }
    if (block->work && !mark_has_passed(block, false)) {
        return false;
    }
    block->work = NULL;
    umf_result_t result = provider->ext->mark_all(provider->self, &block->work);
    bool is_idle = result != UMF_RESULT_ERROR_OUT_OF_RESOURCES && !block->work;
    for (unsigned round = 0; !is_idle && block->work && round < POLLS; round++) {
        is_idle = mark_has_passed(block, false);
        umf_pause(is_idle ? 0 : round);
    }
    block->work = is_idle ? NULL : block->work;
    return is_idle;
}

/* The first block whose lease is over, off the list; NULL: none. `*count` is their number, `*since`
 * how long the longest one has been over. */
static umf_pinned_block_t *take_over(size_t *count, uint64_t *since) {
    uint64_t now = umf_decay_now(), each;
    umf_pinned_block_t *first = NULL;
    *count = *since = 0;
    umf_lock(&pinned_lock);
    for (umf_list_t *at = pinned_blocks.next; at != &pinned_blocks; at = at->next) {
        umf_pinned_block_t *block = UMF_CONTAINER_OF(at, umf_pinned_block_t, link);
        if (is_over_locked(block, now, &each)) {
            first = first ? first : block;
            *since = *since > each ? *since : each;
            ++*count;
        }
    }
    if (first) {
        move_to_end_locked(first);
    }
    umf_unlock(&pinned_lock);
    return first;
}

/* The block stays pinned for now. */
static void put_off(umf_pinned_block_t *block) {
    umf_lock(&pinned_lock);
    umf_list_remove(&block->link);
    umf_list_add(&pinned_blocks, &block->link);
    umf_unlock(&pinned_lock);
    umf_event_count_advance(&pinned_ended);
}

void umf_pinned_ticks(void) {
    enum { TICKS = 32 }; /* follow each other every 50 ms while memory is left */
    size_t count, done = 0, share = 1;
    uint64_t since;
    umf_pinned_block_t *block;
    bool is_idle = true;
    for (; is_idle && done < share && (block = take_over(&count, &since)); done++) {
        share = done == 0 ? (count + TICKS - 1) / TICKS : share;
        is_idle = since >= UMF_PINNED_PATIENCE_MS * MS || is_device_idle(block);
        if (is_idle) {
            block_end(block, false);
        } else {
            put_off(block);
        }
    }
    if (done > 0) {
        umf_decay_tick_soon();
    }
}

/* --- trim ---------------------------------------------------------------------------------------
 */

/* The next block that this trim has not looked at, for block_end; NULL: none. `is_end`: also those
 * in use, because their provider ends. */
static umf_pinned_block_t *take_next(umf_memory_provider_handle_t provider, bool is_end,
                                     uint64_t number) {
    umf_pinned_block_t *found = NULL;
    umf_lock(&pinned_lock);
    for (umf_list_t *at = pinned_blocks.next; at != &pinned_blocks && !found; at = at->next) {
        umf_pinned_block_t *block = UMF_CONTAINER_OF(at, umf_pinned_block_t, link);
        bool is_meant = (!provider || block->provider == provider) && block->trim < number &&
                        (is_end || block->ready == block_all(block));
        found = is_meant ? block : NULL;
    }
    if (found) {
        found->trim = number;
        move_to_end_locked(found);
    }
    umf_unlock(&pinned_lock);
    return found;
}

static void trim(umf_memory_provider_handle_t provider, bool is_end) {
    static _Atomic uint64_t last;
    uint64_t number = atomic_fetch_add(&last, 1) + 1;
    for (umf_pinned_block_t *block; (block = take_next(provider, is_end, number));) {
        block_end(block, is_end);
    }
}

/* Until no other thread unpins a block of the provider. */
static void wait_for_ending(umf_memory_provider_handle_t provider) {
    for (bool is_ending = true; is_ending;) {
        uint32_t seen = umf_event_count_read(&pinned_ended);
        umf_lock(&pinned_lock);
        is_ending = is_ending_locked(provider);
        umf_unlock(&pinned_lock);
        if (is_ending) {
            umf_event_count_wait(&pinned_ended, seen);
        }
    }
}

void umf_pinned_trim(void) {
    umf_undone_settle_all();
    trim(NULL, false);
}

void umf_pinned_drop(umf_memory_provider_handle_t provider) {
    umf_undone_settle(provider);
    trim(provider, true);
    wait_for_ending(provider);
    trim(provider, true); /* a block that another thread could not unpin */
}
