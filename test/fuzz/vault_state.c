/*
 * The state file of the daemon of vaults, as a daemon that starts finds it. Whatever it has, the
 * check leaves a state without contradictions: a second check drops nothing.
 *
 * Input: records of 16 bytes: an offset into the state, by its first four bytes, and 12 bytes to
 * store there.
 */
#include "fuzz/support.h"

#include <stdlib.h>
#include <string.h>

#include "serve/state.h"

static umfd_state_t state;

static void references_check(void) {
    for (uint32_t i = 0; i < UMFD_GENERATIONS; i++) {
        const umfd_generation_t *generation = &state.generations[i];
        if (generation->phase != UMFD_FREE) {
            FUZZ_CHECK(generation->vault < UMFD_VAULTS);
            FUZZ_CHECK(state.vaults[generation->vault].state == UMFD_LIVE);
            FUZZ_CHECK(generation->lease < UMFD_LEASES && generation->table <= UMFD_SLABS);
            FUZZ_CHECK(generation->phase == UMFD_DRAFT || generation->table > 0);
        }
    }
    for (uint32_t i = 0; i < UMFD_VAULTS; i++) {
        if (state.vaults[i].state == UMFD_LIVE) {
            FUZZ_CHECK(memchr(state.vaults[i].name, 0, sizeof(state.vaults[i].name)));
        }
    }
    FUZZ_CHECK(state.slab_top <= UMFD_SLABS);
    for (uint32_t i = 0; i < state.slab_top; i++) {
        const umfd_slab_t *slab = &state.slabs[i];
        FUZZ_CHECK(slab->state == UMFD_FREE ||
                   (slab->state <= UMFD_AWAY && slab->role < UMF_VAULT_CLASSES));
        FUZZ_CHECK(slab->state != UMFD_AWAY || umfd_copy_of(&state, i) < UMFD_SLABS);
        FUZZ_CHECK(slab->state != UMFD_LIVE || slab->role != UMF_VAULT_CLASS_CLAIM ||
                   (slab->claim > 0 && slab->claim <= state.claim_top &&
                    state.claims[slab->claim - 1].state == UMFD_LIVE &&
                    state.claims[slab->claim - 1].slab == i + 1));
    }
}

static void claims_check(void) {
    FUZZ_CHECK(state.claim_top <= UMFD_CLAIMS);
    for (uint32_t i = 0; i < state.claim_top; i++) {
        const umfd_claim_t *claim = &state.claims[i];
        if (claim->state == UMFD_FREE) {
            continue;
        }
        FUZZ_CHECK(claim->vault < UMFD_VAULTS && state.vaults[claim->vault].state == UMFD_LIVE);
        FUZZ_CHECK(memchr(claim->key, 0, sizeof(claim->key)) && claim->note < 2);
        FUZZ_CHECK(claim->note_sizes[claim->note] <= UMF_VAULT_NOTE_MAX);
        FUZZ_CHECK(claim->slab > 0 && claim->slab <= state.slab_top);
        FUZZ_CHECK(state.slabs[claim->slab - 1].state == UMFD_LIVE &&
                   state.slabs[claim->slab - 1].claim == i + 1);
    }
}

/* One vault with a generation, a draft, a reader and their slabs, and a claim. */
static void fill(void) {
    umfd_state_init(&state, 1);
    state.serial = 20;
    state.slab_top = 5;
    state.claim_top = 1;
    state.vaults[0] = (umfd_vault_t){.state = UMFD_LIVE, .current = 1, .next = 3, .name = "model"};
    state.generations[0] =
        (umfd_generation_t){.phase = UMFD_READY, .number = 1, .writer = 1, .table = 2};
    state.generations[1] = (umfd_generation_t){.phase = UMFD_DRAFT, .number = 2, .writer = 2};
    for (uint32_t i = 0; i < 4; i++) {
        umfd_slab_t *slab = &state.slabs[i];
        *slab = (umfd_slab_t){.state = UMFD_LIVE, .serial = i + 5, .size = 4096, .ordinal = i};
        slab->kind = UMF_VAULT_KIND_HOST;
        slab->role = i == 1 ? UMF_VAULT_CLASS_TABLE : UMF_VAULT_CLASS_SHARED;
        umfd_set_add(&slab->generations, i / 2);
    }
    state.leases[0] = (umfd_lease_t){.state = UMFD_LIVE, .serial = 1, .name = "model"};
    state.leases[1] = (umfd_lease_t){.state = UMFD_LIVE, .serial = 2, .name = "model"};
    umfd_set_add(&state.leases[0].generations, 0);
    state.slabs[4] = (umfd_slab_t){.state = UMFD_LIVE,
                                   .serial = 9,
                                   .size = 8192,
                                   .role = UMF_VAULT_CLASS_CLAIM,
                                   .kind = UMF_VAULT_KIND_HOST,
                                   .claim = 1};
    state.claims[0] = (umfd_claim_t){.state = UMFD_LIVE, .slab = 5, .epoch = 1, .key = "kv"};
    umfd_clients_add(&state.claims[0].mapped, 0);
    umfd_clients_add(&state.claims[0].holders, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memset(&state, 0, sizeof(state));
    fill();
    FUZZ_CHECK(size > 0 || umfd_state_check(&state) == 0);
    for (size_t at = 0; at + 16 <= size; at += 16) {
        uint32_t offset;
        memcpy(&offset, data + at, sizeof(offset));
        memcpy((unsigned char *)&state + offset % (sizeof(state) - 12), data + at + 4, 12);
    }
    umfd_state_check(&state);
    references_check();
    claims_check();
    FUZZ_CHECK(umfd_state_check(&state) == 0);
    references_check();
    claims_check();
    return 0;
}
