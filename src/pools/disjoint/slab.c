#include "pools/disjoint/slab.h"

#include <string.h>

#include "base/log.h"
#include "base/meta.h"
#include "system/annotate.h"

#define SLAB_MAX_CHUNKS (UINT32_MAX >> 2) /* a slab has no more; the rest of it is not used */
#define SPARE_MAX 1024u                   /* descriptors of a bin that wait for new slabs */

static size_t bitmap_words(uint32_t chunks) {
    return (chunks + 63) / 64;
}

/* Bytes of the bitmap, and of what aligns the states to cache lines: 64 bits of the bitmap then
 * stand for one cache line of states or more. Fewer states than a cache line are not aligned. */
static size_t front_for(uint32_t chunks, size_t stride) {
    size_t bits = bitmap_words(chunks) * sizeof(uint64_t);
    return chunks * stride < 64
               ? bits
               : umf_align_up(bits + UMF_MAGAZINE_STATES, 64) - UMF_MAGAZINE_STATES;
}

/* A thread writes to the bitmap of a reserved slab without a lock, so the slab of a single chunk
 * has a cache line of its own. */
static size_t slab_bytes(const umf_bin_t *bin) {
    size_t bytes = bin->front + sizeof(umf_slab_t) + bin->chunks * bin->stride;
    return bin->chunks > 1 ? bytes : umf_meta_isolated_size(bytes);
}

static void *slab_block(const umf_bin_t *bin, umf_slab_t *slab) {
    return (char *)slab - bin->front;
}

static size_t max_of(size_t a, size_t b) {
    return a > b ? a : b;
}

umf_bin_t *umf_bin_create(const umf_slab_owner_t *owner, uint32_t index, size_t size,
                          size_t slab_size, uint16_t class_offset, size_t stride, size_t max_kept) {
    umf_bin_t *bin = umf_meta_alloc(sizeof(*bin));
    if (!bin) {
        return NULL;
    }
    bin->owner = owner;
    bin->index = index;
    bin->size = size;
    bin->magic = umf_magic(size);
    bin->slab_size = max_of(size, slab_size);
    size_t chunks = max_of(slab_size / size, 1);
    bin->chunks = chunks < SLAB_MAX_CHUNKS ? (uint32_t)chunks : SLAB_MAX_CHUNKS;
    bin->class_offset = class_offset;
    bin->stride = stride;
    bin->front = front_for(bin->chunks, stride);
    bin->max_kept = max_kept;
    umf_list_init(&bin->partial);
    umf_list_init(&bin->idle);
    umf_list_init(&bin->empty);
    umf_list_init(&bin->full);
    umf_list_init(&bin->spare);
    umf_lock_init(&bin->lock, UMF_RANK_BIN);
    return bin;
}

static void set_empty_count_locked(umf_bin_t *bin, size_t count) {
    __atomic_store_n(&bin->empty_count, count, __ATOMIC_RELAXED);
}

static void set_busy_locked(umf_bin_t *bin, bool is_busy) {
    __atomic_store_n(&bin->is_busy, is_busy, __ATOMIC_RELAXED);
}

/* --- descriptors --- */

static void set_all(umf_slab_t *slab, uint32_t chunks) {
    for (size_t w = 0; w < bitmap_words(chunks); w++) {
        *umf_slab_bits(slab, w) = UINT64_MAX;
    }
    if (chunks % 64) {
        *umf_slab_bits(slab, chunks / 64) = (1ull << chunks % 64) - 1;
    }
}

static void set_free(umf_slab_t *slab, uint32_t chunks) {
    slab->free = chunks & SLAB_MAX_CHUNKS;
}

/* The first descriptor of a list. NULL: there is none. */
static umf_slab_t *descriptor_of_locked(umf_list_t *list) {
    if (umf_list_is_empty(list)) {
        return NULL;
    }
    umf_slab_t *slab = UMF_CONTAINER_OF(list->next, umf_slab_t, link);
    umf_list_remove(&slab->link);
    return slab;
}

static umf_slab_t *descriptor_make(umf_bin_t *bin) {
    char *block = umf_meta_alloc(slab_bytes(bin));
    umf_slab_t *slab = block ? (umf_slab_t *)(block + bin->front) : NULL;
    if (slab) {
        slab->bin = bin;
    }
    return slab;
}

static umf_slab_t *descriptor_take(umf_bin_t *bin) {
    umf_slab_t *slab = NULL;
    if (bin->chunks == 1) {
        umf_lock(&bin->lock);
        slab = descriptor_of_locked(&bin->spare);
        bin->spare_count -= slab != NULL;
        umf_unlock(&bin->lock);
    }
    return slab ? slab : descriptor_make(bin);
}

static void descriptor_free(const umf_bin_t *bin, umf_slab_t *slab) {
    umf_meta_free(slab->offsets, bin->chunks * sizeof(uint32_t));
    umf_meta_free(slab_block(bin, slab), slab_bytes(bin));
}

/* Keeps the descriptor. Returns one that is to be freed, the oldest; NULL: none. */
static umf_slab_t *descriptor_keep(umf_bin_t *bin, umf_slab_t *slab) {
    umf_slab_t *oldest = NULL;
    umf_lock(&bin->lock);
    if (bin->spare_count == SPARE_MAX) {
        oldest = UMF_CONTAINER_OF(bin->spare.prev, umf_slab_t, link);
        umf_list_remove(&oldest->link);
    } else {
        bin->spare_count++;
    }
    umf_list_add(&bin->spare, &slab->link);
    umf_unlock(&bin->lock);
    return oldest;
}

/* If two threads free one large block at once, the second may look at the descriptor after the
 * first has given the slab back. It must find the chunk free, so the bin keeps the descriptor for a
 * while. */
static void descriptor_put(umf_bin_t *bin, umf_slab_t *slab) {
    if (bin->chunks > 1) {
        descriptor_free(bin, slab);
        return;
    }
    umf_meta_free(slab->offsets, sizeof(uint32_t));
    slab->offsets = NULL;
    slab->dirty = slab->aged = false;
    memset(slab->states, UMF_STATE_NONE, bin->stride);
    slab = descriptor_keep(bin, slab);
    if (slab) {
        descriptor_free(bin, slab);
    }
}

/* Takes memory from the provider. No lock is held. NULL: umf_tracked_refusal has the reason. */
static umf_slab_t *slab_create(umf_bin_t *bin) {
    umf_tracked_forget_refusal();
    /* Free slabs of other sizes go back first, so that the caches of all sizes do not add up. */
    if (bin->owner->waiting) {
        umf_magazines_release_large(bin->owner->waiting, bin->index, UMF_MAGAZINE_WAITING_MAX);
    }
    umf_slab_t *slab = descriptor_take(bin);
    if (!slab) {
        return NULL;
    }
    set_free(slab, bin->chunks);
    set_all(slab, bin->chunks);
    void *memory = NULL;
    if (umf_tracked_alloc(bin->owner->tracked, bin->slab_size, 0, bin->class_offset, slab,
                          &memory) != UMF_RESULT_SUCCESS) {
        descriptor_put(bin, slab);
        return NULL;
    }
    slab->span = umf_span_index(umf_tracked_find(bin->owner->tracked, memory));
    umf_list_init(&slab->link);
    UMF_POISON(memory, bin->slab_size);
    return slab;
}

/* --- giving slabs back --- */

static umf_slab_t *slab_of(const umf_bin_t *bin, void *chunk) {
    umf_span_t *span = umf_tracked_find(bin->owner->tracked, chunk);
    umf_slab_t *slab = span ? span->cookie : NULL;
    return slab && slab->bin == bin ? slab : NULL;
}

/* Gives an empty, unlinked slab back. If the provider refuses, the slab stays with the bin, unless
 * its span could not be recorded again either. */
static void slab_destroy(umf_bin_t *bin, umf_slab_t *slab) {
    void *base = (void *)umf_slab_base(slab);
    UMF_UNPOISON(base, bin->slab_size);
    umf_result_t result = umf_tracked_free_for_reuse(bin->owner->tracked, umf_span_at(slab->span));
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("the provider did not take back the slab %p of %zu bytes: result %d", base,
                      bin->slab_size, (int)result);
    }
    if (result == UMF_RESULT_SUCCESS || slab_of(bin, base) != slab) {
        descriptor_put(bin, slab);
        return;
    }
    umf_lock(&bin->lock);
    umf_list_add_tail(&bin->empty, &slab->link);
    /* Even beyond the limit: the provider has refused the slab, so it has to stay. */
    umf_quota_add(bin->owner->limits, bin->slab_size);
    set_empty_count_locked(bin, bin->empty_count + 1);
    bin->slabs++;
    umf_unlock(&bin->lock);
}

static void slab_destroy_first(umf_bin_t *bin, umf_list_t *slabs) {
    umf_slab_t *slab = UMF_CONTAINER_OF(slabs->next, umf_slab_t, link);
    umf_list_remove(&slab->link);
    slab_destroy(bin, slab);
}

/* Inline, because the list is usually empty. */
static inline void slabs_destroy(umf_bin_t *bin, umf_list_t *slabs) {
    while (umf_unlikely(!umf_list_is_empty(slabs))) {
        slab_destroy_first(bin, slabs);
    }
}

/* --- counters --- */

static void count_in_use(umf_bin_t *bin, size_t in_use, size_t in_pool) {
    umf_bin_counters_t *c = &bin->counters;
    if (bin->owner->count_slabs) {
        c->slabs_in_use = in_use;
        c->slabs_in_pool = in_pool;
        c->max_slabs_in_use = max_of(c->max_slabs_in_use, in_use);
        c->max_slabs_in_pool = max_of(c->max_slabs_in_pool, in_pool);
    }
}

static void count_slabs_locked(umf_bin_t *bin) {
    count_in_use(bin, bin->slabs - bin->empty_count, bin->empty_count);
}

/* --- states of a slab: each is in one of the bin's four lists --- */

static void slab_move_locked(umf_slab_t *slab, umf_list_t *list) {
    umf_list_remove(&slab->link);
    umf_list_add(list, &slab->link);
}

static void slab_move_last_locked(umf_slab_t *slab, umf_list_t *list) {
    umf_list_remove(&slab->link);
    umf_list_add_tail(list, &slab->link);
}

static void slab_leave_empty_locked(umf_bin_t *bin, umf_slab_t *slab) {
    umf_list_remove(&slab->link);
    set_empty_count_locked(bin, bin->empty_count - 1);
    umf_quota_release(bin->owner->limits, bin->slab_size);
}

/* The last used chunk of a slab was freed: the slab is kept or goes to `leaving`. `reserved`
 * further slabs count as kept. */
static void slab_became_empty_locked(umf_bin_t *bin, umf_slab_t *slab, size_t reserved,
                                     umf_list_t *leaving) {
    if (bin->empty_count + reserved < bin->max_kept &&
        umf_quota_reserve(bin->owner->limits, bin->slab_size)) {
        slab_move_locked(slab, &bin->empty);
        slab->aged = false;
        set_empty_count_locked(bin, bin->empty_count + 1);
    } else {
        slab_move_locked(slab, leaving);
        bin->slabs--;
        if (++bin->returned >= UMF_BIN_BUSY && bin->chunks == 1 && bin->owner->waiting) {
            set_busy_locked(bin, true);
        }
    }
    count_slabs_locked(bin);
}

/* A slab with free chunks; NULL: there is none. Partial slabs come first, to keep the number of
 * slabs in use small. Idle ones are about to be purged, so they come after them. An empty slab
 * becomes partial. */
static umf_slab_t *slab_with_room_locked(umf_bin_t *bin) {
    if (umf_list_is_empty(&bin->partial)) {
        if (!umf_list_is_empty(&bin->idle)) {
            return UMF_CONTAINER_OF(bin->idle.next, umf_slab_t, link);
        }
        if (umf_list_is_empty(&bin->empty)) {
            return NULL;
        }
        umf_slab_t *slab = UMF_CONTAINER_OF(bin->empty.next, umf_slab_t, link);
        slab_leave_empty_locked(bin, slab);
        umf_list_add(&bin->partial, &slab->link);
        count_slabs_locked(bin);
    }
    return UMF_CONTAINER_OF(bin->partial.next, umf_slab_t, link);
}

static uint8_t *state_of(const umf_bin_t *bin, umf_slab_t *slab, size_t chunk) {
    return bin->stride ? umf_slab_state(slab, chunk) : NULL;
}

static void state_clear(const umf_bin_t *bin, umf_slab_t *slab, uint32_t chunk) {
    if (bin->stride) {
        umf_state_set(umf_slab_state(slab, chunk), UMF_STATE_NONE);
    }
}

/* A word of the bitmap stands for a cache line of states, which no two threads should share: after
 * half of `n`, words are taken whole or not at all. */
static size_t slab_take_locked(umf_bin_t *bin, umf_slab_t *slab, umf_item_t *chunks, size_t n) {
    uintptr_t base = umf_slab_base(slab);
    size_t taken = 0;
    n = n < slab->free ? n : slab->free;
    for (size_t w = 0; taken < n; w++) {
        uint64_t *bits = umf_slab_bits(slab, w);
        if (2 * taken >= n && taken + (size_t)__builtin_popcountll(*bits) > n) {
            n = taken;
            break;
        }
        while (*bits && taken < n) {
            unsigned bit = (unsigned)__builtin_ctzll(*bits);
            *bits &= *bits - 1;
            size_t chunk = w * 64 + bit;
            chunks[taken].object = (void *)(base + chunk * bin->size);
            chunks[taken++].state = state_of(bin, slab, chunk);
        }
    }
    set_free(slab, slab->free - (uint32_t)n);
    if (!slab->free) {
        slab_move_locked(slab, &bin->full);
    }
    bin->used += n;
    return n;
}

static void count_taken_locked(umf_bin_t *bin, size_t taken, bool from_pool) {
    if (bin->owner->count_chunks) {
        bin->counters.alloc_num += taken;
        bin->counters.alloc_pool_num += from_pool ? taken : 0;
    }
}

/* Takes chunks from slabs that the bin has. */
static size_t take_kept(umf_bin_t *bin, umf_item_t *chunks, size_t n) {
    size_t taken = 0;
    umf_slab_t *slab;
    umf_lock(&bin->lock);
    while (taken < n && (slab = slab_with_room_locked(bin)) != NULL) {
        taken += slab_take_locked(bin, slab, chunks + taken, n - taken);
    }
    count_taken_locked(bin, taken, true);
    umf_unlock(&bin->lock);
    return taken;
}

/* Makes a slab without the lock, because the provider is called, and takes chunks from it. Two
 * threads may do that at once; both slabs are used. */
static size_t take_new(umf_bin_t *bin, umf_item_t *chunks, size_t n) {
    umf_slab_t *slab = slab_create(bin);
    if (!slab) {
        return 0;
    }
    umf_lock(&bin->lock);
    bin->slabs++;
    count_slabs_locked(bin);
    umf_list_add(&bin->partial, &slab->link);
    size_t taken = slab_take_locked(bin, slab, chunks, n);
    count_taken_locked(bin, taken, false);
    umf_unlock(&bin->lock);
    return taken;
}

size_t umf_bin_take(umf_bin_t *bin, umf_item_t *chunks, size_t n) {
    /* A slab of one chunk is full or empty: without empty slabs there is nothing to lock for. */
    bool may_have_free = bin->chunks > 1 || umf_bin_empty_count(bin) > 0;
    size_t taken = may_have_free ? take_kept(bin, chunks, n) : 0;
    return taken ? taken : take_new(bin, chunks, n);
}

/* --- single chunks, claimed --- */

/* The bin counts a claimed slab as full. The bit of its chunk stays set, so a second free of the
 * chunk finds it free. */
static void claim_locked(umf_bin_t *bin, umf_slab_t *slab) {
    slab->free = 0;
    umf_list_add(&bin->full, &slab->link);
    bin->used++;
}

static size_t take_kept_claimed(umf_bin_t *bin, umf_item_t *slabs, size_t n) {
    size_t taken = 0;
    umf_lock(&bin->lock);
    for (; taken < n && !umf_list_is_empty(&bin->empty); taken++) {
        umf_slab_t *slab = UMF_CONTAINER_OF(bin->empty.next, umf_slab_t, link);
        slab_leave_empty_locked(bin, slab);
        claim_locked(bin, slab);
        slabs[taken] = (umf_item_t){.object = slab};
    }
    umf_unlock(&bin->lock);
    return taken;
}

size_t umf_bin_take_claimed(umf_bin_t *bin, umf_item_t *slabs, size_t n) {
    size_t taken = umf_bin_empty_count(bin) ? take_kept_claimed(bin, slabs, n) : 0;
    umf_slab_t *slab = taken ? NULL : slab_create(bin);
    if (slab) {
        umf_lock(&bin->lock);
        bin->slabs++;
        claim_locked(bin, slab);
        umf_unlock(&bin->lock);
        slabs[0] = (umf_item_t){.object = slab};
        taken = 1;
    }
    return taken;
}

void umf_bin_put_claimed(umf_bin_t *bin, const umf_item_t *slabs, size_t n, size_t reserved) {
    umf_list_t leaving;
    umf_list_init(&leaving);
    umf_lock(&bin->lock);
    for (size_t i = 0; i < n; i++) {
        umf_slab_t *slab = slabs[i].object;
        slab->free = 1; /* the claim has set the bit already */
        slab->dirty = true;
        bin->used--;
        slab_became_empty_locked(bin, slab, reserved, &leaving);
    }
    umf_unlock(&bin->lock);
    slabs_destroy(bin, &leaving);
}

/* --- giving back --- */

uint32_t umf_slab_chunk_of(const umf_slab_t *slab, uintptr_t addr, uintptr_t *start) {
    uintptr_t base = umf_slab_base(slab);
    uint32_t chunk = (uint32_t)((addr - base) / slab->bin->size);
    *start = base + chunk * slab->bin->size;
    return chunk;
}

static bool is_free(umf_slab_t *slab, uint32_t chunk) {
    return *umf_slab_bits(slab, chunk / 64) >> chunk % 64 & 1;
}

static void slab_put_locked(umf_bin_t *bin, umf_slab_t *slab, uint32_t chunk, umf_list_t *leaving) {
    *umf_slab_bits(slab, chunk / 64) |= 1ull << chunk % 64;
    slab->dirty = true;
    bin->used--;
    bool was_full = slab->free++ == 0;
    if (slab->free == bin->chunks) {
        slab_became_empty_locked(bin, slab, 0, leaving);
    } else if (was_full) {
        slab_move_locked(slab, &bin->partial);
    }
    if (bin->owner->count_chunks) {
        bin->counters.free_num++;
    }
}

void umf_bin_put(umf_bin_t *bin, const umf_item_t *chunks, size_t n) {
    umf_list_t leaving;
    umf_list_init(&leaving);
    umf_slab_t *slab = NULL;
    umf_lock(&bin->lock);
    for (size_t i = 0; i < n; i++) {
        void *ptr = chunks[i].object;
        /* Neighbours in a stack are often in one slab: the lookup is saved. */
        if (!slab || (uintptr_t)ptr - umf_slab_base(slab) >= bin->slab_size) {
            slab = slab_of(bin, ptr);
        }
        uintptr_t start = 0;
        uint32_t chunk = slab ? umf_slab_chunk_of(slab, (uintptr_t)ptr, &start) : 0;
        /* The states let two frees at the same moment pass (cache/magazine.h): the second chunk is
         * found here. */
        if (!slab || start != (uintptr_t)ptr || chunk >= bin->chunks || is_free(slab, chunk)) {
            UMF_LOG_ERROR("%p was freed twice", ptr);
            continue;
        }
        slab_put_locked(bin, slab, chunk, &leaving);
    }
    umf_unlock(&bin->lock);
    slabs_destroy(bin, &leaving);
}

/* The used chunk that belongs to the user's pointer. false: the pointer is none of a user. */
static bool slab_resolve_locked(umf_slab_t *slab, uintptr_t ptr, uint32_t *chunk) {
    uintptr_t start;
    *chunk = umf_slab_chunk_of(slab, ptr, &start);
    if (*chunk >= slab->bin->chunks || is_free(slab, *chunk)) {
        return false;
    }
    return start + (slab->offsets ? slab->offsets[*chunk] : 0) == ptr;
}

umf_result_t umf_slab_put_ptr(umf_slab_t *slab, uintptr_t ptr) {
    umf_bin_t *bin = slab->bin;
    umf_list_t leaving;
    umf_list_init(&leaving);
    uint32_t chunk;
    umf_lock(&bin->lock);
    bool found = slab_resolve_locked(slab, ptr, &chunk);
    if (found) {
        if (slab->offsets) {
            slab->offsets[chunk] = 0;
        }
        state_clear(bin, slab, chunk);
        slab_put_locked(bin, slab, chunk, &leaving);
    }
    umf_unlock(&bin->lock);
    slabs_destroy(bin, &leaving);
    return found ? UMF_RESULT_SUCCESS : UMF_RESULT_ERROR_INVALID_ARGUMENT;
}

umf_result_t umf_slab_usable_size(umf_slab_t *slab, uintptr_t ptr, size_t *size) {
    uint32_t chunk;
    umf_lock(&slab->bin->lock);
    bool found = slab_resolve_locked(slab, ptr, &chunk);
    umf_unlock(&slab->bin->lock);
    if (!found) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *size = umf_slab_base(slab) + (chunk + 1) * slab->bin->size - ptr;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_slab_set_offset(umf_slab_t *slab, uintptr_t ptr) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    uintptr_t start;
    uint32_t chunk = umf_slab_chunk_of(slab, ptr, &start);
    umf_lock(&slab->bin->lock);
    if (!slab->offsets) {
        slab->offsets = umf_meta_alloc(slab->bin->chunks * sizeof(uint32_t));
    }
    if (slab->offsets) {
        slab->offsets[chunk] = (uint32_t)(ptr - start);
        state_clear(slab->bin, slab, chunk);
    } else {
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    umf_unlock(&slab->bin->lock);
    return result;
}

/* --- trim, purge and decay --- */

void umf_bin_trim(umf_bin_t *bin, size_t *keep) {
    umf_list_t leaving, staying;
    umf_list_init(&leaving);
    umf_list_init(&staying);
    umf_lock(&bin->lock);
    bin->returned = 0; /* a trim resets the counter of the bin */
    set_busy_locked(bin, false);
    while (!umf_list_is_empty(&bin->empty)) {
        umf_slab_t *slab = UMF_CONTAINER_OF(bin->empty.next, umf_slab_t, link);
        if (*keep > 0) {
            *keep -= *keep < bin->slab_size ? *keep : bin->slab_size;
            slab_move_locked(slab, &staying);
        } else {
            slab_leave_empty_locked(bin, slab);
            umf_list_add(&leaving, &slab->link);
            bin->slabs--;
        }
    }
    while (!umf_list_is_empty(&staying)) {
        slab_move_locked(UMF_CONTAINER_OF(staying.next, umf_slab_t, link), &bin->empty);
    }
    count_slabs_locked(bin);
    umf_unlock(&bin->lock);
    slabs_destroy(bin, &leaving);
}

/* Purges the whole pages inside the run of chunks [first, last]. */
static umf_result_t purge_run(const umf_slab_t *slab, uint32_t first, uint32_t last,
                              size_t page_size) {
    const umf_bin_t *bin = slab->bin;
    uintptr_t begin = umf_slab_base(slab) + first * bin->size;
    uintptr_t end = umf_align_down(umf_slab_base(slab) + (last + 1) * bin->size, page_size);
    begin = umf_align_up(begin, page_size);
    if (begin >= end) {
        return UMF_RESULT_SUCCESS;
    }
    return umfMemoryProviderPurgeForce(bin->owner->tracked, (void *)begin, end - begin);
}

static umf_result_t purge_runs(const umf_slab_t *slab, const uint64_t *free_bits,
                               size_t page_size) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    for (uint32_t i = 0; i < slab->bin->chunks && result == UMF_RESULT_SUCCESS; i++) {
        uint32_t first = i;
        while (i < slab->bin->chunks && free_bits[i / 64] >> i % 64 & 1) {
            i++;
        }
        if (i > first) {
            result = purge_run(slab, first, i - 1, page_size);
        }
    }
    return result;
}

/* Lists as idle the partial slabs whose free pages are to be purged: all dirty ones, or those that
 * the last decay pass has aged. The other dirty ones are aged now. */
static void find_idle_locked(umf_bin_t *bin, bool only_aged) {
    for (umf_list_t *link = bin->partial.next, *next; link != &bin->partial; link = next) {
        umf_slab_t *slab = UMF_CONTAINER_OF(link, umf_slab_t, link);
        next = link->next;
        if (slab->dirty && (slab->aged || !only_aged)) {
            slab_move_last_locked(slab, &bin->idle);
        } else {
            slab->aged = slab->dirty;
        }
    }
}

/* Takes all free chunks of the next idle slab, so that no thread is given one while its pages are
 * purged without the lock. */
static umf_slab_t *purge_begin_locked(umf_bin_t *bin, uint64_t *free_bits) {
    if (umf_list_is_empty(&bin->idle)) {
        return NULL;
    }
    umf_slab_t *slab = UMF_CONTAINER_OF(bin->idle.next, umf_slab_t, link);
    for (size_t w = 0; w < bitmap_words(bin->chunks); w++) {
        free_bits[w] = *umf_slab_bits(slab, w);
        *umf_slab_bits(slab, w) = 0;
    }
    bin->used += slab->free;
    slab->free = 0;
    slab->dirty = slab->aged = false;
    slab_move_locked(slab, &bin->full);
    return slab;
}

/* After a purge that failed the pages are as dirty as before, unless the provider cannot purge. */
static bool stays_dirty(umf_result_t result) {
    return result != UMF_RESULT_SUCCESS && result != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Frees the chunks again. The slab goes to the end of the list: its pages are purged, so the others
 * are better to use. */
static void purge_end_locked(umf_bin_t *bin, umf_slab_t *slab, const uint64_t *free_bits,
                             umf_result_t result, umf_list_t *leaving) {
    /* These frees are not a user's: they make nothing dirty, and are not counted. */
    bool dirty = slab->dirty || stays_dirty(result);
    size_t counted = bin->counters.free_num;
    for (uint32_t i = 0; i < bin->chunks; i++) {
        if (free_bits[i / 64] >> i % 64 & 1) {
            slab_put_locked(bin, slab, i, leaving);
        }
    }
    slab->dirty = dirty;
    bin->counters.free_num = counted;
    if (slab->free < bin->chunks) {
        slab_move_last_locked(slab, &bin->partial);
    }
}

/* Purges idle slabs one by one. The lock is released during each purge, which calls the provider.
 */
static umf_result_t purge_idle(umf_bin_t *bin, size_t page_size, size_t *left) {
    size_t bytes = bitmap_words(bin->chunks) * sizeof(uint64_t);
    uint64_t *free_bits = umf_meta_alloc(bytes);
    umf_result_t result = UMF_RESULT_SUCCESS;
    umf_list_t leaving;
    umf_list_init(&leaving);
    umf_lock(&bin->lock);
    umf_slab_t *slab;
    while (free_bits && *left && result == UMF_RESULT_SUCCESS &&
           (slab = purge_begin_locked(bin, free_bits)) != NULL) {
        *left -= *left < bin->slab_size ? *left : bin->slab_size;
        umf_unlock(&bin->lock);
        result = purge_runs(slab, free_bits, page_size);
        umf_lock(&bin->lock);
        purge_end_locked(bin, slab, free_bits, result, &leaving);
    }
    umf_unlock(&bin->lock);
    umf_meta_free(free_bits, bytes);
    slabs_destroy(bin, &leaving);
    return result;
}

bool umf_bin_purge(umf_bin_t *bin, size_t page_size) {
    size_t left = SIZE_MAX;
    umf_lock(&bin->lock);
    find_idle_locked(bin, false);
    umf_unlock(&bin->lock);
    return purge_idle(bin, page_size, &left) != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* Takes aged empty slabs out for purge_empty. The bin still counts them as its own, but hands out
 * nothing of them. The other dirty ones are aged now if `is_new`. */
static void take_idle_empty_locked(umf_bin_t *bin, umf_list_t *taken, bool is_new, size_t *left) {
    for (umf_list_t *link = bin->empty.next, *next; link != &bin->empty; link = next) {
        umf_slab_t *slab = UMF_CONTAINER_OF(link, umf_slab_t, link);
        next = link->next;
        if (slab->dirty && slab->aged && *left) {
            *left -= *left < bin->slab_size ? *left : bin->slab_size;
            slab->dirty = slab->aged = false;
            slab_move_last_locked(slab, taken);
        } else if (is_new) {
            slab->aged = slab->dirty;
        }
    }
}

static umf_result_t purge_empty(umf_bin_t *bin, umf_list_t *taken, size_t page_size) {
    umf_result_t result = UMF_RESULT_SUCCESS;
    while (!umf_list_is_empty(taken)) {
        umf_slab_t *slab = UMF_CONTAINER_OF(taken->next, umf_slab_t, link);
        if (result == UMF_RESULT_SUCCESS) {
            result = purge_run(slab, 0, bin->chunks - 1, page_size);
        }
        umf_lock(&bin->lock);
        slab->dirty |= stays_dirty(result);
        slab_move_last_locked(slab, &bin->empty);
        umf_unlock(&bin->lock);
    }
    return result;
}

bool umf_bin_decay(umf_bin_t *bin, size_t page_size, bool is_new, size_t *left) {
    umf_list_t taken;
    umf_list_init(&taken);
    umf_lock(&bin->lock);
    if (is_new) {
        find_idle_locked(bin, true);
    }
    take_idle_empty_locked(bin, &taken, is_new, left);
    bool has_idle = !umf_list_is_empty(&bin->idle);
    umf_unlock(&bin->lock);
    umf_result_t result = purge_empty(bin, &taken, page_size);
    if (result == UMF_RESULT_SUCCESS && has_idle) {
        result = purge_idle(bin, page_size, left);
    }
    return result != UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* --- destroy --- */

void umf_bin_destroy(umf_bin_t *bin) {
    umf_quota_release(bin->owner->limits, bin->empty_count * bin->slab_size);
    set_empty_count_locked(bin, 0);
    umf_list_t *lists[] = {&bin->empty, &bin->partial, &bin->idle, &bin->full};
    for (size_t i = 0; i < UMF_COUNT_OF(lists); i++) {
        umf_list_t leaving;
        umf_list_init(&leaving);
        while (!umf_list_is_empty(lists[i])) {
            umf_list_t *link = lists[i]->next;
            umf_list_remove(link);
            umf_list_add(&leaving, link);
        }
        slabs_destroy(bin, &leaving);
    }
    /* The provider has refused these: their memory stays, their descriptors go. */
    while (!umf_list_is_empty(&bin->empty)) {
        umf_slab_t *slab = UMF_CONTAINER_OF(bin->empty.next, umf_slab_t, link);
        slab_leave_empty_locked(bin, slab);
        descriptor_free(bin, slab);
    }
    for (umf_slab_t *slab; (slab = descriptor_of_locked(&bin->spare)) != NULL;) {
        descriptor_free(bin, slab);
    }
    umf_lock_destroy(&bin->lock);
    umf_meta_free(bin, sizeof(*bin));
}
