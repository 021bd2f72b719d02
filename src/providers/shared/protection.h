/* Protection and visibility of memory: the public flags, as the system and as texts have them. */
#ifndef UMF_SRC_PROVIDERS_SHARED_PROTECTION_H
#define UMF_SRC_PROVIDERS_SHARED_PROTECTION_H

#include <umf/memory_provider.h>

#include "ctl/field.h"

/* Whether all bits are flags of umf_mem_protection_flag_t. 0 means no access. */
bool umf_protection_is_valid(unsigned protection);
/* The flags as mmap takes them. */
int umf_protection_bits(unsigned protection);

/* Checks the parameters of a new provider. INVALID_ARGUMENT, logged, if either has no
 * valid value. */
umf_result_t umf_access_check(unsigned protection, umf_memory_visibility_t visibility);

/* Whether other processes can open the memory of a provider. Logs if not. */
bool umf_access_can_share(bool is_shared);

/* The words of these flags in texts. */
extern const umf_field_word_t umf_protection_words[];
extern const umf_field_word_t umf_visibility_words[];

#endif
