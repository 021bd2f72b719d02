#include "serve/state.h"

#include <string.h>

#include "system/checksum.h"

void umfd_state_init(umfd_state_t *state, uint64_t nonce) {
    state->size = sizeof(*state);
    state->nonce = nonce ? nonce : 1;
    atomic_store(&state->magic, UMFD_STATE_MAGIC);
}

/* --- events and commits ----------------------------------------------------------------------- */

void umfd_emit(umfd_state_t *state, const char *name, umf_vault_event_type_t type,
               uint64_t generation) {
    uint64_t number = state->event + 1;
    umfd_event_t *event = &state->events[number % UMFD_EVENTS];
    atomic_store(&event->number, 0);
    event->vault = umf_sum(name, strlen(name));
    event->generation = generation;
    event->type = (uint32_t)type;
    atomic_store(&event->number, number);
    state->event = number;
}

void umfd_generation_committed(umfd_state_t *state, uint32_t place) {
    umfd_generation_t *generation = &state->generations[place];
    umfd_lease_t *writer = &state->leases[generation->lease];
    if (atomic_load(&writer->state) == UMFD_LIVE && writer->serial == generation->writer) {
        umfd_set_add(&writer->generations, place);
    }
    umfd_step();
    umfd_emit(state, state->vaults[generation->vault].name, UMF_VAULT_EVENT_COMMITTED,
              generation->number);
    umfd_step();
    atomic_store(&generation->phase, UMFD_READY);
    umfd_step();
}

uint32_t umfd_copy_of(const umfd_state_t *state, uint32_t place) {
    const umfd_slab_t *slab = &state->slabs[place];
    if (slab->copy == 0 || slab->copy > state->slab_top) {
        return UMFD_SLABS;
    }
    const umfd_slab_t *copy = &state->slabs[slab->copy - 1];
    return atomic_load_explicit(&copy->state, memory_order_relaxed) == UMFD_LIVE &&
                   copy->role == UMF_VAULT_CLASS_COPY && copy->copy == place + 1 &&
                   copy->copy_of == slab->serial
               ? slab->copy - 1
               : UMFD_SLABS;
}

/* --- the end of a generation ------------------------------------------------------------------ */

static void slab_remove(umfd_slab_t *slab, uint32_t generation) {
    umfd_set_remove(&slab->generations, generation);
    if (umfd_set_is_empty(&slab->generations)) {
        atomic_store(&slab->state, UMFD_DYING);
    }
}

static void group_end(umfd_state_t *state, uint32_t group) {
    atomic_store(&state->groups[group].state, UMFD_FREE);
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        if (atomic_load(&state->generations[i].phase) == UMFD_GROUPED &&
            state->generations[i].group == group + 1) {
            umfd_generation_end(state, i);
        }
    }
}

void umfd_generation_end(umfd_state_t *state, uint32_t place) {
    umfd_generation_t *generation = &state->generations[place];
    uint32_t phase = atomic_load(&generation->phase);
    uint32_t group = generation->group;
    atomic_store(&generation->phase, UMFD_FREE);
    umfd_step();
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        uint32_t is_live = atomic_load_explicit(&slab->state, memory_order_relaxed);
        if ((is_live == UMFD_LIVE || is_live == UMFD_AWAY) &&
            umfd_set_has(&slab->generations, place)) {
            slab_remove(slab, place);
        }
    }
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        umfd_set_remove(&state->leases[i].generations, place);
    }
    if (phase == UMFD_GROUPED && group) {
        group_end(state, group - 1);
    }
}

/* --- the end of a claim ----------------------------------------------------------------------- */

void umfd_claim_end(umfd_state_t *state, uint32_t place) {
    umfd_claim_t *claim = &state->claims[place];
    umfd_slab_t *slab = &state->slabs[claim->slab - 1];
    umfd_slab_t *word = claim->word ? &state->slabs[claim->word - 1] : NULL;
    atomic_store(&claim->state, UMFD_FREE);
    umfd_step();
    atomic_store(&slab->state, UMFD_DYING);
    if (word) { /* as a daemon that starts does */
        atomic_store(&word->state, UMFD_DYING);
    }
}

/* --- check ------------------------------------------------------------------------------------ */

static bool is_name(const char *name) {
    return name[0] && memchr(name, 0, UMF_VAULT_NAME_MAX + 1);
}

static unsigned check_vaults(umfd_state_t *state) {
    unsigned dropped = 0;
    for (uint32_t i = 0; i < UMFD_VAULTS; i++) {
        umfd_vault_t *vault = &state->vaults[i];
        uint32_t is_live = atomic_load(&vault->state);
        bool is_right = is_live == UMFD_LIVE && is_name(vault->name) && vault->next > 0 &&
                        atomic_load(&vault->current) < vault->next;
        for (uint32_t other = 0; is_right && other < i; other++) {
            is_right = atomic_load(&state->vaults[other].state) != UMFD_LIVE ||
                       strcmp(state->vaults[other].name, vault->name) != 0;
        }
        if (!is_right) {
            dropped += is_live != UMFD_FREE;
            memset(vault, 0, sizeof(*vault));
        }
    }
    return dropped;
}

static unsigned check_leases(umfd_state_t *state) {
    unsigned dropped = 0;
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        umfd_lease_t *lease = &state->leases[i];
        uint32_t is_live = atomic_load(&lease->state);
        if ((is_live != UMFD_LIVE && is_live != UMFD_DYING) ||
            !memchr(lease->name, 0, sizeof(lease->name)) || lease->serial == 0 ||
            lease->serial > state->serial) {
            dropped += is_live != UMFD_FREE;
            memset(lease, 0, sizeof(*lease));
        }
    }
    return dropped;
}

static bool generation_is_right(const umfd_state_t *state, uint32_t place) {
    const umfd_generation_t *generation = &state->generations[place];
    uint32_t phase = atomic_load(&generation->phase);
    if (phase > UMFD_READY || generation->vault >= UMFD_VAULTS || generation->number == 0 ||
        generation->lease >= UMFD_LEASES || generation->table > state->slab_top ||
        generation->group > UMFD_GROUPS) {
        return false;
    }
    const umfd_vault_t *vault = &state->vaults[generation->vault];
    if (atomic_load(&vault->state) != UMFD_LIVE || generation->number >= vault->next ||
        (phase != UMFD_DRAFT && generation->table == 0)) {
        return false;
    }
    for (uint32_t i = 0; i < place; i++) {
        if (atomic_load(&state->generations[i].phase) != UMFD_FREE &&
            state->generations[i].vault == generation->vault &&
            state->generations[i].number == generation->number) {
            return false;
        }
    }
    return true;
}

static unsigned check_generations(umfd_state_t *state) {
    unsigned dropped = 0;
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        umfd_generation_t *generation = &state->generations[i];
        if (atomic_load(&generation->phase) != UMFD_FREE && !generation_is_right(state, i)) {
            dropped++;
            atomic_store(&generation->phase, UMFD_FREE);
        }
    }
    return dropped;
}

/* Bits of generations that are not there. */
static void set_prune(const umfd_state_t *state, umfd_set_t *set) {
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        if (atomic_load(&state->generations[i].phase) == UMFD_FREE) {
            umfd_set_remove(set, i);
        }
    }
}

static unsigned check_slabs(umfd_state_t *state) {
    unsigned dropped = 0;
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        uint32_t is_live = atomic_load_explicit(&slab->state, memory_order_relaxed);
        if (is_live == UMFD_FREE) {
            continue;
        }
        if (is_live > UMFD_AWAY || slab->role >= UMF_VAULT_CLASSES || slab->serial == 0 ||
            slab->serial > state->serial || slab->size == 0 || slab->kind < UMF_VAULT_KIND_HOST ||
            slab->kind > UMF_VAULT_KIND_FILE ||
            (slab->kind == UMF_VAULT_KIND_FILE && slab->role != UMF_VAULT_CLASS_COPY)) {
            dropped++;
            memset(slab, 0, sizeof(*slab));
            continue;
        }
        if (slab->role == UMF_VAULT_CLASS_CLAIM) { /* its claim is compared with it later */
            memset(&slab->generations, 0, sizeof(slab->generations));
            continue;
        }
        slab->claim = 0;
        set_prune(state, &slab->generations);
        if (umfd_set_is_empty(&slab->generations)) {
            atomic_store(&slab->state, UMFD_DYING);
        }
    }
    return dropped;
}

static bool is_there(const umfd_slab_t *slab) {
    uint32_t state = atomic_load_explicit(&slab->state, memory_order_relaxed);
    return state == UMFD_LIVE || state == UMFD_AWAY;
}

/* Copies that no slab has go. A slab that was evicted and has lost its copy has lost its content.
 */
static void check_copies(umfd_state_t *state) {
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        if (slab->role == UMF_VAULT_CLASS_COPY) {
            if (atomic_load(&slab->state) == UMFD_AWAY) {
                atomic_store(&slab->state, UMFD_DYING);
            }
            continue;
        }
        uint32_t copy = umfd_copy_of(state, i);
        if (copy == UMFD_SLABS || slab->kind != UMF_VAULT_KIND_DEVICE || !is_there(slab)) {
            slab->copy = 0;
            if (atomic_load(&slab->state) == UMFD_AWAY) {
                atomic_store(&slab->state, UMFD_LIVE);
            }
        } else {
            state->slabs[copy].generations = slab->generations;
        }
    }
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        if (atomic_load(&slab->state) == UMFD_LIVE && slab->role == UMF_VAULT_CLASS_COPY &&
            (slab->copy == 0 || slab->copy > state->slab_top ||
             umfd_copy_of(state, slab->copy - 1) != i)) {
            atomic_store(&slab->state, UMFD_DYING);
        }
    }
}

/* Each generation has its table, and the tables of no other. */
static unsigned check_tables(umfd_state_t *state) {
    unsigned dropped = 0;
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        umfd_generation_t *generation = &state->generations[i];
        if (atomic_load(&generation->phase) == UMFD_FREE || generation->table == 0) {
            continue;
        }
        const umfd_slab_t *table = &state->slabs[generation->table - 1];
        if (atomic_load(&table->state) == UMFD_LIVE && table->role == UMF_VAULT_CLASS_TABLE &&
            umfd_set_has(&table->generations, i)) {
            continue;
        }
        if (atomic_load(&generation->phase) == UMFD_DRAFT) {
            generation->table = 0; /* it was not recorded any more */
        } else {
            dropped++;
            umfd_generation_end(state, i);
        }
    }
    return dropped;
}

static void clients_prune(const umfd_state_t *state, umfd_claim_t *claim) {
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        if (atomic_load(&state->leases[i].state) == UMFD_FREE) {
            umfd_clients_remove(&claim->mapped, i);
        }
    }
    for (uint32_t w = 0; w < UMFD_LEASES / 64; w++) {
        claim->holders.words[w] &= claim->mapped.words[w];
    }
}

static bool is_of_claim(const umfd_state_t *state, uint32_t slab, uint32_t place, uint32_t kind) {
    if (slab == 0 || slab > state->slab_top) {
        return false;
    }
    const umfd_slab_t *of = &state->slabs[slab - 1];
    return atomic_load(&of->state) == UMFD_LIVE && of->role == UMF_VAULT_CLASS_CLAIM &&
           of->kind == kind && of->claim == place + 1 && of->vault == state->claims[place].vault;
}

static bool claim_is_right(const umfd_state_t *state, uint32_t place) {
    const umfd_claim_t *claim = &state->claims[place];
    if (atomic_load(&claim->state) != UMFD_LIVE || claim->vault >= UMFD_VAULTS ||
        atomic_load(&state->vaults[claim->vault].state) != UMFD_LIVE || !is_name(claim->key) ||
        claim->is_shared > 1 || claim->epoch == 0 || atomic_load(&claim->note) > 1 ||
        claim->note_sizes[atomic_load(&claim->note)] > UMF_VAULT_NOTE_MAX) {
        return false;
    }
    uint32_t kind = claim->word ? UMF_VAULT_KIND_DEVICE : UMF_VAULT_KIND_HOST;
    if (!is_of_claim(state, claim->slab, place, kind) ||
        (claim->word && !is_of_claim(state, claim->word, place, UMF_VAULT_KIND_HOST))) {
        return false;
    }
    for (uint32_t i = 0; i < place; i++) {
        if (atomic_load(&state->claims[i].state) == UMFD_LIVE &&
            state->claims[i].vault == claim->vault &&
            strcmp(state->claims[i].key, claim->key) == 0) {
            return false;
        }
    }
    return true;
}

static unsigned check_claims(umfd_state_t *state) {
    unsigned dropped = 0;
    state->claim_top = state->claim_top < UMFD_CLAIMS ? state->claim_top : UMFD_CLAIMS;
    for (uint32_t i = 0; i < state->claim_top; i++) {
        umfd_claim_t *claim = &state->claims[i];
        if (atomic_load(&claim->state) == UMFD_FREE) {
            continue;
        }
        if (claim_is_right(state, i)) {
            clients_prune(state, claim);
        } else {
            dropped++;
            atomic_store(&claim->state, UMFD_FREE);
        }
    }
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        if (slab->role != UMF_VAULT_CLASS_CLAIM || !is_there(slab)) {
            continue;
        }
        uint32_t place = slab->claim - 1;
        if (place >= state->claim_top || atomic_load(&state->claims[place].state) != UMFD_LIVE ||
            (state->claims[place].slab != i + 1 && state->claims[place].word != i + 1)) {
            atomic_store(&slab->state, UMFD_DYING); /* its claim was not recorded any more */
        }
    }
    return dropped;
}

/* A commit that was made before the daemon ended is finished, one that was not is left alone. */
static void finish_commits(umfd_state_t *state) {
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        umfd_generation_t *generation = &state->generations[i];
        uint32_t phase = atomic_load(&generation->phase);
        umfd_vault_t *vault = &state->vaults[generation->vault % UMFD_VAULTS];
        umfd_group_t *group = phase == UMFD_GROUPED && generation->group
                                  ? &state->groups[generation->group - 1]
                                  : NULL;
        if (phase == UMFD_GROUPED &&
            (!group || atomic_load(&group->state) != UMFD_LIVE || !is_name(group->name))) {
            umfd_generation_end(state, i);
        } else if (phase == UMFD_GROUPED && atomic_load(&group->is_done)) {
            atomic_store(&vault->current, generation->number);
            umfd_generation_committed(state, i);
        } else if (phase == UMFD_DRAFT && atomic_load(&vault->current) == generation->number) {
            if (generation->table) {
                umfd_generation_committed(state, i);
            }
        }
    }
    for (uint32_t i = 0; i < UMFD_GROUPS; i++) {
        umfd_group_t *group = &state->groups[i];
        if (atomic_load(&group->is_done) || atomic_load(&group->state) != UMFD_LIVE) {
            atomic_store(&group->state, UMFD_FREE);
            atomic_store(&group->is_done, 0);
        }
    }
}

/* A fill is that of a lease. What another one has left is as if it were complete. */
static void check_fills(umfd_state_t *state) {
    umfd_set_t filled = {0};
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        umfd_generation_t *generation = &state->generations[i];
        bool is_right = atomic_load(&generation->phase) == UMFD_READY &&
                        atomic_load(&generation->fill) < UMF_VAULT_FILLS;
        uint32_t lease = 0;
        while (is_right && lease < UMFD_LEASES &&
               (atomic_load(&state->leases[lease].state) != UMFD_LIVE ||
                state->leases[lease].serial != generation->filler)) {
            lease++;
        }
        if (!is_right || lease == UMFD_LEASES) {
            atomic_store(&generation->fill, UMF_VAULT_FILL_END);
        } else if (atomic_load(&generation->fill) != UMF_VAULT_FILL_END) {
            umfd_set_add(&filled, i);
        }
    }
    for (uint32_t i = 0; i < state->slab_top; i++) {
        umfd_slab_t *slab = &state->slabs[i];
        uint64_t common = 0;
        for (unsigned w = 0; w < UMFD_GENERATIONS / 64; w++) {
            common |= slab->generations.words[w] & filled.words[w];
        }
        slab->is_fresh = common ? slab->is_fresh : 0;
    }
}

/* The current generation exists, or there is none. */
static unsigned check_current(umfd_state_t *state) {
    unsigned dropped = 0;
    for (uint32_t i = 0; i < UMFD_VAULTS; i++) {
        umfd_vault_t *vault = &state->vaults[i];
        uint64_t current = atomic_load(&vault->current);
        bool is_there = atomic_load(&vault->state) != UMFD_LIVE || current == 0;
        for (uint32_t g = 0; g < UMFD_GENERATIONS && !is_there; g++) {
            is_there = atomic_load(&state->generations[g].phase) == UMFD_READY &&
                       state->generations[g].vault == i && state->generations[g].number == current;
        }
        if (!is_there) {
            dropped++;
            atomic_store(&vault->current, 0);
        }
    }
    return dropped;
}

unsigned umfd_state_check(umfd_state_t *state) {
    state->slab_top = state->slab_top < UMFD_SLABS ? state->slab_top : UMFD_SLABS;
    unsigned dropped = check_vaults(state) + check_leases(state) + check_generations(state) +
                       check_slabs(state) + check_tables(state) + check_claims(state);
    finish_commits(state);
    check_copies(state);
    check_fills(state);
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        if (atomic_load(&state->leases[i].state) == UMFD_LIVE) {
            set_prune(state, &state->leases[i].generations);
        }
    }
    return dropped + check_current(state);
}
