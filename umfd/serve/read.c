/* Requests of readers, and of those who look. */
#include <string.h>

#include "serve/content.h"

/* The slabs from `next` on, as many as a message takes. */
static void add_slabs(const umfd_context_t *c, uint32_t generation, uint64_t next) {
    umfd_reply_t *reply = c->reply;
    c->words[2] = 0;
    for (uint64_t i = next; i < c->state->slab_top; i++) {
        const umfd_slab_t *slab = &c->state->slabs[i];
        if (atomic_load_explicit(&slab->state, memory_order_relaxed) != UMFD_LIVE ||
            !umfd_set_has(&slab->generations, generation) || slab->role >= UMF_VAULT_CLASS_TABLE) {
            continue;
        }
        if (reply->fd_count == UMF_VAULT_FDS_MAX) {
            c->words[2] = i;
            return;
        }
        umf_vault_slab_t info = {
            .serial = slab->serial, .size = slab->size, .role = slab->role, .kind = slab->kind};
        memcpy(info.device, slab->device, sizeof(info.device));
        memcpy(reply->body + reply->head.body, &info, sizeof(info));
        reply->head.body += (uint32_t)sizeof(info);
        reply->fds[reply->fd_count++] = c->daemon->slabs[i];
    }
}

/* Whether a client that reads so can have it. */
static umf_vault_answer_t look(const umfd_context_t *c, uint32_t generation, uint64_t reads,
                               uint64_t *slabs) {
    bool is_evicted = false;
    *slabs = 0;
    for (uint32_t i = 0; i < c->state->slab_top; i++) {
        const umfd_slab_t *slab = &c->state->slabs[i];
        uint32_t is_live = atomic_load_explicit(&slab->state, memory_order_relaxed);
        if ((is_live == UMFD_LIVE || is_live == UMFD_AWAY) &&
            umfd_set_has(&slab->generations, generation) && slab->role != UMF_VAULT_CLASS_COPY) {
            *slabs += slab->role != UMF_VAULT_CLASS_TABLE;
            is_evicted = is_evicted || is_live == UMFD_AWAY;
            if (is_live == UMFD_LIVE && c->daemon->slabs[i] == -1) {
                return UMF_VAULT_BROKEN;
            }
        }
    }
    if (!is_evicted || (reads & UMF_VAULT_READS_TABLE)) {
        return UMF_VAULT_OK;
    }
    if (!(reads & UMF_VAULT_READS_EVICTED)) { /* a library that is older */
        c->words[0] = UMF_VAULT_VERSION_COPIES;
        return UMF_VAULT_OLD;
    }
    return UMF_VAULT_EVICTED;
}

umf_vault_answer_t umfd_attach(const umfd_context_t *c) {
    uint32_t vault = umfd_vault_of(c);
    if (vault == UMFD_VAULTS) {
        return c->lease->name[0] ? UMF_VAULT_NONE : UMF_VAULT_INVALID;
    }
    uint64_t number = c->request->head.words[0];
    number = number ? number : atomic_load(&c->state->vaults[vault].current);
    uint32_t i = number ? umfd_generation_find(c->state, vault, number) : UMFD_GENERATIONS;
    if (i == UMFD_GENERATIONS || umfd_phase_of(c->state, i) != UMFD_READY) {
        return UMF_VAULT_NONE;
    }
    c->words[0] = number;
    uint32_t place = c->state->generations[i].table - 1;
    umf_vault_answer_t answer = look(c, i, c->request->head.words[2], &c->words[1]);
    if (answer != UMF_VAULT_OK || c->daemon->slabs[place] == -1) {
        return answer ? answer : UMF_VAULT_BROKEN;
    }
    umfd_set_add(&c->lease->generations, i);
    const umfd_slab_t *table = &c->state->slabs[place];
    umf_vault_slab_t info = {
        .serial = table->serial, .size = table->size, .role = table->role, .kind = table->kind};
    memcpy(c->reply->body, &info, sizeof(info));
    c->reply->head.body = (uint32_t)sizeof(info);
    c->reply->fds[c->reply->fd_count++] = c->daemon->slabs[place];
    add_slabs(c, i, 0);
    return UMF_VAULT_OK;
}

/* The generation that the client has attached. */
static uint32_t attached(const umfd_context_t *c) {
    uint32_t vault = umfd_vault_of(c);
    uint32_t i = vault < UMFD_VAULTS
                     ? umfd_generation_find(c->state, vault, c->request->head.words[0])
                     : UMFD_GENERATIONS;
    return i < UMFD_GENERATIONS && umfd_set_has(&c->lease->generations, i) ? i : UMFD_GENERATIONS;
}

umf_vault_answer_t umfd_slabs(const umfd_context_t *c) {
    uint32_t i = attached(c);
    if (i == UMFD_GENERATIONS) {
        return UMF_VAULT_NONE;
    }
    c->words[0] = c->request->head.words[0];
    umf_vault_answer_t answer = look(c, i, c->request->head.words[2], &c->words[1]);
    if (answer == UMF_VAULT_OK) {
        add_slabs(c, i, c->request->head.words[1]);
    }
    return answer;
}

umf_vault_answer_t umfd_detach(const umfd_context_t *c) {
    uint32_t i = attached(c);
    if (i < UMFD_GENERATIONS) {
        umfd_set_remove(&c->lease->generations, i);
        umfd_sweep(c->daemon, c->state->generations[i].vault);
    }
    return UMF_VAULT_OK;
}

/* Bytes of devices, and how many devices: those that an earlier slab has not. */
static void stat_devices(const umfd_state_t *state, uint32_t vault,
                         umf_vault_stat_message_t *stat) {
    unsigned char seen[64][UMF_VAULT_DEVICE_SIZE];
    for (uint32_t i = 0; i < state->slab_top; i++) {
        const umfd_slab_t *slab = &state->slabs[i];
        if (atomic_load_explicit(&slab->state, memory_order_relaxed) != UMFD_LIVE ||
            slab->vault != vault || slab->kind != UMF_VAULT_KIND_DEVICE) {
            continue;
        }
        stat->device_bytes += slab->size;
        uint32_t n = 0;
        while (n < stat->devices && memcmp(seen[n], slab->device, sizeof(seen[n])) != 0) {
            n++;
        }
        if (n == stat->devices && n < sizeof(seen) / sizeof(seen[0])) {
            memcpy(seen[stat->devices++], slab->device, sizeof(seen[n]));
        }
    }
    if (stat->devices) {
        memcpy(stat->device, seen[0], sizeof(stat->device));
    }
}

/* Bytes of copies, and the generations of which memory was evicted. */
static void stat_copies(const umfd_context_t *c, uint32_t vault) {
    umfd_set_t evicted = {0};
    c->words[1] = c->words[2] = 0;
    for (uint32_t i = 0; i < c->state->slab_top; i++) {
        const umfd_slab_t *slab = &c->state->slabs[i];
        uint32_t is_live = atomic_load_explicit(&slab->state, memory_order_relaxed);
        if (slab->vault != vault) {
            continue;
        }
        if (is_live == UMFD_LIVE && slab->role == UMF_VAULT_CLASS_COPY &&
            slab->kind != UMF_VAULT_KIND_FILE) {
            c->words[1] += slab->size;
        }
        for (unsigned w = 0; w < UMFD_GENERATIONS / 64 && is_live == UMFD_AWAY; w++) {
            evicted.words[w] |= slab->generations.words[w];
        }
    }
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        c->words[2] += umfd_set_has(&evicted, i) && umfd_phase_of(c->state, i) == UMFD_READY;
    }
}

static void stat_fill(const umfd_context_t *c, uint32_t vault, umf_vault_stat_message_t *stat) {
    umfd_state_t *state = c->state;
    stat_copies(c, vault);
    *stat = (umf_vault_stat_message_t){.restarts = c->daemon->starts,
                                       .limit = c->lease->limit,
                                       .keep = c->lease->keep,
                                       .uid = c->lease->uid};
    if (vault == UMFD_VAULTS) {
        return;
    }
    const umfd_vault_t *record = &state->vaults[vault];
    stat->current = atomic_load(&record->current);
    stat->limit = record->limit;
    stat->keep = record->keep;
    stat->uid = record->uid;
    stat->bytes = umfd_bytes_of(state, vault);
    stat->claims = umfd_claims_of(state, vault);
    stat_devices(state, vault, stat);
    umfd_set_t of_vault = {0};
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        if (umfd_phase_of(state, i) != (umfd_phase_t)UMFD_FREE &&
            state->generations[i].vault == vault) {
            bool is_ready = umfd_phase_of(state, i) == UMFD_READY;
            stat->generations += is_ready;
            if (is_ready) {
                umfd_set_add(&of_vault, i);
            } else {
                stat->has_draft = 1;
                stat->draft_pid = state->leases[state->generations[i].lease].pid;
            }
        }
    }
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        const umfd_lease_t *lease = &state->leases[i];
        bool reads = false;
        for (unsigned w = 0; w < UMFD_GENERATIONS / 64; w++) {
            reads = reads || (lease->generations.words[w] & of_vault.words[w]);
        }
        stat->readers += atomic_load(&lease->state) == UMFD_LIVE && reads;
    }
}

umf_vault_answer_t umfd_stat(const umfd_context_t *c) {
    umf_vault_stat_message_t stat;
    stat_fill(c, umfd_vault_of(c), &stat);
    memcpy(c->reply->body, &stat, sizeof(stat));
    c->reply->head.body = sizeof(stat);
    return c->lease->name[0] ? UMF_VAULT_OK : UMF_VAULT_INVALID;
}

umf_vault_answer_t umfd_list(const umfd_context_t *c) {
    for (uint64_t i = c->request->head.words[0]; i < UMFD_VAULTS; i++) {
        if (atomic_load(&c->state->vaults[i].state) == UMFD_LIVE) {
            umf_vault_stat_message_t stat;
            stat_fill(c, (uint32_t)i, &stat);
            size_t length = strlen(c->state->vaults[i].name);
            memcpy(c->reply->body, &stat, sizeof(stat));
            memcpy(c->reply->body + sizeof(stat), c->state->vaults[i].name, length);
            c->reply->head.body = (uint32_t)(sizeof(stat) + length);
            c->words[0] = i + 1;
            return UMF_VAULT_OK;
        }
    }
    return UMF_VAULT_OK;
}

umf_vault_answer_t umfd_wait(const umfd_context_t *c) {
    uint64_t after = c->request->head.words[0];
    if (!c->lease->name[0]) {
        return UMF_VAULT_INVALID;
    }
    c->daemon->waits[c->request->lease] = 0;
    if (!umfd_event_after(c->daemon, c->request->lease, after, &c->reply->head)) {
        if (c->request->head.words[1]) {
            return UMF_VAULT_NONE;
        }
        c->daemon->waits[c->request->lease] = c->request->head.sequence;
        c->daemon->waits_after[c->request->lease] = after;
        c->reply->is_later = true;
    }
    return UMF_VAULT_OK;
}
