#include "serve/content.h"

#include <string.h>

#include "system/checksum.h"

/* --- events ----------------------------------------------------------------------------------- */

bool umfd_event_after(const umfd_t *daemon, uint32_t lease, uint64_t after,
                      umf_vault_message_t *answer) {
    const umfd_state_t *state = daemon->state;
    const char *name = state->leases[lease].name;
    uint64_t vault = umf_sum(name, strlen(name));
    after = after <= state->event ? after : 0; /* of a service that has ended */
    uint64_t oldest = state->event >= UMFD_EVENTS ? state->event - UMFD_EVENTS + 1 : 1;
    for (uint64_t i = after + 1 > oldest ? after + 1 : oldest; i <= state->event; i++) {
        const umfd_event_t *event = &state->events[i % UMFD_EVENTS];
        if (atomic_load(&event->number) == i && event->vault == vault) {
            answer->words[0] = i;
            answer->words[1] = event->type;
            answer->words[2] = event->generation;
            return true;
        }
    }
    return false;
}

/* --- vaults and generations ------------------------------------------------------------------- */

uint32_t umfd_vault_find(const umfd_state_t *state, const char *name) {
    uint32_t i = 0;
    while (i < UMFD_VAULTS && (atomic_load(&state->vaults[i].state) != UMFD_LIVE ||
                               strcmp(state->vaults[i].name, name) != 0)) {
        i++;
    }
    return i;
}

uint32_t umfd_vault_make(umfd_state_t *state, const umfd_lease_t *lease) {
    for (uint32_t i = 0; i < UMFD_VAULTS; i++) {
        umfd_vault_t *vault = &state->vaults[i];
        if (atomic_load(&vault->state) == UMFD_FREE) {
            memset(vault, 0, sizeof(*vault));
            vault->uid = lease->uid;
            vault->limit = lease->limit;
            vault->keep = lease->keep;
            vault->next = 1;
            memcpy(vault->name, lease->name, sizeof(vault->name));
            umfd_step();
            atomic_store(&vault->state, UMFD_LIVE);
            return i;
        }
    }
    return UMFD_VAULTS;
}

umfd_phase_t umfd_phase_of(const umfd_state_t *state, uint32_t i) {
    return (umfd_phase_t)atomic_load_explicit(&state->generations[i].phase, memory_order_relaxed);
}

uint32_t umfd_generation_find(const umfd_state_t *state, uint32_t vault, uint64_t number) {
    uint32_t i = 0;
    while (i < UMFD_GENERATIONS &&
           (umfd_phase_of(state, i) == (umfd_phase_t)UMFD_FREE ||
            state->generations[i].vault != vault || state->generations[i].number != number)) {
        i++;
    }
    return i;
}

uint32_t umfd_draft_find(const umfd_state_t *state, uint32_t vault) {
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        umfd_phase_t phase = umfd_phase_of(state, i);
        if ((phase == UMFD_DRAFT || phase == UMFD_GROUPED) &&
            state->generations[i].vault == vault) {
            return i;
        }
    }
    return UMFD_GENERATIONS;
}

static bool is_attached(const umfd_state_t *state, uint32_t generation) {
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        if (atomic_load(&state->leases[i].state) == UMFD_LIVE &&
            umfd_set_has(&state->leases[i].generations, generation)) {
            return true;
        }
    }
    return false;
}

/* How many generations after this one the vault has, without the current one. */
static unsigned newer(const umfd_state_t *state, uint32_t place) {
    const umfd_generation_t *generation = &state->generations[place];
    unsigned count = 0;
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        count +=
            umfd_phase_of(state, i) == UMFD_READY &&
            state->generations[i].vault == generation->vault &&
            state->generations[i].number > generation->number &&
            state->generations[i].number != atomic_load(&state->vaults[generation->vault].current);
    }
    return count;
}

void umfd_sweep(umfd_t *daemon, uint32_t place) {
    umfd_state_t *state = daemon->state;
    umfd_vault_t *vault = &state->vaults[place];
    unsigned left = umfd_claims_of(state, place);
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        if (umfd_phase_of(state, i) == (umfd_phase_t)UMFD_FREE ||
            state->generations[i].vault != place) {
            continue;
        }
        if (umfd_phase_of(state, i) == UMFD_READY &&
            state->generations[i].number != atomic_load(&vault->current) &&
            !is_attached(state, i) && newer(state, i) >= vault->keep) {
            umfd_emit(state, vault->name, UMF_VAULT_EVENT_DROPPED, state->generations[i].number);
            umfd_step();
            umfd_fill_end(daemon, i);
            umfd_generation_end(state, i);
            umfd_step();
        } else {
            left++;
        }
    }
    if (left == 0) {
        atomic_store(&vault->state, UMFD_FREE);
    }
    umfd_count_dying(daemon);
}

uint64_t umfd_bytes_of(const umfd_state_t *state, uint32_t vault) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < state->slab_top; i++) {
        const umfd_slab_t *slab = &state->slabs[i];
        if (atomic_load_explicit(&slab->state, memory_order_relaxed) == UMFD_LIVE &&
            slab->vault == vault && slab->kind != UMF_VAULT_KIND_FILE) {
            bytes += slab->size;
        }
    }
    return bytes;
}

bool umfd_is_empty(const umfd_t *daemon) {
    for (uint32_t i = 0; i < UMFD_VAULTS; i++) {
        if (atomic_load(&daemon->state->vaults[i].state) == UMFD_LIVE) {
            return false;
        }
    }
    return true;
}

uint32_t umfd_vault_of(const umfd_context_t *c) {
    return c->lease->name[0] ? umfd_vault_find(c->state, c->lease->name) : UMFD_VAULTS;
}

void umfd_lease_free(umfd_t *daemon, uint32_t place) {
    umfd_claims_left(daemon->state, place);
    umfd_step();
    umfd_process_close(daemon, place);
    atomic_store(&daemon->state->leases[place].state, UMFD_FREE);
}

void umfd_lease_left(umfd_t *daemon, uint32_t place) {
    umfd_state_t *state = daemon->state;
    umfd_lease_t *lease = &state->leases[place];
    uint64_t read = 0;
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        umfd_phase_t phase = umfd_phase_of(state, i);
        if ((phase == UMFD_DRAFT || phase == UMFD_GROUPED) &&
            state->generations[i].writer == lease->serial) {
            umfd_emit(state, lease->name, UMF_VAULT_EVENT_ABORTED, state->generations[i].number);
            umfd_generation_end(state, i);
        }
        if (phase == UMFD_READY && state->generations[i].filler == lease->serial) {
            umfd_fill_end(daemon, i);
        }
        if (umfd_set_has(&lease->generations, i)) {
            read = state->generations[i].number;
        }
    }
    if (read) {
        umfd_emit(state, lease->name, UMF_VAULT_EVENT_READER_ENDED, read);
    }
    memset(&lease->generations, 0, sizeof(lease->generations));
    umfd_step();
    if (umfd_claims_have(state, place) && umfd_process_watch(daemon, place)) {
        atomic_store(&lease->state, UMFD_DYING);
    } else {
        umfd_lease_free(daemon, place);
    }
    umfd_step();
    for (uint32_t i = 0; i < UMFD_VAULTS; i++) { /* members of its group may be of any */
        if (atomic_load(&state->vaults[i].state) == UMFD_LIVE) {
            umfd_sweep(daemon, i);
        }
    }
}
