/* Copies in memory of the host or in a file: memory of devices that has one can be evicted, and is
 * made again by a client. The daemon sees descriptors only; clients copy. */
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

/* The copy of a slab, with its descriptor: without it, it is none. UMFD_SLABS: none. */
static uint32_t copy_of(const umfd_t *daemon, uint32_t i) {
    uint32_t copy = umfd_copy_of(daemon->state, i);
    return copy < UMFD_SLABS && daemon->slabs[copy] != -1 ? copy : UMFD_SLABS;
}

static bool is_missing(const umfd_t *daemon, uint32_t i, uint32_t what, uint64_t file) {
    const umfd_slab_t *slab = &daemon->state->slabs[i];
    if (!is_of_device(slab) || what == UMF_VAULT_FILL_DEVICES) {
        return is_of_device(slab) && state_of(slab) == UMFD_AWAY;
    }
    uint32_t copy = copy_of(daemon, i);
    return copy == UMFD_SLABS ||
           (what == UMF_VAULT_FILL_FILES && daemon->state->slabs[copy].file != file);
}

static uint64_t count_missing(const umfd_t *daemon, uint32_t generation, uint32_t what,
                              uint64_t file) {
    const umfd_state_t *state = daemon->state;
    uint64_t count = 0;
    for (uint32_t i = 0; i < state->slab_top; i++) {
        count += umfd_set_has(&state->slabs[i].generations, generation) &&
                 is_missing(daemon, i, what, file);
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
    bool is_complete = count_missing(daemon, generation, what, record->file) == 0;
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        bool is_copy = slab->role == UMF_VAULT_CLASS_COPY;
        if (state_of(slab) != UMFD_LIVE || !umfd_set_has(&slab->generations, generation) ||
            !slab->is_fresh || is_copy == (what == UMF_VAULT_FILL_DEVICES)) {
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

/* What the client copies from. A file gets what a copy has, not what may have been made of it
 * since. UMFD_SLABS: none. */
static uint32_t source_of(const umfd_context_t *c, uint32_t i, uint32_t what) {
    uint32_t copy = copy_of(c->daemon, i);
    bool is_itself =
        what == UMF_VAULT_FILL_COPIES || (what == UMF_VAULT_FILL_FILES && copy == UMFD_SLABS);
    return is_itself ? (c->daemon->slabs[i] == -1 ? UMFD_SLABS : i) : copy;
}

/* false: its descriptor was lost. */
static bool add_source(const umfd_context_t *c, uint32_t i, uint32_t what) {
    const umfd_slab_t *slab = &c->state->slabs[i];
    uint32_t place = source_of(c, i, what);
    if (place == UMFD_SLABS) {
        return false;
    }
    const umfd_slab_t *source = &c->state->slabs[place];
    umf_vault_slab_t info = {
        .serial = slab->serial, .size = slab->size, .role = source->role, .kind = source->kind};
    memcpy(info.device, source->device, sizeof(info.device));
    add(c, &info, c->daemon->slabs[place]);
    return true;
}

/* Whether the content of a slab is in the file of a generation. */
static bool is_in_file(const umfd_slab_t *slab) {
    return (state_of(slab) == UMFD_LIVE || state_of(slab) == UMFD_AWAY) &&
           slab->role < UMF_VAULT_CLASS_ZERO;
}

/* As many as a message takes: the client asks again when it has handed those over, or for the next
 * ones of a file. */
static umf_vault_answer_t add_sources(const umfd_context_t *c, uint32_t generation, uint32_t what) {
    bool is_file = what == UMF_VAULT_FILL_FILES;
    uint64_t first = is_file ? c->request->head.words[3] : 0;
    for (uint64_t i = first; i < c->state->slab_top; i++) {
        const umfd_slab_t *slab = &c->state->slabs[i];
        if (!umfd_set_has(&slab->generations, generation) ||
            !(is_file ? is_in_file(slab) : is_missing(c->daemon, (uint32_t)i, what, 0))) {
            continue;
        }
        if (c->reply->fd_count == UMF_VAULT_FDS_MAX) {
            c->words[2] = is_file ? i : 0;
            break;
        }
        if (!add_source(c, (uint32_t)i, what)) {
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
        generation->file = what == UMF_VAULT_FILL_FILES ? c->request->head.words[2] : 0;
        umfd_step();
        atomic_store(&generation->fill, what);
        umfd_step();
    }
    return answer;
}

umf_vault_answer_t umfd_fill(const umfd_context_t *c) {
    uint32_t i = generation_named(c);
    uint64_t what = c->request->head.words[1], file = c->request->head.words[2];
    if (what >= UMF_VAULT_FILLS || (what == UMF_VAULT_FILL_FILES && file == 0)) {
        return UMF_VAULT_INVALID;
    }
    if (i == UMFD_GENERATIONS) {
        return UMF_VAULT_NONE;
    }
    const umfd_generation_t *generation = &c->state->generations[i];
    uint32_t now = atomic_load(&generation->fill);
    bool is_ours = now != UMF_VAULT_FILL_END && generation->filler == c->lease->serial;
    bool is_same = now == what && (what != UMF_VAULT_FILL_FILES || generation->file == file);
    c->words[0] = generation->number;
    if (is_ours && !is_same) { /* the end, or it has begun something else */
        umfd_fill_end(c->daemon, i);
    } else if (now != UMF_VAULT_FILL_END && !is_ours) {
        return what == UMF_VAULT_FILL_END ? UMF_VAULT_OK : UMF_VAULT_BUSY;
    }
    if (what == UMF_VAULT_FILL_END) {
        return UMF_VAULT_OK;
    }
    c->words[1] = count_missing(c->daemon, i, (uint32_t)what, file);
    c->words[2] = 0;
    if (c->words[1] == 0 && what != UMF_VAULT_FILL_FILES) {
        umfd_fill_end(c->daemon, i); /* it was complete before a daemon ended */
        return UMF_VAULT_OK;
    }
    return fill_begin(c, i, (uint32_t)what);
}

static uint64_t sum_of(const unsigned char device[UMF_VAULT_DEVICE_SIZE]) {
    umf_vault_copied_t copied;
    memcpy(&copied, device, sizeof(copied));
    return copied.sum;
}

/* The sum of the copy that a slab has. 0: none. */
static uint64_t former_sum(const umfd_state_t *state, uint32_t place) {
    uint32_t former = umfd_copy_of(state, place);
    return former < UMFD_SLABS ? sum_of(state->slabs[former].device) : 0;
}

static umf_vault_answer_t copy_add(const umfd_context_t *c, uint32_t generation, uint32_t place,
                                   const umf_vault_slab_t *given, int fd) {
    umfd_slab_t *slab = &c->state->slabs[place];
    umf_vault_slab_t info = *given;
    uint64_t serial;
    info.role = UMF_VAULT_CLASS_COPY;
    uint64_t before = former_sum(c->state, place), sum = sum_of(given->device);
    uint64_t file = c->state->generations[generation].file;
    if (info.kind != (file ? UMF_VAULT_KIND_FILE : UMF_VAULT_KIND_HOST) ||
        info.size != slab->size || (before && sum && sum != before)) {
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
    uint32_t former = umfd_copy_of(c->state, place);
    copy->generations = slab->generations;
    copy->is_fresh = copy_of(c->daemon, place) == UMFD_SLABS; /* else it stays in its place */
    slab->is_unproved = slab->is_unproved || (slab->is_again && (!before || !sum));
    copy->file = file;
    copy->copy_of = slab->serial;
    copy->copy = place + 1;
    umfd_step();
    slab->copy = made + 1; /* a copy that a daemon did not get to here goes */
    umfd_step();
    if (former < UMFD_SLABS) { /* as a daemon that starts does */
        atomic_store(&c->state->slabs[former].state, UMFD_DYING);
    }
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
        if (!is_missing(c->daemon, i, what, c->state->generations[generation].file)) {
            return UMF_VAULT_OK; /* a repeated request */
        }
        if (what != UMF_VAULT_FILL_DEVICES) {
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
    if (atomic_load(&generation->fill) != what || generation->filler != c->lease->serial ||
        (what == UMF_VAULT_FILL_FILES && generation->file != request->head.words[2])) {
        bool is_complete = count_missing(c->daemon, i, (uint32_t)what, request->head.words[2]) == 0;
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
    c->words[1] = count_missing(c->daemon, i, (uint32_t)what, generation->file);
    c->words[2] = 0;
    umfd_count_dying(c->daemon); /* copies in memory that a file replaces */
    if (c->words[1] == 0) {
        umfd_fill_end(c->daemon, i);
    }
    return UMF_VAULT_OK;
}

/* Clients compare what another client has made with the copy. */
umf_vault_answer_t umfd_sum(const umfd_context_t *c) {
    const umfd_state_t *state = c->state;
    uint32_t generation = generation_named(c);
    for (uint32_t i = 0; i < state->slab_top && generation < UMFD_GENERATIONS; i++) {
        const umfd_slab_t *slab = &state->slabs[i];
        if (slab->serial == c->request->head.words[1] && is_of_device(slab) &&
            umfd_set_has(&slab->generations, generation)) {
            c->words[0] = slab->is_again;
            c->words[1] = slab->is_unproved ? 0 : former_sum(state, i);
            return UMF_VAULT_OK;
        }
    }
    return UMF_VAULT_NONE;
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
            if (is_missing(daemon, i, UMF_VAULT_FILL_COPIES, 0)) {
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
