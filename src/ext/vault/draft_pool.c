/* The pools of a draft: their memory can be kept. */
#include <ctype.h>
#include <string.h>

#include <umf/text.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "ext/vault/draft.h"

/* Whether the provider in the text of a pool has settings: the last word "over" outside of quotes
 * is in front of it. */
static bool provider_has_settings(const char *text) {
    const char *provider = text;
    bool is_quoted = false;
    for (const char *at = text; *at; at++) {
        if (is_quoted && *at == '\\' && at[1]) {
            at++;
        } else if (*at == '"') {
            is_quoted = !is_quoted;
        } else if (!is_quoted && at > text && isspace((unsigned char)at[-1]) &&
                   strncmp(at, "over", 4) == 0 && isspace((unsigned char)at[4])) {
            provider = at + 4;
        }
    }
    return strchr(provider, ':') != NULL;
}

/* The setting that the provider of a pool needs, so that its memory can be kept. NULL: it cannot.
 */
static const char *setting_of(umf_memory_pool_handle_t pool, const char *text) {
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    if (!pool->tracked || !ext->vm_find || !ext->vm_claim || !ext->vm_give || !ext->vm_take) {
        return NULL;
    }
    if (ext->vm_device) {
        return strstr(text, "share=") ? "" : "share=fd";
    }
    return "seal=later";
}

/* The pool of the text, over memory that can be kept. */
static umf_result_t pool_make(const char *text, umf_memory_pool_handle_t *pool) {
    umf_memory_pool_handle_t
        plain; /* it reports the abilities of the provider, and keeps its device ready */
    umf_result_t result = umfPoolCreateFromText(text, &plain);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    const char *setting = setting_of(plain, text);
    size_t size = strlen(text) + sizeof(":seal=later");
    char *changed = setting ? umf_meta_alloc(size) : NULL;
    if (!setting) {
        UMF_LOG_ERROR("'%s': a vault cannot keep memory of this pool: its provider hands no "
                      "descriptors of memory over, as linux_vmm and cuda_vmm do",
                      text);
        result = UMF_RESULT_ERROR_NOT_SUPPORTED;
    } else if (!changed) {
        UMF_LOG_ERROR("no memory for the text of a pool");
        result = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    } else {
        char mark = provider_has_settings(text) ? ',' : ':';
        snprintf(changed, size, "%s%.*s%s", text, *setting ? 1 : 0, &mark, setting);
        result = umfPoolCreateFromText(changed, pool);
    }
    umf_meta_free(changed, changed ? size : 0);
    umfPoolDestroy(plain);
    return result;
}

/* Whose memory the pool has. */
static umf_result_t pool_place(umf_vault_draft_handle_t draft, umf_memory_pool_handle_t pool,
                               umf_vault_kind_t *kind,
                               unsigned char device[UMF_VAULT_DEVICE_SIZE]) {
    const umf_memory_provider_ext_ops_t *ext = pool->provider->ext;
    int number;
    *kind = UMF_VAULT_KIND_HOST;
    memset(device, 0, UMF_VAULT_DEVICE_SIZE);
    if (!ext->vm_device) {
        return UMF_RESULT_SUCCESS;
    }
    if (draft->vault->is_folder) {
        return UMF_FAIL(UMF_REASON_UNSUPPORTED, UMF_RESULT_ERROR_NOT_SUPPORTED,
                        "%s: a folder keeps memory of the host only", draft->vault->link.name);
    }
    *kind = UMF_VAULT_KIND_DEVICE;
    return ext->vm_device(pool->provider->self, device, &number);
}

UMF_API_EXT_1_3 umf_result_t umfVaultDraftPool(umf_vault_draft_handle_t hDraft, const char *text,
                                               umf_memory_pool_handle_t *hPool) {
    if (!umf_vault_draft_check(hDraft, __func__)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!text || !hPool) {
        UMF_LOG_ERROR("text or hPool is NULL");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (hDraft->pool_count == UMF_VAULT_POOLS_MAX) {
        UMF_LOG_ERROR("a draft has at most %d pools", UMF_VAULT_POOLS_MAX);
        return UMF_RESULT_ERROR_OUT_OF_RESOURCES;
    }
    umf_memory_pool_handle_t pool;
    umf_result_t result = pool_make(text, &pool);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    unsigned place = hDraft->pool_count;
    result = pool_place(hDraft, pool, &hDraft->kinds[place], hDraft->devices[place]);
    if (result != UMF_RESULT_SUCCESS) {
        umfPoolDestroy(pool);
        return result;
    }
    hDraft->pools[hDraft->pool_count++] = pool;
    *hPool = pool;
    return UMF_RESULT_SUCCESS;
}
