/* Kinds of providers. */
#include "providers/shared/kind.h"

#include "base/log.h"
#include "base/meta.h"

void *umf_provider_state_new(size_t size) {
    void *state = umf_meta_alloc(size);
    if (!state) {
        UMF_LOG_ERROR("no memory for a provider");
    }
    return state;
}
