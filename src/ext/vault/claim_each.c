/* The claims of a vault. */
#include <sys/mman.h>

#include "base/log.h"
#include "ext/vault/claim.h"

size_t umf_vault_claim_size(uint32_t kind, uint64_t size) {
    size_t page = kind == UMF_VAULT_KIND_DEVICE ? 0 : umf_os_page_size();
    return size > page ? (size_t)size - page : 0;
}

void umf_vault_claims_in_child(umf_link_t *link) {
    const struct umf_vault_t *vault = (const struct umf_vault_t *)link;
    size_t page = umf_os_page_size();
    for (const umf_vault_held_t *held = vault->held; held; held = held->next) {
        /* Not mapped here (MADV_DONTFORK). Where another handler of the fork has mapped something
         * meanwhile, that stays. */
        void *word = umf_vault_held_word(held), *at = word;
        if (umf_os_map(&at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
                       0) == 0 &&
            at != word) { /* a kernel without the flag */
            umf_os_unmap(at, page);
        }
    }
}

UMF_API_EXT_1_3 umf_result_t umfVaultEachClaim(umf_vault_handle_t hVault,
                                               umf_vault_claim_visitor_t visitor, void *arg) {
    union {
        umf_vault_claim_message_t info;
        char room[UMF_VAULT_BODY_MAX + 1];
    } body;
    if (!umf_vault_check(hVault, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!visitor) {
        UMF_LOG_ERROR("visitor is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    for (uint64_t next = 0; !hVault->is_folder;) {
        umf_link_call_t call = {.message = {.op = UMF_VAULT_CLAIMS, .words = {next}},
                                .answer = &body};
        umf_result_t result = umf_vault_ask(hVault, &call);
        if (result != UMF_RESULT_SUCCESS || call.message.words[0] <= next ||
            call.message.body <= sizeof(body.info)) {
            return result;
        }
        next = call.message.words[0];
        body.room[call.message.body] = 0;
        umf_vault_claim_stat_t stat = {.struct_size = sizeof(stat),
                                       .key = body.room + sizeof(body.info),
                                       .size = umf_vault_claim_size(body.info.kind, body.info.size),
                                       .note_size = body.info.note_size,
                                       .epoch = body.info.epoch,
                                       .holders = body.info.holders,
                                       .process = body.info.pid,
                                       .shared = body.info.is_shared != 0};
        if (body.info.kind == UMF_VAULT_KIND_DEVICE) {
            umf_vault_device_text(body.info.device, stat.device);
        }
        if (visitor(&stat, arg) != 0) {
            return UMF_RESULT_ERROR_USER_SPECIFIC;
        }
    }
    return UMF_RESULT_SUCCESS;
}
