/* Access to memory. */
#include "providers/shared/protection.h"

#include <sys/mman.h>

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
