/* Claims memory of a vault, and leaves it behind: claim_sample <vault> <key> */
#include <umf/vault.h>

int main(int count, char **words) {
    umf_vault_handle_t vault;
    umf_vault_claim_t claim = UMF_VAULT_CLAIM_INIT;
    umf_vault_claim_params_t params = UMF_VAULT_CLAIM_PARAMS_INIT;
    params.size = 1;
    params.timeout_ms = 60000; /* the former one may be ending */
    return count != 3 || umfVaultOpen(words[1], NULL, &vault) != UMF_RESULT_SUCCESS ||
           umfVaultClaim(vault, words[2], &params, &claim) != UMF_RESULT_SUCCESS ||
           umfVaultClose(vault) != UMF_RESULT_SUCCESS;
}
