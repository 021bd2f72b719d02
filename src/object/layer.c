#include "object/layer.h"

#include "object/object.h"

/* Guards the layers of all pools, and the class offsets that umf_layer_see_span drops. */
UMF_LOCK_STATIC(layer_lock, UMF_RANK_LAYER);

/* `to` gets the functions of the layer, and those of the next row where the layer has none. */
#define LAYER_PUT(function)                                                                        \
    __atomic_store_n(&to->function,                                                                \
                     layer && layer->calls.function ? layer->calls.function : next->function,      \
                     __ATOMIC_RELEASE)

static void put_locked(umf_layer_calls_t *to, const umf_layer_t *layer,
                       const umf_layer_calls_t *next) {
    umf_assert_locked(&layer_lock);
    LAYER_PUT(malloc);
    LAYER_PUT(aligned_malloc);
    LAYER_PUT(calloc);
    LAYER_PUT(realloc);
    LAYER_PUT(free_at);
    LAYER_PUT(try_free);
    LAYER_PUT(last_error);
}

typedef struct seen_t {
    bool malloc, free;
} seen_t;

static seen_t seen_locked(umf_memory_pool_handle_t pool) {
    seen_t seen = {false, false};
    umf_assert_locked(&layer_lock);
    for (int at = 0; at < UMF_LAYERS; at++) {
        const umf_layer_t *layer = umf_layer_of(pool, (umf_layer_rank_t)at);
        seen.malloc = seen.malloc || (layer && layer->sees_malloc);
        seen.free = seen.free || (layer && layer->sees_free);
    }
    return seen;
}

/* The core serves requests and frees inline that no layer must see. */
static void serve_locked(umf_memory_pool_handle_t pool, seen_t before) {
    seen_t now = seen_locked(pool);
    bool serves_malloc = !now.malloc && pool->small_end > 0;
    __atomic_store_n(&pool->small_index, serves_malloc ? pool->index : 0, __ATOMIC_RELEASE);
    if (now.free != before.free && pool->fast && pool->fast->set_served_inline) {
        pool->fast->set_served_inline(pool->self, !now.free);
    }
}

/* Rows change from the pool up: a call that enters meanwhile misses the new layer, or meets all of
 * it. */
static void set(umf_memory_pool_handle_t pool, umf_layer_rank_t rank, const umf_layer_t *layer) {
    umf_lock(&layer_lock);
    seen_t before = seen_locked(pool);
    __atomic_store_n(&pool->layers[rank], layer, __ATOMIC_SEQ_CST);
    for (int at = (int)rank; at >= 0; at--) {
        put_locked(&pool->calls[at], umf_layer_of(pool, (umf_layer_rank_t)at),
                   &pool->calls[at + 1]);
    }
    serve_locked(pool, before);
    umf_unlock(&layer_lock);
}

void umf_layer_push(umf_memory_pool_handle_t pool, const umf_layer_t *layer) {
    set(pool, layer->rank, layer);
}

void umf_layer_remove(umf_memory_pool_handle_t pool, umf_layer_rank_t rank) {
    set(pool, rank, NULL);
}

void umf_layer_see_span(umf_span_t *span) {
    umf_lock(&layer_lock);
    umf_span_drop_class_offset(span);
    umf_unlock(&layer_lock);
}

#define LAYERS_EACH(pool, layer, function)                                                         \
    for (int at = 0; at < UMF_LAYERS; at++)                                                        \
        for (const umf_layer_t *layer = umf_layer_of(pool, (umf_layer_rank_t)at);                  \
             layer && layer->function; layer = NULL)

bool umf_layers_give_back(umf_memory_pool_handle_t pool, bool waits) {
    bool is_any = false;
    LAYERS_EACH(pool, layer, gives_back) {
        is_any = layer->gives_back(pool, waits) || is_any;
    }
    return is_any;
}

void umf_layers_tick(umf_memory_pool_handle_t pool) {
    LAYERS_EACH(pool, layer, ticks) {
        layer->ticks(pool);
    }
}

void umf_layers_freed(umf_memory_pool_handle_t pool, const void *ptr) {
    LAYERS_EACH(pool, layer, freed) {
        layer->freed(pool, ptr);
    }
}

void umf_layers_close(umf_memory_pool_handle_t pool) {
    LAYERS_EACH(pool, layer, closes) {
        layer->closes(pool);
    }
}

void umf_layers_end(umf_memory_pool_handle_t pool) {
    LAYERS_EACH(pool, layer, ends) {
        layer->ends(pool);
    }
}
