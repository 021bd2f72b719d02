/* Access to memory. */
#include "providers/shared/protection.h"

#include <sys/mman.h>

#include "base/log.h"

#define PROTECTION_ALL                                                                             \
    ((unsigned)(UMF_PROTECTION_NONE | UMF_PROTECTION_READ | UMF_PROTECTION_WRITE |                 \
                UMF_PROTECTION_EXEC))

bool umf_protection_is_valid(unsigned protection) {
    return (protection & ~PROTECTION_ALL) == 0;
}

int umf_protection_bits(unsigned protection) {
    return (protection & UMF_PROTECTION_READ ? PROT_READ : 0) |
           (protection & UMF_PROTECTION_WRITE ? PROT_WRITE : 0) |
           (protection & UMF_PROTECTION_EXEC ? PROT_EXEC : 0);
}

umf_result_t umf_access_check(unsigned protection, umf_memory_visibility_t visibility) {
    if (!umf_protection_is_valid(protection)) {
        UMF_LOG_ERROR("protection %#x has bits that are no umf_mem_protection_flag_t", protection);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (visibility != UMF_MEM_MAP_PRIVATE && visibility != UMF_MEM_MAP_SHARED) {
        UMF_LOG_ERROR("visibility %d is neither UMF_MEM_MAP_PRIVATE nor UMF_MEM_MAP_SHARED",
                      (int)visibility);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

bool umf_access_can_share(bool is_shared) {
    if (!is_shared) {
        UMF_LOG_ERROR(
            "private memory cannot be shared with other processes: create the provider with "
            "visibility UMF_MEM_MAP_SHARED");
    }
    return is_shared;
}

const umf_field_word_t umf_protection_words[] = {
    {"none", UMF_PROTECTION_NONE},
    {"read", UMF_PROTECTION_READ},
    {"write", UMF_PROTECTION_WRITE},
    {"exec", UMF_PROTECTION_EXEC},
    {NULL, 0},
};

const umf_field_word_t umf_visibility_words[] = {
    {"private", UMF_MEM_MAP_PRIVATE},
    {"shared", UMF_MEM_MAP_SHARED},
    {NULL, 0},
};
