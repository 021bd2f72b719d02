/* Claims: memory with a key that stays writable, and passes from holder to holder. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/claim.h"

#define FIXED (F_SEAL_SHRINK | F_SEAL_GROW)

static umf_result_t check(umf_vault_handle_t vault, const char *key, const char *function) {
    if (!umf_vault_check(vault, function)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t length = key ? strlen(key) : 0;
    if (length == 0 || length > UMF_VAULT_NAME_MAX) {
        UMF_LOG_ERROR("the key of a claim has 1 to %u bytes, this one has %zu", UMF_VAULT_NAME_MAX,
                      length);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (vault->is_folder) {
        return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                        "%s: a folder has no claims: open a vault of the service",
                        vault->link.name);
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t stale(umf_vault_handle_t vault, const char *key) {
    return UMF_FAIL(UMF_REASON_STALE, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                    "%s of vault %s is not held here any more: the service has ended, or the claim "
                    "was given back or dropped; give it back before it is claimed again",
                    key, vault->link.name);
}

/* The link that points to it, or the end of the list. The gate is taken. */
static umf_vault_held_t **held_find(umf_vault_handle_t vault, const char *key) {
    umf_vault_held_t **at = &vault->held;
    while (*at && strcmp((*at)->key, key) != 0) {
        at = &(*at)->next;
    }
    return at;
}

static void held_end(umf_vault_held_t **at) {
    umf_vault_held_t *held = *at;
    *at = held->next;
    umf_vault_memory_unmap(&held->memory);
    if (held->base) {
        umf_os_unmap(held->base, held->size);
    }
    umf_meta_free(held, sizeof(*held));
}

/* A request about a key that this connection holds, or needs not hold. */
static umf_result_t ask(umf_vault_handle_t vault, uint16_t op, const char *key, bool is_bound,
                        umf_vault_message_t *answer) {
    umf_link_call_t call = {.message = {.op = op},
                            .body = key,
                            .body_size = (uint32_t)strlen(key),
                            .is_bound = is_bound};
    umf_result_t result = umf_link_call(&vault->link, &call);
    *answer = call.message;
    return result;
}

static umf_result_t busy(umf_vault_handle_t vault, const char *key,
                         const umf_vault_message_t *answer) {
    return UMF_FAIL(UMF_REASON_BUSY, UMF_RESULT_ERROR_OUT_OF_RESOURCES,
                    "%s of vault %s is held, or was, by process %llu, which has not left it (epoch "
                    "%llu): wait longer, or claim it with a fence",
                    key, vault->link.name, (unsigned long long)answer->words[0],
                    (unsigned long long)answer->words[1]);
}

/* --- claim ------------------------------------------------------------------------------------ */

typedef struct claim_t {
    umf_vault_handle_t vault;
    const char *key;
    const umf_vault_claim_params_t *params;
    uint64_t size; /* of the memory, that of the host with the page of the epoch; 0: any */
    int files[2];  /* made here: the file, and the memory of a device; -1: none */
    umf_vault_memory_maker_t maker;
    umf_vault_kind_t kind;
    umf_vault_claim_t made;
    umf_link_call_t call;
    int fds[UMF_VAULT_FDS_MAX];
    char body[UMF_VAULT_BODY_MAX];
} claim_t;

static bool is_of_device(const claim_t *claim) {
    return claim->kind == UMF_VAULT_KIND_DEVICE;
}

static umf_result_t file_make(claim_t *claim) {
    if (claim->files[0] != -1) {
        return UMF_RESULT_SUCCESS;
    }
    int error = umf_os_memfd("umf_vault_claim", false, &claim->files[0]);
    if (error != 0) {
        claim->files[0] = -1;
        return umf_vault_no_memory(error, "making a memory file");
    }
    error = umf_os_truncate(claim->files[0],
                            is_of_device(claim) ? umf_os_page_size() : (size_t)claim->size);
    if (error == 0) {
        error = umf_os_add_seals(claim->files[0], FIXED | F_SEAL_SEAL);
    }
    return error ? umf_vault_no_memory(error, "making a memory file") : UMF_RESULT_SUCCESS;
}

static umf_result_t memory_make(claim_t *claim) {
    umf_result_t result = file_make(claim);
    return result == UMF_RESULT_SUCCESS && is_of_device(claim) && claim->files[1] == -1
               ? umf_vault_memory_make(&claim->maker, &claim->files[1])
               : result;
}

/* Maps the file of a claim. The page with the epoch is its last one. */
static umf_result_t held_map(const claim_t *claim, umf_vault_held_t *held, int fd) {
    uint64_t size, told = claim->call.message.words[1];
    size_t page = umf_os_page_size();
    int seals = fcntl(fd, F_GET_SEALS);
    bool is_sealed = seals != -1 && (seals & FIXED) == FIXED;
    if (!is_sealed || umf_os_file_id(fd, &held->dev, &held->ino, &size) != 0 || size % page ||
        told > SIZE_MAX / 2 || (is_of_device(claim) ? size != page : size != told) ||
        (!is_of_device(claim) && size < 2 * page)) {
        return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "%s of vault %s is broken: its memory has another size than the service "
                        "says, or can be cut",
                        claim->key, claim->vault->link.name);
    }
    held->size = (size_t)size;
    /* A child would go on writing when this process has ended. One that is forked in the middle has
     * no access. */
    int error = umf_os_map(&held->base, held->size, PROT_NONE, MAP_SHARED, fd, 0);
    if (error != 0) {
        held->base = NULL;
        return umf_vault_no_memory(error, "mapping the memory of a claim");
    }
    error = umf_os_advise(held->base, held->size, MADV_DONTFORK);
    if (error == 0) {
        error = umf_os_protect(held->base, held->size, PROT_READ | PROT_WRITE);
    }
    return error ? umf_vault_no_memory(error, "keeping the memory of a claim from children")
                 : UMF_RESULT_SUCCESS;
}

/* The UUID in an answer. */
static const unsigned char *device_of(const claim_t *claim) {
    return (const unsigned char *)&claim->call.message.words[4];
}

static umf_result_t held_map_all(const claim_t *claim, umf_vault_held_t *held) {
    umf_result_t result = held_map(claim, held, claim->fds[0]);
    return result == UMF_RESULT_SUCCESS && is_of_device(claim)
               ? umf_vault_memory_map(claim->vault, claim->params->devices, device_of(claim),
                                      claim->fds[1], (size_t)claim->call.message.words[1],
                                      &held->memory)
               : result;
}

/* The word in the memory grows only: claims may reach it in another order than they were made. */
static uint64_t *epoch_raise(const umf_vault_held_t *held, uint64_t epoch) {
    uint64_t *word = umf_vault_held_word(held);
    uint64_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    while (seen < epoch && !__atomic_compare_exchange_n(word, &seen, epoch, false, __ATOMIC_ACQ_REL,
                                                        __ATOMIC_ACQUIRE)) {
    }
    return word;
}

/* The service may have made this client a holder, or may do so later: it serves the requests of a
 * connection in order. */
static umf_result_t claim_undo(const claim_t *claim, umf_result_t result) {
    umf_vault_message_t ignored;
    ask(claim->vault, UMF_VAULT_UNCLAIM, claim->key, true, &ignored);
    return result;
}

/* Whether a descriptor is that of the memory that is mapped: it may have been dropped, and another
 * client has made new memory. */
static bool held_is(const umf_vault_held_t *held, int fd) {
    uint64_t dev, ino, size;
    return umf_os_file_id(fd, &dev, &ino, &size) == 0 && dev == held->dev && ino == held->ino;
}

/* Maps the memory of a claim, or gives the claim back. */
static umf_result_t held_add(claim_t *claim, umf_vault_held_t **at) {
    umf_vault_held_t *held = *at;
    bool is_again = held != NULL;
    if (held && !held_is(held, claim->fds[0])) {
        return claim_undo(claim, stale(claim->vault, claim->key));
    }
    if (!held) {
        held = umf_meta_alloc(sizeof(*held));
        umf_result_t result =
            held ? held_map_all(claim, held) : umf_vault_no_memory(ENOMEM, "remembering a claim");
        if (result != UMF_RESULT_SUCCESS) {
            if (held) {
                held_end(&held);
            }
            return claim_undo(claim, result);
        }
        memcpy(held->key, claim->key, strlen(claim->key) + 1);
        held->epoch = claim->vault->link.epoch;
        __atomic_store_n(at, held, __ATOMIC_RELEASE); /* a child of fork may read it */
    }
    const umf_vault_message_t *answer = &claim->call.message;
    memcpy(held->note, claim->body, answer->body);
    claim->made = (umf_vault_claim_t){.struct_size = sizeof(claim->made),
                                      .ptr = held->base,
                                      .size = held->size - umf_os_page_size(),
                                      .device = -1,
                                      .epoch = answer->words[0],
                                      .now = epoch_raise(held, answer->words[0]),
                                      .is_new = !is_again && answer->words[2] != 0,
                                      .note = answer->body ? held->note : NULL,
                                      .note_size = answer->body};
    if (held->memory.device) {
        claim->made.ptr = held->memory.base;
        claim->made.size = held->memory.size;
        claim->made.device = held->memory.device->number;
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t claim_ask(claim_t *claim, bool is_bound) {
    char body[UMF_VAULT_NAME_MAX + 1 + UMF_VAULT_DEVICE_SIZE];
    size_t length = strlen(claim->key);
    bool gives = claim->files[0] != -1, gives_device = gives && is_of_device(claim);
    memcpy(body, claim->key, length + 1);
    memcpy(body + length + 1, claim->maker.id, sizeof(claim->maker.id));
    claim->call = (umf_link_call_t){
        .message = {.op = UMF_VAULT_CLAIM,
                    .words = {claim->size, claim->params->shared != 0, claim->params->fence,
                              claim->kind, umf_os_page_size()}},
        .body = body,
        .body_size = (uint32_t)(length + (gives_device ? 1 + sizeof(claim->maker.id) : 0)),
        .pass = claim->files,
        .passes = gives_device ? 2 : gives,
        .answer = claim->body,
        .passed = claim->fds,
        .is_bound = is_bound};
    return umf_link_call(&claim->vault->link, &claim->call);
}

static umf_result_t claim_once(claim_t *claim) {
    umf_vault_handle_t vault = claim->vault;
    umf_vault_held_t **at = held_find(vault, claim->key);
    if (*at && (*at)->epoch != vault->link.epoch) {
        return stale(vault, claim->key);
    }
    bool has_device = *at ? (*at)->memory.device != NULL : claim->params->devices != NULL;
    claim->kind = has_device ? UMF_VAULT_KIND_DEVICE : UMF_VAULT_KIND_HOST;
    umf_result_t result = claim_ask(claim, *at != NULL);
    if (result == UMF_RESULT_SUCCESS && claim->call.message.answer == UMF_VAULT_NONE && *at) {
        return stale(vault, claim->key);
    }
    if (result == UMF_RESULT_SUCCESS && claim->call.message.answer == UMF_VAULT_NONE &&
        claim->size) {
        result = memory_make(claim);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        result = claim_ask(claim, false);
    }
    if (result == UMF_RESULT_ERROR_OUT_OF_RESOURCES && !*at) { /* no answer, or no room for it */
        return claim_undo(claim, result);
    }
    if (result != UMF_RESULT_SUCCESS || claim->call.message.answer != UMF_VAULT_OK) {
        return result;
    }
    if (claim->call.passed_count != (is_of_device(claim) ? 2u : 1u) ||
        claim->call.message.body > UMF_VAULT_NOTE_MAX) {
        return UMF_FAIL(UMF_REASON_IDENTITY, UMF_RESULT_ERROR_UNKNOWN,
                        "the service of vaults sends no memory");
    }
    return held_add(claim, at);
}

static umf_result_t claim_attempt(void *arg, umf_vault_message_t *answer) {
    claim_t *claim = arg;
    umf_link_lock_take(&claim->vault->gate);
    claim->call.passed_count = 0;
    umf_result_t result = claim_once(claim);
    umf_link_lock_end(&claim->vault->gate);
    for (unsigned i = 0; i < claim->call.passed_count; i++) {
        umf_os_close(claim->fds[i]);
    }
    *answer = claim->call.message;
    return result;
}

static umf_result_t claim_result(const claim_t *claim, const umf_vault_message_t *answer) {
    switch ((umf_vault_answer_t)answer->answer) {
    case UMF_VAULT_BUSY:
        return busy(claim->vault, claim->key, answer);
    case UMF_VAULT_NONE:
        return UMF_FAIL(UMF_REASON_ABSENT, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "%s of vault %s has no memory, and no size was asked for", claim->key,
                        claim->vault->link.name);
    case UMF_VAULT_DIFFERS:
        if (answer->words[1] && answer->words[1] != claim->kind) {
            return UMF_FAIL(UMF_REASON_IDENTITY, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                            "%s of vault %s is memory of %s: claim it with%s `devices`", claim->key,
                            claim->vault->link.name, is_of_device(claim) ? "the host" : "a device",
                            is_of_device(claim) ? "out" : "");
        }
        return UMF_FAIL(UMF_REASON_IDENTITY, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "%s of vault %s has %zu bytes, and %zu were asked for: forget it first, or "
                        "claim it with size 0",
                        claim->key, claim->vault->link.name,
                        umf_vault_claim_size(claim->kind, answer->words[0]), claim->params->size);
    case UMF_VAULT_BROKEN:
        return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "%s of vault %s has lost its memory and is broken: forget it", claim->key,
                        claim->vault->link.name);
    case UMF_VAULT_INVALID:
        return UMF_FAIL(UMF_REASON_NONE, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                        "%s of vault %s is held here %s: give it back first", claim->key,
                        claim->vault->link.name, claim->params->shared ? "alone" : "shared");
    default:
        return umf_link_result(&claim->vault->link, answer, claim->key);
    }
}

static umf_result_t claim_by(umf_vault_handle_t vault, const char *key,
                             const umf_vault_claim_params_t *params, uint64_t size,
                             umf_vault_claim_t *claimed) {
    claim_t *claim = umf_meta_alloc(sizeof(*claim));
    if (!claim) {
        return umf_vault_no_memory(ENOMEM, "a claim");
    }
    claim->vault = vault;
    claim->key = key;
    claim->params = params;
    claim->size = size;
    claim->files[0] = claim->files[1] = -1;
    uint64_t timeout = params->timeout_ms;
    if (params->fence == UMF_VAULT_FENCE_KILL && timeout < vault->link.timeout_ms) {
        timeout = vault->link.timeout_ms;
    }
    umf_vault_message_t answer;
    umf_result_t result = UMF_RESULT_SUCCESS;
    if (params->devices && size) {
        result = umf_vault_memory_begin(params->devices, (size_t)size, &claim->maker);
        claim->size = claim->maker.size;
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umf_vault_until(vault, claim_attempt, claim, UMF_VAULT_BUSY, timeout, &answer);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = claim_result(claim, &answer);
    }
    if (result == UMF_RESULT_SUCCESS) {
        *claimed = claim->made;
    }
    for (int i = 0; i < 2; i++) {
        if (claim->files[i] != -1) {
            umf_os_close(claim->files[i]);
        }
    }
    umf_vault_memory_end(&claim->maker);
    umf_meta_free(claim, sizeof(*claim));
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultClaim(umf_vault_handle_t hVault, const char *key,
                                           const umf_vault_claim_params_t *params,
                                           umf_vault_claim_t *claim) {
    static const umf_vault_claim_params_t by_default = UMF_VAULT_CLAIM_PARAMS_INIT;
    umf_result_t result = check(hVault, key, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    params = params ? params : &by_default;
    if (params->struct_size < sizeof(*params) || !claim || claim->struct_size < sizeof(*claim)) {
        UMF_LOG_ERROR("claim is NULL, or a struct_size is too small");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if ((unsigned)params->fence > UMF_VAULT_FENCE_KILL) {
        UMF_LOG_ERROR("%d is no fence", (int)params->fence);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    size_t page = umf_os_page_size();
    if (params->size > ((size_t)1 << 47)) {
        UMF_LOG_ERROR("%zu bytes are more than the addresses of a process", params->size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    uint64_t size = params->size ? ((params->size + page - 1) & ~(page - 1)) + page : 0;
    size = params->devices ? params->size : size;
    return claim_by(hVault, key, params, size, claim);
}

/* --- of a claim that is held ------------------------------------------------------------------ */

UMF_API_EXT_1_3 umf_result_t umfVaultClaimNote(umf_vault_handle_t hVault, const char *key,
                                               uint64_t epoch, const void *note, size_t size) {
    umf_result_t result = check(hVault, key, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    if (size > UMF_VAULT_NOTE_MAX || (size && !note)) {
        UMF_LOG_ERROR("the note of a claim has at most %u bytes, this one has %zu",
                      UMF_VAULT_NOTE_MAX, size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    char body[UMF_VAULT_NAME_MAX + 1 + UMF_VAULT_NOTE_MAX];
    size_t length = strlen(key) + 1;
    memcpy(body, key, length);
    if (size) {
        memcpy(body + length, note, size);
    }
    umf_link_call_t call = {.message = {.op = UMF_VAULT_NOTE, .words = {epoch}},
                            .body = body,
                            .body_size = (uint32_t)(length + size),
                            .is_bound = true};
    umf_link_lock_take(&hVault->gate);
    const umf_vault_held_t *held = *held_find(hVault, key);
    if (!held || held->epoch != hVault->link.epoch) {
        result = stale(hVault, key);
    } else {
        result = umf_link_call(&hVault->link, &call);
        if (result == UMF_RESULT_SUCCESS) {
            result = umf_link_result(&hVault->link, &call.message, key);
        }
    }
    umf_link_lock_end(&hVault->gate);
    return result;
}

/* The memory is unmapped before another client can have it. */
static umf_result_t held_give_back(umf_vault_handle_t vault, umf_vault_held_t **at) {
    char key[UMF_VAULT_NAME_MAX + 1];
    umf_vault_message_t answer;
    bool is_lost = (*at)->epoch != vault->link.epoch;
    memcpy(key, (*at)->key, sizeof(key));
    held_end(at);
    return is_lost ? UMF_RESULT_SUCCESS : ask(vault, UMF_VAULT_UNCLAIM, key, true, &answer);
}

UMF_API_EXT_1_3 umf_result_t umfVaultUnclaim(umf_vault_handle_t hVault, const char *key) {
    umf_result_t result = check(hVault, key, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_link_lock_take(&hVault->gate);
    umf_vault_held_t **at = held_find(hVault, key);
    if (!*at) {
        UMF_LOG_ERROR("%s of vault %s is not claimed by this handle", key, hVault->link.name);
        result = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    } else {
        result = umf_vault_memory_settle(&(*at)->memory);
        result = result ? result : held_give_back(hVault, at);
    }
    umf_link_lock_end(&hVault->gate);
    return result;
}

UMF_API_EXT_1_3 umf_result_t umfVaultForget(umf_vault_handle_t hVault, const char *key) {
    umf_result_t result = check(hVault, key, __func__);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_vault_message_t answer;
    umf_link_lock_take(&hVault->gate);
    umf_vault_held_t **at = held_find(hVault, key);
    result = *at ? umf_vault_memory_settle(&(*at)->memory) : UMF_RESULT_SUCCESS;
    if (result == UMF_RESULT_SUCCESS) {
        result = ask(hVault, UMF_VAULT_FORGET, key, false, &answer);
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = answer.answer == UMF_VAULT_BUSY ? busy(hVault, key, &answer)
                                                 : umf_link_result(&hVault->link, &answer, key);
    }
    if (result == UMF_RESULT_SUCCESS && *at) {
        held_end(at);
    }
    umf_link_lock_end(&hVault->gate);
    return result;
}

void umf_vault_claims_end(umf_vault_handle_t vault) {
    while (vault->held) {
        held_give_back(vault, &vault->held);
    }
}
