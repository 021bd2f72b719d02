/* Requests of clients. Each leaves the state valid at every store, so that a daemon that is killed
 * in the middle is followed by one that goes on; each may come twice. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/content.h"

/* The draft of the client with this number, in whatever phase. */
static uint32_t draft_of(const umfd_context_t *c, uint64_t number) {
    uint32_t vault = umfd_vault_of(c);
    uint32_t i =
        vault < UMFD_VAULTS ? umfd_generation_find(c->state, vault, number) : UMFD_GENERATIONS;
    return i < UMFD_GENERATIONS && c->state->generations[i].writer == c->lease->serial
               ? i
               : UMFD_GENERATIONS;
}

/* --- requests --------------------------------------------------------------------------------- */

static umf_vault_answer_t hello(const umfd_context_t *c) {
    uint32_t size = c->request->head.body;
    if (size == 0 || size > UMF_VAULT_NAME_MAX || memchr(c->request->body, 0, size)) {
        return UMF_VAULT_INVALID;
    }
    char name[UMF_VAULT_NAME_MAX + 1] = {0};
    memcpy(name, c->request->body, size);
    uint32_t vault = umfd_vault_find(c->state, name);
    if (vault < UMFD_VAULTS && c->lease->uid != 0 && c->state->vaults[vault].uid != c->lease->uid) {
        return UMF_VAULT_DENIED;
    }
    if (c->lease->name[0] && strcmp(c->lease->name, name) != 0) {
        return UMF_VAULT_INVALID; /* a connection is for one vault */
    }
    memcpy(c->lease->name, name, sizeof(name));
    c->lease->limit = c->request->head.words[0];
    c->lease->keep = (uint32_t)c->request->head.words[1];
    c->words[0] = c->daemon->starts;
    c->words[1] = vault < UMFD_VAULTS;
    return UMF_VAULT_OK;
}

static umf_vault_answer_t begin(const umfd_context_t *c) {
    umfd_state_t *state = c->state;
    if (!c->lease->name[0]) {
        return UMF_VAULT_INVALID;
    }
    uint64_t from = c->request->head.words[0];
    uint32_t vault = umfd_vault_of(c);
    uint32_t source =
        from && vault < UMFD_VAULTS ? umfd_generation_find(state, vault, from) : UMFD_GENERATIONS;
    if (from && (source == UMFD_GENERATIONS || umfd_phase_of(state, source) != UMFD_READY)) {
        return UMF_VAULT_NONE;
    }
    uint32_t draft = vault < UMFD_VAULTS ? umfd_draft_find(state, vault) : UMFD_GENERATIONS;
    if (draft < UMFD_GENERATIONS) { /* a repeated request, or it is that of another client */
        c->words[0] = state->generations[draft].number;
        return state->generations[draft].writer == c->lease->serial ? UMF_VAULT_OK : UMF_VAULT_BUSY;
    }
    uint32_t i = 0;
    while (i < UMFD_GENERATIONS && umfd_phase_of(state, i) != (umfd_phase_t)UMFD_FREE) {
        i++;
    }
    c->words[0] = UMFD_GENERATIONS;
    if (i == UMFD_GENERATIONS) {
        return UMF_VAULT_FULL;
    }
    if (vault == UMFD_VAULTS && (vault = umfd_vault_make(state, c->lease)) == UMFD_VAULTS) {
        c->words[0] = UMFD_VAULTS;
        return UMF_VAULT_FULL;
    }
    umfd_generation_t *made = &state->generations[i];
    made->vault = vault;
    made->number = state->vaults[vault].next++;
    made->writer = c->lease->serial;
    made->lease = c->request->lease;
    made->table = made->group = 0;
    atomic_store(&made->fill, UMF_VAULT_FILL_END);
    umfd_step();
    atomic_store(&made->phase, UMFD_DRAFT);
    umfd_step();
    if (c->request->head.words[1] && atomic_load(&state->vaults[vault].current)) {
        atomic_store(&state->vaults[vault].current, 0);
        umfd_step();
        umfd_sweep(c->daemon, vault);
    }
    c->words[0] = made->number;
    return UMF_VAULT_OK;
}

static bool is_right(const umf_vault_slab_t *slab) {
    static const unsigned char none[UMF_VAULT_DEVICE_SIZE];
    bool has_device = memcmp(slab->device, none, sizeof(none)) != 0;
    bool is_kind = slab->kind == UMF_VAULT_KIND_HOST ||
                   (slab->kind == UMF_VAULT_KIND_DEVICE && slab->role != UMF_VAULT_CLASS_TABLE);
    return is_kind && has_device == (slab->kind == UMF_VAULT_KIND_DEVICE) && slab->size != 0 &&
           slab->role < UMF_VAULT_CLASS_COPY && slab->role != UMF_VAULT_CLASS_ZERO;
}

static umfd_slab_t *slab_given(const umfd_context_t *c, uint32_t draft, uint32_t ordinal) {
    for (uint32_t i = 0; i < c->state->slab_top; i++) {
        umfd_slab_t *slab = &c->state->slabs[i];
        if (atomic_load_explicit(&slab->state, memory_order_relaxed) == UMFD_LIVE &&
            slab->ordinal == ordinal && umfd_set_has(&slab->generations, draft) &&
            slab->draft == c->state->generations[draft].number) {
            return slab;
        }
    }
    return NULL;
}

static umf_vault_answer_t give(const umfd_context_t *c) {
    const umfd_request_t *request = c->request;
    uint32_t draft = draft_of(c, request->head.words[0]);
    uint32_t first = (uint32_t)request->head.words[1];
    size_t count = request->head.body / sizeof(umf_vault_slab_t);
    if (draft == UMFD_GENERATIONS || umfd_phase_of(c->state, draft) != UMFD_DRAFT) {
        return UMF_VAULT_ENDED;
    }
    if (count == 0 || count != request->fd_count ||
        request->head.body != count * sizeof(umf_vault_slab_t) ||
        first > UINT32_MAX - UMF_VAULT_GIVE_MAX) {
        return UMF_VAULT_INVALID;
    }
    for (uint32_t i = 0; i < count; i++) {
        umf_vault_slab_t slab;
        memcpy(&slab, request->body + i * sizeof(slab), sizeof(slab));
        c->words[2] = first + i;
        if (!is_right(&slab)) {
            return UMF_VAULT_INVALID;
        }
        const umfd_slab_t *given = slab_given(c, draft, first + i);
        uint64_t serial = given ? given->serial : 0;
        if (!given) {
            umf_vault_answer_t answer =
                umfd_slab_add(c, draft, first + i, &slab, request->fds[i], &serial);
            if (answer != UMF_VAULT_OK) {
                return answer;
            }
        }
        given = given ? given : slab_given(c, draft, first + i);
        if (given->role == UMF_VAULT_CLASS_TABLE) { /* again, if a daemon ended before it */
            c->state->generations[draft].table = (uint32_t)(given - c->state->slabs) + 1;
        }
        memcpy(c->reply->body + i * sizeof(serial), &serial, sizeof(serial));
    }
    c->reply->head.body = (uint32_t)(count * sizeof(uint64_t));
    return UMF_VAULT_OK;
}

static umfd_slab_t *slab_of_vault(const umfd_context_t *c, uint32_t vault, uint64_t serial) {
    for (uint32_t i = 0; i < c->state->slab_top; i++) {
        umfd_slab_t *slab = &c->state->slabs[i];
        uint32_t is_live = atomic_load_explicit(&slab->state, memory_order_relaxed);
        if ((is_live == UMFD_LIVE || is_live == UMFD_AWAY) && slab->serial == serial &&
            slab->vault == vault) {
            return slab;
        }
    }
    return NULL;
}

static umf_vault_answer_t keep(const umfd_context_t *c) {
    uint32_t draft = draft_of(c, c->request->head.words[0]);
    if (draft == UMFD_GENERATIONS || umfd_phase_of(c->state, draft) != UMFD_DRAFT) {
        return UMF_VAULT_ENDED;
    }
    for (uint32_t at = 0; at + sizeof(uint64_t) <= c->request->head.body; at += sizeof(uint64_t)) {
        uint64_t serial;
        memcpy(&serial, c->request->body + at, sizeof(serial));
        umfd_slab_t *slab = slab_of_vault(c, c->state->generations[draft].vault, serial);
        if (!slab || slab->role >= UMF_VAULT_CLASS_TABLE) {
            return UMF_VAULT_INVALID;
        }
        uint32_t copy = umfd_copy_of(c->state, (uint32_t)(slab - c->state->slabs));
        umfd_set_add(&slab->generations, draft);
        if (copy < UMFD_SLABS) { /* a daemon that starts does it, too */
            umfd_set_add(&c->state->slabs[copy].generations, draft);
        }
    }
    return UMF_VAULT_OK;
}

static bool is_member(const umfd_state_t *state, uint32_t i, uint32_t group) {
    return umfd_phase_of(state, i) == UMFD_GROUPED && state->generations[i].group == group + 1;
}

/* UMFD_GROUPS: none and no room. */
static uint32_t group_find(umfd_state_t *state, const char *name, uint32_t members) {
    uint32_t free_one = UMFD_GROUPS;
    for (uint32_t i = 0; i < UMFD_GROUPS; i++) {
        bool is_live = atomic_load(&state->groups[i].state) == UMFD_LIVE;
        if (is_live && strcmp(state->groups[i].name, name) == 0) {
            return i;
        }
        free_one = !is_live && free_one == UMFD_GROUPS ? i : free_one;
    }
    if (free_one < UMFD_GROUPS) {
        umfd_group_t *group = &state->groups[free_one];
        atomic_store(&group->is_done, 0);
        group->members = members;
        snprintf(group->name, sizeof(group->name), "%s", name);
        atomic_store(&group->state, UMFD_LIVE);
    }
    return free_one;
}

/* Commits all members of a group, if they are there. */
static umf_vault_answer_t group_complete(const umfd_context_t *c, uint32_t group) {
    umfd_state_t *state = c->state;
    uint32_t complete = 0;
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        complete += is_member(state, i, group);
    }
    if (complete < state->groups[group].members) {
        return UMF_VAULT_PENDING;
    }
    umfd_step();
    atomic_store(&state->groups[group].is_done, 1); /* the commit of all */
    umfd_step();
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        if (is_member(state, i, group)) {
            atomic_store(&state->vaults[state->generations[i].vault].current,
                         state->generations[i].number);
            umfd_generation_committed(state, i);
            umfd_sweep(c->daemon, state->generations[i].vault);
        }
    }
    umfd_step();
    atomic_store(&state->groups[group].state, UMFD_FREE);
    umfd_step();
    return UMF_VAULT_OK;
}

static umf_vault_answer_t commit_member(const umfd_context_t *c, uint32_t draft, uint32_t members) {
    char name[UMF_VAULT_NAME_MAX + 1] = {0};
    umfd_state_t *state = c->state;
    uint32_t size = c->request->head.body;
    if (size > UMF_VAULT_NAME_MAX || memchr(c->request->body, 0, size) || members == 0 ||
        members > UMFD_VAULTS) {
        return UMF_VAULT_INVALID;
    }
    memcpy(name, c->request->body, size);
    uint32_t group = group_find(state, name, members);
    if (group == UMFD_GROUPS) {
        c->words[0] = UMFD_GROUPS;
        return UMF_VAULT_FULL;
    }
    if (state->groups[group].members != members) {
        return UMF_VAULT_INVALID;
    }
    state->generations[draft].group = group + 1;
    umfd_step();
    atomic_store(&state->generations[draft].phase, UMFD_GROUPED);
    umfd_step();
    return group_complete(c, group);
}

static umf_vault_answer_t commit(const umfd_context_t *c) {
    uint64_t number = c->request->head.words[0];
    uint32_t draft = draft_of(c, number);
    c->words[0] = number;
    if (draft == UMFD_GENERATIONS) {
        return UMF_VAULT_ENDED;
    }
    umfd_phase_t phase = umfd_phase_of(c->state, draft);
    if (phase == UMFD_READY) { /* a repeated request */
        return UMF_VAULT_OK;
    }
    if (phase == UMFD_GROUPED) { /* the last one may have come before a daemon ended */
        return group_complete(c, c->state->generations[draft].group - 1);
    }
    if (c->state->generations[draft].table == 0) {
        return UMF_VAULT_INVALID;
    }
    if (c->request->head.body) {
        return commit_member(c, draft, (uint32_t)c->request->head.words[1]);
    }
    atomic_store(&c->state->vaults[c->state->generations[draft].vault].current, number);
    umfd_step();
    umfd_generation_committed(c->state, draft);
    umfd_sweep(c->daemon, c->state->generations[draft].vault);
    umfd_step();
    return UMF_VAULT_OK;
}

static void draft_end(const umfd_context_t *c, uint32_t draft) {
    uint32_t vault = c->state->generations[draft].vault;
    umfd_emit(c->state, c->state->vaults[vault].name, UMF_VAULT_EVENT_ABORTED,
              c->state->generations[draft].number);
    umfd_generation_end(c->state, draft);
    umfd_sweep(c->daemon, vault);
}

/* The draft that the client writes, whatever its number. */
static uint32_t draft_of_client(const umfd_context_t *c) {
    uint32_t vault = umfd_vault_of(c);
    uint32_t i = vault < UMFD_VAULTS ? umfd_draft_find(c->state, vault) : UMFD_GENERATIONS;
    return i < UMFD_GENERATIONS && c->state->generations[i].writer == c->lease->serial
               ? i
               : UMFD_GENERATIONS;
}

static umf_vault_answer_t abort_draft(const umfd_context_t *c) {
    uint64_t number = c->request->head.words[0];
    uint32_t draft = number ? draft_of(c, number) : draft_of_client(c);
    if (draft < UMFD_GENERATIONS && umfd_phase_of(c->state, draft) != UMFD_READY) {
        draft_end(c, draft);
    }
    return UMF_VAULT_OK;
}

static umf_vault_answer_t drop(const umfd_context_t *c) {
    umfd_state_t *state = c->state;
    uint64_t number = c->request->head.words[0];
    uint32_t vault = umfd_vault_of(c);
    if (vault == UMFD_VAULTS) {
        return number ? UMF_VAULT_NONE : UMF_VAULT_OK;
    }
    umfd_vault_t *record = &state->vaults[vault];
    uint32_t draft = umfd_draft_find(state, vault);
    if (c->request->head.words[1]) {
        if (draft < UMFD_GENERATIONS) {
            draft_end(c, draft);
        }
        return UMF_VAULT_OK;
    }
    if (number && umfd_generation_find(state, vault, number) == UMFD_GENERATIONS) {
        return UMF_VAULT_NONE;
    }
    if (number == 0 || number == atomic_load(&record->current)) {
        atomic_store(&record->current, 0);
    }
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        if (umfd_phase_of(state, i) == UMFD_READY && state->generations[i].vault == vault &&
            (number == 0 || state->generations[i].number == number)) {
            umfd_emit(state, record->name, UMF_VAULT_EVENT_DROPPED, state->generations[i].number);
            umfd_fill_end(c->daemon, i); /* another generation may go on with slabs of it */
            umfd_generation_end(state, i);
        }
    }
    if (number == 0) {
        umfd_claims_drop(state, vault);
    }
    if (number == 0 && draft < UMFD_GENERATIONS) {
        draft_end(c, draft);
    }
    if (atomic_load(&record->state) == UMFD_LIVE) {
        umfd_sweep(c->daemon, vault);
    }
    return UMF_VAULT_OK;
}

static umf_vault_answer_t stop(const umfd_context_t *c) {
    unsigned others = 0;
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        others += c->daemon->leases[i] != -1 && i != c->request->lease;
    }
    if (!c->request->head.words[0] && (others || !umfd_is_empty(c->daemon))) {
        return UMF_VAULT_BUSY;
    }
    umfd_exit(c->daemon); /* the answer is the end of the connection */
}

void umfd_request(umfd_t *daemon, umfd_request_t *request, umfd_reply_t *reply) {
    static umfd_handler_t *const handlers[UMF_VAULT_OPS] = {
        [UMF_VAULT_HELLO] = hello,
        [UMF_VAULT_BEGIN] = begin,
        [UMF_VAULT_GIVE] = give,
        [UMF_VAULT_KEEP] = keep,
        [UMF_VAULT_COMMIT] = commit,
        [UMF_VAULT_ABORT] = abort_draft,
        [UMF_VAULT_ATTACH] = umfd_attach,
        [UMF_VAULT_SLABS] = umfd_slabs,
        [UMF_VAULT_DETACH] = umfd_detach,
        [UMF_VAULT_STAT] = umfd_stat,
        [UMF_VAULT_WAIT] = umfd_wait,
        [UMF_VAULT_DROP] = drop,
        [UMF_VAULT_LIST] = umfd_list,
        [UMF_VAULT_STOP] = stop,
        [UMF_VAULT_CLAIM] = umfd_claim,
        [UMF_VAULT_NOTE] = umfd_note,
        [UMF_VAULT_UNCLAIM] = umfd_unclaim,
        [UMF_VAULT_FORGET] = umfd_forget,
        [UMF_VAULT_CLAIMS] = umfd_claims,
        [UMF_VAULT_FILL] = umfd_fill,
        [UMF_VAULT_FILLED] = umfd_filled,
        [UMF_VAULT_SUM] = umfd_sum,
        [UMF_VAULT_EVICT] = umfd_evict,
    };
    umfd_context_t c = {.daemon = daemon,
                        .state = daemon->state,
                        .request = request,
                        .reply = reply,
                        .lease = &daemon->state->leases[request->lease],
                        .words = reply->head.words};
    uint16_t op = request->head.op;
    umf_vault_answer_t answer =
        op < UMF_VAULT_OPS && handlers[op] ? handlers[op](&c) : UMF_VAULT_INVALID;
    reply->head.answer = answer;
    if (answer != UMF_VAULT_OK) {
        reply->head.body = 0;
        reply->fd_count = 0;
    }
}
