/* Content of a view against the sums of its commit. */
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "ext/vault/device.h"

static bool has_digest(const umf_table_t *table, uint32_t i) {
    return table->digests && table->digests[i];
}

static umf_result_t entry_verify(umf_vault_view_handle_t view, uint32_t i) {
    const umf_table_t *table = &view->table;
    uint64_t digest;
    umf_result_t result = umf_vault_view_digest(view, i, &digest);
    if (result != UMF_RESULT_SUCCESS || digest == table->digests[i]) {
        return result;
    }
    return UMF_FAIL(UMF_REASON_BROKEN, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                    "entry %s of generation %llu of vault %s has other content than at its commit: "
                    "drop the generation",
                    umf_table_key(table, i), (unsigned long long)view->generation,
                    view->vault->link.name);
}

static umf_result_t no_digest(umf_vault_view_handle_t view, const char *key) {
    return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                    "%s of generation %llu of vault %s has no sum: its commit did not ask for one",
                    key, (unsigned long long)view->generation, view->vault->link.name);
}

UMF_API_EXT_1_3 umf_result_t umfVaultVerify(umf_vault_view_handle_t hView, const char *key) {
    if (!umf_vault_view_check(hView, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    const umf_table_t *table = &hView->table;
    if (key) {
        uint32_t i = umf_table_find(table, key, strlen(key));
        if (i == UINT32_MAX) {
            return UMF_FAIL(UMF_REASON_ABSENT, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                            "generation %llu of vault %s has no entry %s",
                            (unsigned long long)hView->generation, hView->vault->link.name, key);
        }
        return has_digest(table, i) ? entry_verify(hView, i) : no_digest(hView, key);
    }
    umf_result_t result = UMF_RESULT_SUCCESS;
    bool has_one = false;
    for (uint32_t i = 0; i < table->head->entries && result == UMF_RESULT_SUCCESS; i++) {
        if (has_digest(table, i)) {
            has_one = true;
            result = entry_verify(hView, i);
        }
    }
    return has_one ? result : no_digest(hView, "each entry");
}
