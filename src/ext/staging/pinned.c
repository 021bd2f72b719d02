/* Pinned: blocks of units. The units of a block go back to the system together. */
#include "ext/staging/pinned.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "base/event_count.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/place.h"
#include "cache/decay.h"
#include "ds/list.h"
#include "ext/staging/undone.h"
#include "ext/staging/workers.h"
#include "system/os.h"

#define PINNED_BLOCK_UNITS 8

struct umf_pinned_block_t {
    umf_list_t link;                       /* Sync: pinned_lock */
    umf_memory_provider_handle_t provider; /* Immutable */
    size_t count;                          /* number of units. Immutable */
    unsigned ready;                        /* one bit for each unit not in use. Sync: pinned_lock */
    bool is_plain;                         /* Immutable */
    bool is_pinned;                        /* Sync: pinned_lock */
    uint64_t unused_since;                 /* if all units are ready. Sync: pinned_lock */
    umf_event_count_t turn;                /* advances when the last unit was touched */
    _Atomic size_t touched;                /* number of units */
    umf_pinned_t units[PINNED_BLOCK_UNITS];
};

UMF_LOCK_STATIC(pinned_lock, UMF_RANK_SUSPEND);
/* Sync: pinned_lock */
static umf_list_t pinned_blocks = {&pinned_blocks, &pinned_blocks};
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
    int error = umf_os_place(size, 0, PROT_READ | PROT_WRITE, &base);
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

static bool block_unpin(const umf_pinned_block_t *block) {
    umf_memory_provider_handle_t provider = block->provider;
    return !block->is_pinned || !provider->ext->host_unpin ||
           provider->ext->host_unpin(provider->self, block->units[0].base,
                                     block->count * UMF_PINNED_UNIT) == UMF_RESULT_SUCCESS;
}

/* Gives a block that is in no list and no longer pinned back to the system. */
static void block_destroy(umf_pinned_block_t *block) {
    size_t size = block->count * UMF_PINNED_UNIT;
    char *base = block->units[0].base;
    umf_os_unmap(base, size);
    umf_os_place_freed(base, size);
    umf_meta_free(block, sizeof(*block));
}

/* A driver may still write to a block that is pinned, and refuses to pin its addresses again: they
 * stay mapped. The block is used again, or stays with the process where its provider ends. */
static void block_keep(umf_pinned_block_t *block, bool is_end) {
    UMF_LOG_WARN("%zu bytes of pinned host memory at %p stay pinned%s",
                 block->count * UMF_PINNED_UNIT, (void *)block->units[0].base,
                 is_end ? " until the process ends" : ": they are used for the next copies");
    if (is_end && block->ready == block_all(block)) {
        umf_meta_free(block, sizeof(*block));
    } else if (!is_end) {
        umf_lock(&pinned_lock);
        umf_list_add(&pinned_blocks, &block->link);
        umf_unlock(&pinned_lock);
    }
}

/* A block that is in no list. */
static void block_end(umf_pinned_block_t *block, bool is_end) {
    if (block->ready == block_all(block) && block_unpin(block)) {
        block_destroy(block);
    } else {
        block_keep(block, is_end);
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
        umf_list_remove(&block->link);
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

/* Takes unused blocks off the list. `is_end`: also those in use, because
 * their provider ends. */
static void take_unused(umf_memory_provider_handle_t provider, bool is_end, umf_list_t *taken) {
    umf_list_init(taken);
    umf_lock(&pinned_lock);
    for (umf_list_t *at = pinned_blocks.next, *next; at != &pinned_blocks; at = next) {
        next = at->next;
        umf_pinned_block_t *block = UMF_CONTAINER_OF(at, umf_pinned_block_t, link);
        if ((!provider || block->provider == provider) &&
            (is_end || block->ready == block_all(block))) {
            umf_list_remove(at);
            umf_list_add(taken, at);
        }
    }
    umf_unlock(&pinned_lock);
}

static void trim(umf_memory_provider_handle_t provider, bool is_end) {
    umf_list_t taken;
    take_unused(provider, is_end, &taken);
    while (!umf_list_is_empty(&taken)) {
        umf_pinned_block_t *block = UMF_CONTAINER_OF(taken.next, umf_pinned_block_t, link);
        umf_list_remove(&block->link);
        block_end(block, is_end);
    }
}

/* --- the lease ----------------------------------------------------------------------------------
 */

int umf_pinned_lease(void) {
    return atomic_load_explicit(&pinned_lease, memory_order_relaxed);
}

void umf_pinned_set_lease(int milliseconds) {
    atomic_store_explicit(&pinned_lease, milliseconds, memory_order_relaxed);
}

static bool is_over_locked(const umf_pinned_block_t *block, uint64_t now) {
    uint64_t lease = (uint64_t)umf_pinned_lease() * 1000000;
    return !block->is_plain && block->is_pinned && block->ready == block_all(block) &&
           now - block->unused_since >= lease;
}

/* The first block whose lease is over, off the list; NULL: none. `*count` is their number. */
static umf_pinned_block_t *take_over(size_t *count) {
    uint64_t now = umf_decay_now();
    umf_pinned_block_t *first = NULL;
    *count = 0;
    umf_lock(&pinned_lock);
    for (umf_list_t *at = pinned_blocks.next; at != &pinned_blocks; at = at->next) {
        umf_pinned_block_t *block = UMF_CONTAINER_OF(at, umf_pinned_block_t, link);
        bool is_over = is_over_locked(block, now);
        first = is_over && !first ? block : first;
        *count += is_over;
    }
    if (first) {
        umf_list_remove(&first->link);
    }
    umf_unlock(&pinned_lock);
    return first;
}

void umf_pinned_ticks(void) {
    enum { SHARES = 3, MOST_PAUSE = 100, ALL_PAUSES = 700 }; /* milliseconds */
    size_t count, done = 0, share = 1;
    for (umf_pinned_block_t *block; done < share && (block = take_over(&count)); done++) {
        share = done == 0 ? (count + SHARES - 1) / SHARES : share;
        block->unused_since = umf_decay_now(); /* of one that cannot be unpinned */
        block_end(block, false);
        size_t pause = ALL_PAUSES / share < MOST_PAUSE ? ALL_PAUSES / share : MOST_PAUSE;
        struct timespec time = {.tv_nsec = (long)pause * 1000000};
        nanosleep(&time, NULL);
    }
}

/* --- trim ---------------------------------------------------------------------------------------
 */

void umf_pinned_trim(void) {
    umf_undone_settle_all();
    trim(NULL, false);
}

void umf_pinned_drop(umf_memory_provider_handle_t provider) {
    umf_undone_settle(provider);
    trim(provider, true);
}
