/* Bins: their slabs by state, the chunks that are taken and put back. */
#include "base/log.h"
#include "base/meta.h"
#include "pools/disjoint/slab_own.h"

static size_t max_of(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Bytes of the bitmap, and of what aligns the states to cache lines: 64 bits of the bitmap then
 * stand for one cache line of states or more. Fewer states than a cache line are not aligned. */
static size_t front_for(uint32_t chunks, size_t stride) {
    size_t bits = umf_slab_bitmap_words(chunks) * sizeof(uint64_t);
    return chunks * stride < 64
               ? bits
               : umf_align_up(bits + UMF_MAGAZINE_STATES, 64) - UMF_MAGAZINE_STATES;
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
    bin->chunks = chunks < UMF_SLAB_MAX_CHUNKS ? (uint32_t)chunks : UMF_SLAB_MAX_CHUNKS;
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

void umf_bin_count_slabs_locked(umf_bin_t *bin) {
    count_in_use(bin, bin->slabs - bin->empty_count, bin->empty_count);
}

/* --- states of a slab: each is in one of the bin's four lists --- */

/* The last used chunk of a slab was freed: the slab is kept or goes to `leaving`. `reserved`
 * further slabs count as kept. */
static void slab_became_empty_locked(umf_bin_t *bin, umf_slab_t *slab, size_t reserved,
                                     umf_list_t *leaving) {
    if (bin->empty_count + reserved < bin->max_kept &&
        umf_quota_reserve(bin->owner->limits, bin->slab_size)) {
        umf_slab_move_locked(slab, &bin->empty);
        slab->aged = false;
        umf_bin_set_empty_count_locked(bin, bin->empty_count + 1);
    } else {
        umf_slab_move_locked(slab, leaving);
        bin->slabs--;
        if (++bin->returned >= UMF_BIN_BUSY && bin->chunks == 1 && bin->owner->waiting) {
            umf_bin_set_busy_locked(bin, true);
        }
    }
    umf_bin_count_slabs_locked(bin);
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
        umf_slab_leave_empty_locked(bin, slab);
        umf_list_add(&bin->partial, &slab->link);
        umf_bin_count_slabs_locked(bin);
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
    umf_slab_set_free(slab, slab->free - (uint32_t)n);
    if (!slab->free) {
        umf_slab_move_locked(slab, &bin->full);
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
    umf_slab_t *slab = umf_slab_create(bin);
    if (!slab) {
        return 0;
    }
    umf_lock(&bin->lock);
    bin->slabs++;
    umf_bin_count_slabs_locked(bin);
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
        umf_slab_leave_empty_locked(bin, slab);
        claim_locked(bin, slab);
        slabs[taken] = (umf_item_t){.object = slab};
    }
    umf_unlock(&bin->lock);
    return taken;
}

size_t umf_bin_take_claimed(umf_bin_t *bin, umf_item_t *slabs, size_t n) {
    size_t taken = umf_bin_empty_count(bin) ? take_kept_claimed(bin, slabs, n) : 0;
    umf_slab_t *slab = taken ? NULL : umf_slab_create(bin);
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
    umf_slabs_destroy(bin, &leaving);
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

void umf_slab_put_locked(umf_bin_t *bin, umf_slab_t *slab, uint32_t chunk, umf_list_t *leaving) {
    *umf_slab_bits(slab, chunk / 64) |= 1ull << chunk % 64;
    slab->dirty = true;
    bin->used--;
    bool was_full = slab->free++ == 0;
    if (slab->free == bin->chunks) {
        slab_became_empty_locked(bin, slab, 0, leaving);
    } else if (was_full) {
        umf_slab_move_locked(slab, &bin->partial);
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
            slab = umf_slab_of(bin, ptr);
        }
        uintptr_t start = 0;
        uint32_t chunk = slab ? umf_slab_chunk_of(slab, (uintptr_t)ptr, &start) : 0;
        /* The states let two frees at the same moment pass (cache/magazine.h): the second chunk is
         * found here. */
        if (!slab || start != (uintptr_t)ptr || chunk >= bin->chunks || is_free(slab, chunk)) {
            UMF_LOG_ERROR("%p was freed twice", ptr);
            continue;
        }
        umf_slab_put_locked(bin, slab, chunk, &leaving);
    }
    umf_unlock(&bin->lock);
    umf_slabs_destroy(bin, &leaving);
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
        umf_slab_put_locked(bin, slab, chunk, &leaving);
    }
    umf_unlock(&bin->lock);
    umf_slabs_destroy(bin, &leaving);
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

/* --- destroy --- */

void umf_bin_destroy(umf_bin_t *bin) {
    umf_quota_release(bin->owner->limits, bin->empty_count * bin->slab_size);
    umf_bin_set_empty_count_locked(bin, 0);
    umf_list_t *lists[] = {&bin->empty, &bin->partial, &bin->idle, &bin->full};
    for (size_t i = 0; i < UMF_COUNT_OF(lists); i++) {
        umf_list_t leaving;
        umf_list_init(&leaving);
        while (!umf_list_is_empty(lists[i])) {
            umf_list_t *link = lists[i]->next;
            umf_list_remove(link);
            umf_list_add(&leaving, link);
        }
        umf_slabs_destroy(bin, &leaving);
    }
    /* The provider has refused these: their memory stays, their descriptors go. */
    while (!umf_list_is_empty(&bin->empty)) {
        umf_slab_t *slab = UMF_CONTAINER_OF(bin->empty.next, umf_slab_t, link);
        umf_slab_leave_empty_locked(bin, slab);
        umf_slab_descriptor_free(bin, slab);
    }
    for (umf_slab_t *slab; (slab = umf_slab_descriptor_of_locked(&bin->spare)) != NULL;) {
        umf_slab_descriptor_free(bin, slab);
    }
    umf_lock_destroy(&bin->lock);
    umf_meta_free(bin, sizeof(*bin));
}
