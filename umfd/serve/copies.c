/* Copies of the host: memory of devices that has one can be evicted, and is made again by a client.
 * The daemon sees descriptors only; clients copy. */
#include <string.h>
#include <unistd.h>

#include "serve/content.h"

static uint32_t state_of(const umfd_slab_t *slab) {
    return atomic_load_explicit(&slab->state, memory_order_relaxed);
}

/* Memory of a device, evicted or not. */
static bool is_of_device(const umfd_slab_t *slab) {
    return slab->kind == UMF_VAULT_KIND_DEVICE &&
           (state_of(slab) == UMFD_LIVE || state_of(slab) == UMFD_AWAY);
}

/* A copy without its descriptor is none. */
static bool is_missing(const umfd_t *daemon, uint32_t i, uint32_t what) {
    const umfd_slab_t *slab = &daemon->state->slabs[i];
    uint32_t copy = umfd_copy_of(daemon->state, i);
    return is_of_device(slab) &&
           (what == UMF_VAULT_FILL_DEVICES ? state_of(slab) == UMFD_AWAY
                                           : copy == UMFD_SLABS || daemon->slabs[copy] == -1);
}

static uint64_t count_missing(const umfd_t *daemon, uint32_t generation, uint32_t what) {
    const umfd_state_t *state = daemon->state;
    uint64_t count = 0;
    for (uint32_t i = 0; i < state->slab_top; i++) {
        count +=
            umfd_set_has(&state->slabs[i].generations, generation) && is_missing(daemon, i, what);
    }
    return count;
}

/* What a daemon that ended in the middle has left is undone, or completed, once more. */
void umfd_fill_end(umfd_t *daemon, uint32_t generation) {
    umfd_state_t *state = daemon->state;
    umfd_generation_t *record = &state->generations[generation];
    uint32_t what = atomic_load(&record->fill);
    if (what == UMF_VAULT_FILL_END) {
        return;
    }
    bool is_complete = count_missing(daemon, generation, what) == 0;
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        bool is_copy = slab->role == UMF_VAULT_CLASS_COPY;
        if (state_of(slab) != UMFD_LIVE || !umfd_set_has(&slab->generations, generation) ||
            !slab->is_fresh || is_copy != (what == UMF_VAULT_FILL_COPIES)) {
            continue;
        }
        slab->is_fresh = 0;
        if (!is_complete) {
            atomic_store(&slab->state, is_copy ? UMFD_DYING : UMFD_AWAY);
        }
        umfd_step();
    }
    umfd_step();
    if (is_complete && what == UMF_VAULT_FILL_DEVICES) {
        umfd_emit(state, state->vaults[record->vault].name, UMF_VAULT_EVENT_REFILLED,
                  record->number);
    }
    atomic_store(&record->fill, UMF_VAULT_FILL_END);
    umfd_step();
    umfd_count_dying(daemon);
}

/* UMFD_GENERATIONS: none. */
static uint32_t generation_named(const umfd_context_t *c) {
    uint32_t vault = umfd_vault_of(c);
    if (vault == UMFD_VAULTS) {
        return UMFD_GENERATIONS;
    }
    uint64_t number = c->request->head.words[0];
    number = number ? number : atomic_load(&c->state->vaults[vault].current);
    uint32_t i = number ? umfd_generation_find(c->state, vault, number) : UMFD_GENERATIONS;
    return i < UMFD_GENERATIONS && umfd_phase_of(c->state, i) == UMFD_READY ? i : UMFD_GENERATIONS;
}

/* --- filling ---------------------------------------------------------------------------------- */

static void add(const umfd_context_t *c, const umf_vault_slab_t *info, int fd) {
    umfd_reply_t *reply = c->reply;
    memcpy(reply->body + reply->head.body, info, sizeof(*info));
    reply->head.body += (uint32_t)sizeof(*info);
    reply->fds[reply->fd_count++] = fd;
}

/* What the client copies from: the copy of an evicted slab, or the slab itself. false: its
 * descriptor was lost. */
static bool add_source(const umfd_context_t *c, uint32_t i, uint32_t what) {
    const umfd_slab_t *slab = &c->state->slabs[i];
    uint32_t place = what == UMF_VAULT_FILL_DEVICES ? umfd_copy_of(c->state, i) : i;
    if (place == UMFD_SLABS || c->daemon->slabs[place] == -1) {
        return false;
    }
    const umfd_slab_t *source = &c->state->slabs[place];
    umf_vault_slab_t info = {
        .serial = slab->serial, .size = slab->size, .role = slab->role, .kind = source->kind};
    memcpy(info.device, source->device, sizeof(info.device));
    add(c, &info, c->daemon->slabs[place]);
    return true;
}

/* As many as a message takes: the client asks again when it has handed those over. */
static umf_vault_answer_t add_sources(const umfd_context_t *c, uint32_t generation, uint32_t what) {
    for (uint32_t i = 0; i < c->state->slab_top && c->reply->fd_count < UMF_VAULT_FDS_MAX; i++) {
        if (umfd_set_has(&c->state->slabs[i].generations, generation) &&
            is_missing(c->daemon, i, what) && !add_source(c, i, what)) {
            return UMF_VAULT_BROKEN;
        }
    }
    return UMF_VAULT_OK;
}

static umf_vault_answer_t fill_begin(const umfd_context_t *c, uint32_t i, uint32_t what) {
    umfd_generation_t *generation = &c->state->generations[i];
    const umfd_slab_t *table = &c->state->slabs[generation->table - 1];
    int table_fd = c->daemon->slabs[generation->table - 1];
    if (table_fd == -1) {
        return UMF_VAULT_BROKEN;
    }
    umf_vault_slab_t info = {
        .serial = table->serial, .size = table->size, .role = table->role, .kind = table->kind};
    add(c, &info, table_fd);
    umf_vault_answer_t answer = add_sources(c, i, what);
    if (answer == UMF_VAULT_OK && atomic_load(&generation->fill) == UMF_VAULT_FILL_END) {
        generation->filler = c->lease->serial;
        umfd_step();
        atomic_store(&generation->fill, what);
        umfd_step();
    }
    return answer;
}

umf_vault_answer_t umfd_fill(const umfd_context_t *c) {
    uint32_t i = generation_named(c);
    uint64_t what = c->request->head.words[1];
    if (what >= UMF_VAULT_FILLS) {
        return UMF_VAULT_INVALID;
    }
    if (i == UMFD_GENERATIONS) {
        return UMF_VAULT_NONE;
    }
    uint32_t now = atomic_load(&c->state->generations[i].fill);
    bool is_ours = now != UMF_VAULT_FILL_END && c->state->generations[i].filler == c->lease->serial;
    c->words[0] = c->state->generations[i].number;
    if (is_ours && now != what) { /* the end, or it has begun something else */
        umfd_fill_end(c->daemon, i);
    } else if (now != UMF_VAULT_FILL_END && !is_ours) {
        return what == UMF_VAULT_FILL_END ? UMF_VAULT_OK : UMF_VAULT_BUSY;
    }
    if (what == UMF_VAULT_FILL_END) {
        return UMF_VAULT_OK;
    }
    c->words[1] = count_missing(c->daemon, i, (uint32_t)what);
    if (c->words[1] == 0) { /* a fill of ours was complete before a daemon ended */
        umfd_fill_end(c->daemon, i);
        return UMF_VAULT_OK;
    }
    return fill_begin(c, i, (uint32_t)what);
}

static umf_vault_answer_t copy_add(const umfd_context_t *c, uint32_t generation, uint32_t place,
                                   const umf_vault_slab_t *given, int fd) {
    umfd_slab_t *slab = &c->state->slabs[place];
    umf_vault_slab_t info = *given;
    uint64_t serial;
    info.role = UMF_VAULT_CLASS_COPY;
    if (info.kind != UMF_VAULT_KIND_HOST || info.size != slab->size) {
        return UMF_VAULT_INVALID;
    }
    umf_vault_answer_t answer = umfd_slab_add(c, generation, UINT32_MAX, &info, fd, &serial);
    if (answer != UMF_VAULT_OK) {
        return answer;
    }
    uint32_t made = 0;
    while (c->state->slabs[made].serial != serial ||
           state_of(&c->state->slabs[made]) != UMFD_LIVE) {
        made++;
    }
    umfd_slab_t *copy = &c->state->slabs[made];
    copy->generations = slab->generations;
    copy->is_fresh = 1;
    copy->copy_of = slab->serial;
    copy->copy = place + 1;
    umfd_step();
    uint32_t lost = umfd_copy_of(c->state, place);
    if (lost < UMFD_SLABS) { /* its descriptor, at the end of a daemon */
        atomic_store(&c->state->slabs[lost].state, UMFD_DYING);
    }
    slab->copy = made + 1; /* a copy that a daemon did not get to here goes */
    umfd_step();
    return UMF_VAULT_OK;
}

/* The slab that a client handed over is one that is missing. */
static umf_vault_answer_t fill_one(const umfd_context_t *c, uint32_t generation, uint32_t what,
                                   const umf_vault_slab_t *given, int fd) {
    for (uint32_t i = 0; i < c->state->slab_top; i++) {
        const umfd_slab_t *slab = &c->state->slabs[i];
        if (slab->serial != given->serial || !umfd_set_has(&slab->generations, generation) ||
            !is_of_device(slab)) {
            continue;
        }
        if (!is_missing(c->daemon, i, what)) { /* a repeated request */
            return UMF_VAULT_OK;
        }
        if (what == UMF_VAULT_FILL_COPIES) {
            return copy_add(c, generation, i, given, fd);
        }
        return given->kind == UMF_VAULT_KIND_DEVICE && given->size == slab->size
                   ? umfd_slab_again(c, i, fd)
                   : UMF_VAULT_INVALID;
    }
    return UMF_VAULT_INVALID;
}

umf_vault_answer_t umfd_filled(const umfd_context_t *c) {
    const umfd_request_t *request = c->request;
    uint32_t i = generation_named(c);
    uint64_t what = request->head.words[1];
    size_t count = request->head.body / sizeof(umf_vault_slab_t);
    if (i == UMFD_GENERATIONS) {
        return UMF_VAULT_ENDED;
    }
    if (what == UMF_VAULT_FILL_END || what >= UMF_VAULT_FILLS || count == 0 ||
        count != request->fd_count || request->head.body != count * sizeof(umf_vault_slab_t)) {
        return UMF_VAULT_INVALID;
    }
    const umfd_generation_t *generation = &c->state->generations[i];
    if (atomic_load(&generation->fill) != what || generation->filler != c->lease->serial) {
        bool is_complete = count_missing(c->daemon, i, (uint32_t)what) == 0;
        return is_complete ? UMF_VAULT_OK : UMF_VAULT_ENDED; /* OK: a repeated request */
    }
    for (uint32_t n = 0; n < count; n++) {
        umf_vault_slab_t given;
        memcpy(&given, request->body + n * sizeof(given), sizeof(given));
        umf_vault_answer_t answer = fill_one(c, i, (uint32_t)what, &given, request->fds[n]);
        if (answer != UMF_VAULT_OK) {
            c->words[2] = n;
            return answer;
        }
    }
    c->words[0] = generation->number;
    c->words[1] = count_missing(c->daemon, i, (uint32_t)what);
    c->words[2] = 0;
    if (c->words[1] == 0) {
        umfd_fill_end(c->daemon, i);
    }
    return UMF_VAULT_OK;
}

/* --- evicting --------------------------------------------------------------------------------- */

/* Memory of devices whose every slab has a copy. */
static bool is_copied(const umfd_t *daemon, uint32_t generation) {
    const umfd_state_t *state = daemon->state;
    bool has_one = false;
    for (uint32_t i = 0; i < state->slab_top; i++) {
        const umfd_slab_t *slab = &state->slabs[i];
        if (umfd_set_has(&slab->generations, generation) && is_of_device(slab)) {
            has_one = true;
            if (is_missing(daemon, i, UMF_VAULT_FILL_COPIES)) {
                return false;
            }
        }
    }
    return has_one;
}

/* Only of these generations. */
static bool is_within(const umfd_set_t *set, const umfd_set_t *chosen) {
    for (unsigned w = 0; w < UMFD_GENERATIONS / 64; w++) {
        if (set->words[w] & ~chosen->words[w]) {
            return false;
        }
    }
    return !umfd_set_is_empty(set);
}

umf_vault_answer_t umfd_evict(const umfd_context_t *c) {
    umfd_state_t *state = c->state;
    uint64_t number = c->request->head.words[0];
    uint32_t vault = umfd_vault_of(c);
    umfd_set_t chosen = {0};
    bool is_there = false;
    for (uint32_t i = 0; i < UMFD_GENERATIONS && vault < UMFD_VAULTS; i++) {
        const umfd_generation_t *generation = &state->generations[i];
        if (umfd_phase_of(state, i) != UMFD_READY || generation->vault != vault ||
            (number && generation->number != number)) {
            continue;
        }
        is_there = true;
        if (atomic_load(&generation->fill) != UMF_VAULT_FILL_END) {
            return UMF_VAULT_BUSY;
        }
        if (is_copied(c->daemon, i)) {
            umfd_set_add(&chosen, i);
        }
    }
    if (!is_there || umfd_set_is_empty(&chosen)) {
        return is_there ? UMF_VAULT_UNCOPIED : UMF_VAULT_NONE;
    }
    umfd_set_t evicted = {0};
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        if (state_of(slab) == UMFD_LIVE && is_of_device(slab) &&
            is_within(&slab->generations, &chosen)) {
            atomic_store(&slab->state, UMFD_AWAY);
            for (unsigned w = 0; w < UMFD_GENERATIONS / 64; w++) {
                evicted.words[w] |= slab->generations.words[w];
            }
            umfd_step();
        }
    }
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        if (umfd_set_has(&evicted, i)) {
            umfd_emit(state, state->vaults[vault].name, UMF_VAULT_EVENT_EVICTED,
                      state->generations[i].number);
        }
    }
    umfd_count_dying(c->daemon);
    return UMF_VAULT_OK;
}
