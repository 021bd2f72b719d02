/* Claims: memory with a key that stays writable and outlives its holder. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/content.h"

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020 /* Linux 6.3 */
#endif

/* --- records ---------------------------------------------------------------------------------- */

static bool is_live(const umfd_state_t *state, uint32_t i) {
    return atomic_load_explicit(&state->claims[i].state, memory_order_relaxed) == UMFD_LIVE;
}

uint32_t umfd_claims_of(const umfd_state_t *state, uint32_t vault) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < state->claim_top; i++) {
        count += is_live(state, i) && state->claims[i].vault == vault;
    }
    return count;
}

void umfd_claims_drop(umfd_state_t *state, uint32_t vault) {
    for (uint32_t i = 0; i < state->claim_top; i++) {
        if (is_live(state, i) && state->claims[i].vault == vault) {
            umfd_emit(state, state->vaults[vault].name, UMF_VAULT_EVENT_UNCLAIMED,
                      state->claims[i].epoch);
            umfd_claim_end(state, i);
        }
    }
}

bool umfd_claims_have(const umfd_state_t *state, uint32_t lease) {
    for (uint32_t i = 0; i < state->claim_top; i++) {
        if (is_live(state, i) && umfd_clients_have(&state->claims[i].mapped, lease)) {
            return true;
        }
    }
    return false;
}

/* One that was fenced has lost its epoch before, but it was in the way until now. */
static void leave(umfd_state_t *state, umfd_claim_t *claim, uint32_t lease) {
    bool holds = umfd_clients_have(&claim->holders, lease);
    umfd_emit(state, state->vaults[claim->vault].name, UMF_VAULT_EVENT_UNCLAIMED,
              holds ? claim->epoch : 0);
    umfd_clients_remove(&claim->holders, lease);
    umfd_step();
    umfd_clients_remove(&claim->mapped, lease);
}

void umfd_claims_left(umfd_state_t *state, uint32_t lease) {
    for (uint32_t i = 0; i < state->claim_top; i++) {
        if (is_live(state, i) && umfd_clients_have(&state->claims[i].mapped, lease)) {
            leave(state, &state->claims[i], lease);
        }
    }
}

static uint32_t find(const umfd_state_t *state, uint32_t vault, const char *key) {
    uint32_t i = 0;
    while (i < state->claim_top && (!is_live(state, i) || state->claims[i].vault != vault ||
                                    strcmp(state->claims[i].key, key) != 0)) {
        i++;
    }
    return i < state->claim_top ? i : UMFD_CLAIMS;
}

/* The key at the begin of the body, which has `size` bytes. */
static bool key_of(const umfd_context_t *c, uint32_t size, char key[UMF_VAULT_NAME_MAX + 1]) {
    if (size == 0 || size > UMF_VAULT_NAME_MAX || memchr(c->request->body, 0, size)) {
        return false;
    }
    memcpy(key, c->request->body, size);
    key[size] = 0;
    return true;
}

/* The bytes of a body up to a zero. */
static uint32_t key_size(const umfd_context_t *c) {
    const unsigned char *body = c->request->body, *end = memchr(body, 0, c->request->head.body);
    return end ? (uint32_t)(end - body) : c->request->head.body;
}

/* The claim that a body names. UMFD_CLAIMS: none. false: no key. */
static bool named(const umfd_context_t *c, uint32_t *place) {
    char key[UMF_VAULT_NAME_MAX + 1];
    if (!c->lease->name[0] || !key_of(c, key_size(c), key)) {
        return false;
    }
    uint32_t vault = umfd_vault_of(c);
    *place = vault < UMFD_VAULTS ? find(c->state, vault, key) : UMFD_CLAIMS;
    return true;
}

/* A repetition of a request that was answered may come after those of other clients, and must not
 * take back what these have done. */
static bool is_repeated(const umfd_context_t *c) {
    return c->lease->served && c->lease->served == c->request->head.sequence;
}

static void was_served(const umfd_context_t *c, uint64_t epoch) {
    c->lease->epoch = epoch;
    umfd_step();
    c->lease->served = c->request->head.sequence;
    umfd_step();
}

/* --- claim ------------------------------------------------------------------------------------ */

/* The file of a client: its size is fixed, and it cannot be made read-only. */
static umf_vault_answer_t take_file(int fd, uint64_t size, int *kept) {
    struct stat about;
    int fixed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals == -1 || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR ||
        (!(seals & F_SEAL_SEAL) && fcntl(fd, F_ADD_SEALS, fixed) != 0)) {
        return UMF_VAULT_UNSEALED;
    }
    seals = fcntl(fd, F_GET_SEALS);
    if (seals == -1 || (seals & ~F_SEAL_EXEC) != fixed || fstat(fd, &about) != 0 ||
        !S_ISREG(about.st_mode) || about.st_size < 0 || (uint64_t)about.st_size != size) {
        return UMF_VAULT_UNSEALED;
    }
    *kept = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return *kept == -1 ? UMF_VAULT_DESCRIPTORS : UMF_VAULT_OK;
}

static bool is_of_device(const umfd_context_t *c) {
    return c->request->head.words[3] == UMF_VAULT_KIND_DEVICE;
}

/* A slab of a claim, of a descriptor of the request. */
static umf_vault_answer_t slab_make(const umfd_context_t *c, uint32_t vault, uint32_t claim,
                                    uint32_t kind, uint64_t size, int fd, umfd_slab_t **slab) {
    int kept;
    umf_vault_answer_t answer = umfd_slab_room(c, vault, size, slab);
    if (answer == UMF_VAULT_OK) {
        answer =
            kind == UMF_VAULT_KIND_HOST ? take_file(fd, size, &kept) : umfd_device_keep(fd, &kept);
    }
    if (answer == UMF_VAULT_OK) {
        (*slab)->role = UMF_VAULT_CLASS_CLAIM;
        (*slab)->kind = kind;
        (*slab)->claim = claim + 1;
        answer = umfd_slab_keep(c, *slab, kept);
    }
    return answer;
}

/* The memory, and the file with the epoch of memory of a device: both, or none. */
static umf_vault_answer_t slabs_make(const umfd_context_t *c, uint32_t vault, uint32_t claim,
                                     umfd_slab_t **slab, umfd_slab_t **word) {
    const uint64_t *asked = c->request->head.words;
    const int *fds = c->request->fds;
    *word = NULL;
    if (!is_of_device(c)) {
        return slab_make(c, vault, claim, UMF_VAULT_KIND_HOST, asked[0], fds[0], slab);
    }
    umf_vault_answer_t answer =
        slab_make(c, vault, claim, UMF_VAULT_KIND_HOST, asked[4], fds[0], word);
    if (answer == UMF_VAULT_OK) {
        answer = slab_make(c, vault, claim, UMF_VAULT_KIND_DEVICE, asked[0], fds[1], slab);
        if (answer == UMF_VAULT_OK) {
            memcpy((*slab)->device, c->request->body + key_size(c) + 1, sizeof((*slab)->device));
        } else {
            atomic_store(&(*word)->state, UMFD_DYING);
            umfd_count_dying(c->daemon);
        }
    }
    return answer;
}

static umf_vault_answer_t make(const umfd_context_t *c, const char *key, uint32_t *place) {
    umfd_state_t *state = c->state;
    uint32_t vault = umfd_vault_of(c), i = 0;
    while (i < state->claim_top && is_live(state, i)) {
        i++;
    }
    c->words[0] = UMFD_CLAIMS;
    if (i == UMFD_CLAIMS) {
        return UMF_VAULT_FULL;
    }
    if (vault == UMFD_VAULTS && (vault = umfd_vault_make(state, c->lease)) == UMFD_VAULTS) {
        c->words[0] = UMFD_VAULTS;
        return UMF_VAULT_FULL;
    }
    umfd_slab_t *slab, *word;
    umf_vault_answer_t answer = slabs_make(c, vault, i, &slab, &word);
    if (answer != UMF_VAULT_OK) {
        umfd_sweep(c->daemon, vault); /* it may be new, and without content */
        return answer;
    }
    umfd_claim_t *claim = &state->claims[i];
    memset(claim, 0, sizeof(*claim));
    claim->vault = vault;
    claim->slab = (uint32_t)(slab - state->slabs) + 1;
    claim->word = word ? (uint32_t)(word - state->slabs) + 1 : 0;
    claim->is_shared = c->request->head.words[1] != 0;
    claim->maker = c->lease->serial;
    claim->epoch = 1;
    memcpy(claim->key, key, sizeof(claim->key));
    umfd_clients_add(&claim->mapped, c->request->lease);
    umfd_clients_add(&claim->holders, c->request->lease);
    state->claim_top = i == state->claim_top ? i + 1 : state->claim_top;
    umfd_step();
    atomic_store(&claim->state, UMFD_LIVE);
    umfd_step();
    *place = i;
    return UMF_VAULT_OK;
}

static bool is_empty(const umfd_clients_t *clients) {
    for (uint32_t w = 0; w < UMFD_LEASES / 64; w++) {
        if (clients->words[w]) {
            return false;
        }
    }
    return true;
}

/* Sends a signal to the processes of clients, but not to that of the one that asks. false: one, in
 * the first word, cannot get it. Processes of other namespaces have no number here. */
static bool signal_all(const umfd_context_t *c, const umfd_clients_t *clients, int number) {
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        uint32_t pid = c->state->leases[i].pid;
        if (umfd_clients_have(clients, i) &&
            (pid == 0 || (pid != c->lease->pid && !umfd_process_signal(c->daemon, i, number)))) {
            c->words[0] = pid;
            return false;
        }
    }
    return true;
}

/* Ends processes of clients: all, or none if one cannot be ended. A request of a client that has
 * ended meanwhile kills no process. */
static umf_vault_answer_t kill_all(const umfd_context_t *c, const umfd_clients_t *clients) {
    struct pollfd asks = {.fd = c->daemon->leases[c->request->lease]};
    if (poll(&asks, 1, 0) != 0) {
        return UMF_VAULT_BUSY;
    }
    return signal_all(c, clients, 0) && signal_all(c, clients, SIGKILL)
               ? UMF_VAULT_BUSY /* until they have ended */
               : UMF_VAULT_UNFENCED;
}

/* Whether the client may hold a claim that is there. */
static umf_vault_answer_t admit(const umfd_context_t *c, umfd_claim_t *claim) {
    uint32_t self = c->request->lease;
    bool shares = c->request->head.words[1] != 0;
    uint64_t fence = c->request->head.words[2];
    if (umfd_clients_have(&claim->holders,
                          self)) { /* a repeated request, or another handle of it */
        return claim->is_shared == shares ? UMF_VAULT_OK : UMF_VAULT_INVALID;
    }
    bool joins = shares && claim->is_shared && !is_empty(&claim->holders);
    umfd_clients_t others = claim->mapped; /* in the way */
    umfd_clients_remove(&others, self);
    for (uint32_t w = 0; joins && w < UMFD_LEASES / 64; w++) {
        others.words[w] &= ~claim->holders.words[w];
    }
    if (!is_empty(&others) && fence != UMF_VAULT_FENCE_EPOCH) {
        uint32_t first = 0;
        while (!umfd_clients_have(&others, first)) {
            first++;
        }
        c->words[0] = c->state->leases[first].pid;
        c->words[1] = claim->epoch;
        return fence == UMF_VAULT_FENCE_KILL ? kill_all(c, &others) : UMF_VAULT_BUSY;
    }
    umfd_clients_add(&claim->mapped, self);
    umfd_step();
    if (!joins) {
        if (!is_empty(&claim->holders)) {
            umfd_emit(c->state, c->lease->name, UMF_VAULT_EVENT_UNCLAIMED, claim->epoch);
        }
        memset(&claim->holders, 0, sizeof(claim->holders));
        umfd_step();
        claim->epoch++;
        claim->is_shared = shares;
        umfd_step();
    }
    umfd_clients_add(&claim->holders, self);
    umfd_step();
    return UMF_VAULT_OK;
}

/* Its descriptors were not lost with a daemon. */
static bool has_memory(const umfd_context_t *c, const umfd_claim_t *claim) {
    return c->daemon->slabs[claim->slab - 1] != -1 &&
           (!claim->word || c->daemon->slabs[claim->word - 1] != -1);
}

static umf_vault_answer_t answer_claim(const umfd_context_t *c, const umfd_claim_t *claim) {
    uint32_t note = atomic_load(&claim->note);
    if (!is_repeated(c)) {
        was_served(c, claim->epoch);
    }
    c->words[0] = c->lease->epoch;
    c->words[1] = c->state->slabs[claim->slab - 1].size;
    c->words[2] = c->lease->epoch == 1 && claim->maker == c->lease->serial;
    memcpy(c->reply->body, claim->notes[note], claim->note_sizes[note]);
    c->reply->head.body = claim->note_sizes[note];
    const umfd_slab_t *slab = &c->state->slabs[claim->slab - 1];
    c->words[3] = slab->kind;
    memcpy(&c->words[4], slab->device, sizeof(slab->device));
    if (claim->word) {
        c->reply->fds[c->reply->fd_count++] = c->daemon->slabs[claim->word - 1];
    }
    c->reply->fds[c->reply->fd_count++] = c->daemon->slabs[claim->slab - 1];
    return UMF_VAULT_OK;
}

umf_vault_answer_t umfd_claim(const umfd_context_t *c) {
    const uint64_t *asked = c->request->head.words;
    char key[UMF_VAULT_NAME_MAX + 1] = {0};
    uint32_t place;
    uint32_t needed = is_of_device(c) ? 2 : 1; /* descriptors of new memory */
    uint32_t more = is_of_device(c) ? 1 + UMF_VAULT_DEVICE_SIZE : 0;
    if (!named(c, &place) || !key_of(c, key_size(c), key) || asked[1] > 1 ||
        asked[2] > UMF_VAULT_FENCE_KILL || asked[3] > UMF_VAULT_KIND_DEVICE ||
        (c->request->fd_count && c->request->fd_count != needed) ||
        c->request->head.body != key_size(c) + (c->request->fd_count ? more : 0)) {
        return UMF_VAULT_INVALID;
    }
    if (place == UMFD_CLAIMS && (asked[0] == 0 || c->request->fd_count == 0)) {
        return UMF_VAULT_NONE;
    }
    if (is_repeated(c)) { /* its claim may have been dropped since */
        return place < UMFD_CLAIMS && has_memory(c, &c->state->claims[place]) &&
                       umfd_clients_have(&c->state->claims[place].mapped, c->request->lease)
                   ? answer_claim(c, &c->state->claims[place])
                   : UMF_VAULT_NONE;
    }
    c->words[0] = c->daemon->open_limit;
    c->words[1] = c->daemon->open;
    if (!umfd_process_open(c->daemon, c->request->lease)) {
        return UMF_VAULT_DESCRIPTORS;
    }
    umf_vault_answer_t answer;
    if (place == UMFD_CLAIMS) {
        answer = make(c, key, &place);
    } else {
        const umfd_claim_t *claim = &c->state->claims[place];
        uint64_t size = c->state->slabs[claim->slab - 1].size;
        c->words[0] = size;
        c->words[1] = claim->word ? UMF_VAULT_KIND_DEVICE : UMF_VAULT_KIND_HOST;
        bool differs = (asked[0] && asked[0] != size) || is_of_device(c) != (claim->word != 0);
        answer = !has_memory(c, claim) ? UMF_VAULT_BROKEN
                 : differs             ? UMF_VAULT_DIFFERS
                                       : admit(c, &c->state->claims[place]);
    }
    return answer == UMF_VAULT_OK ? answer_claim(c, &c->state->claims[place]) : answer;
}

/* --- of a claim that is there ----------------------------------------------------------------- */

umf_vault_answer_t umfd_note(const umfd_context_t *c) {
    char key[UMF_VAULT_NAME_MAX + 1];
    const unsigned char *body = c->request->body;
    const unsigned char *end = memchr(body, 0, c->request->head.body);
    if (!c->lease->name[0] || !end || !key_of(c, (uint32_t)(end - body), key)) {
        return UMF_VAULT_INVALID;
    }
    uint32_t size = c->request->head.body - (uint32_t)(end - body) - 1;
    uint32_t vault = umfd_vault_of(c);
    uint32_t place = vault < UMFD_VAULTS ? find(c->state, vault, key) : UMFD_CLAIMS;
    if (size > UMF_VAULT_NOTE_MAX) {
        return UMF_VAULT_INVALID;
    }
    if (is_repeated(c)) {
        return UMF_VAULT_OK;
    }
    c->words[0] = place < UMFD_CLAIMS ? c->state->claims[place].epoch : 0;
    if (place == UMFD_CLAIMS || c->request->head.words[0] != c->words[0] ||
        !umfd_clients_have(&c->state->claims[place].holders, c->request->lease)) {
        return UMF_VAULT_STALE;
    }
    umfd_claim_t *claim = &c->state->claims[place];
    uint32_t other = 1 - atomic_load(&claim->note);
    memcpy(claim->notes[other], end + 1, size);
    claim->note_sizes[other] = size;
    umfd_step();
    atomic_store(&claim->note, other);
    umfd_step();
    was_served(c, claim->epoch);
    return UMF_VAULT_OK;
}

umf_vault_answer_t umfd_unclaim(const umfd_context_t *c) {
    uint32_t place;
    if (!named(c, &place)) {
        return UMF_VAULT_INVALID;
    }
    if (place < UMFD_CLAIMS &&
        umfd_clients_have(&c->state->claims[place].mapped, c->request->lease)) {
        leave(c->state, &c->state->claims[place], c->request->lease);
    }
    return UMF_VAULT_OK;
}

umf_vault_answer_t umfd_forget(const umfd_context_t *c) {
    uint32_t place;
    if (!named(c, &place)) {
        return UMF_VAULT_INVALID;
    }
    if (place == UMFD_CLAIMS) {
        return UMF_VAULT_OK;
    }
    umfd_claim_t *claim = &c->state->claims[place];
    umfd_clients_t others = claim->mapped;
    umfd_clients_remove(&others, c->request->lease);
    for (uint32_t i = 0; i < UMFD_LEASES; i++) {
        if (umfd_clients_have(&others, i)) {
            c->words[0] = c->state->leases[i].pid;
            c->words[1] = claim->epoch;
            return UMF_VAULT_BUSY;
        }
    }
    uint32_t vault = claim->vault;
    umfd_emit(c->state, c->lease->name, UMF_VAULT_EVENT_UNCLAIMED, claim->epoch);
    umfd_claim_end(c->state, place);
    umfd_sweep(c->daemon, vault);
    return UMF_VAULT_OK;
}

umf_vault_answer_t umfd_claims(const umfd_context_t *c) {
    uint32_t vault = umfd_vault_of(c);
    for (uint64_t i = c->request->head.words[0]; i < c->state->claim_top; i++) {
        const umfd_claim_t *claim = &c->state->claims[i];
        if (!is_live(c->state, (uint32_t)i) || claim->vault != vault) {
            continue;
        }
        const umfd_slab_t *slab = &c->state->slabs[claim->slab - 1];
        umf_vault_claim_message_t info = {.size = slab->size,
                                          .kind = slab->kind,
                                          .epoch = claim->epoch,
                                          .is_shared = claim->is_shared,
                                          .note_size =
                                              claim->note_sizes[atomic_load(&claim->note)]};
        for (uint32_t lease = 0; lease < UMFD_LEASES; lease++) {
            if (umfd_clients_have(&claim->holders, lease)) {
                info.pid = info.holders++ ? info.pid : c->state->leases[lease].pid;
            }
        }
        size_t length = strlen(claim->key);
        memcpy(info.device, slab->device, sizeof(info.device));
        memcpy(c->reply->body, &info, sizeof(info));
        memcpy(c->reply->body + sizeof(info), claim->key, length);
        c->reply->head.body = (uint32_t)(sizeof(info) + length);
        c->words[0] = i + 1;
        return UMF_VAULT_OK;
    }
    return c->lease->name[0] ? UMF_VAULT_OK : UMF_VAULT_INVALID;
}
