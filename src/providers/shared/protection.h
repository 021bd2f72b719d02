/* How memory may be accessed, and by whom: the public flags as the system and as texts have them.
 */
#ifndef UMF_SRC_PROVIDERS_SHARED_PROTECTION_H
#define UMF_SRC_PROVIDERS_SHARED_PROTECTION_H

#include <umf/memory_provider.h>

#include "ctl/field.h"

/* Whether all bits are those of umf_mem_protection_flag_t; 0 is no access. */
bool umf_protection_is_valid(unsigned protection);
/* The flags as mmap has them. */
int umf_protection_bits(unsigned protection);

/* Of a provider to be: INVALID_ARGUMENT, logged, if either is no value of its type. */
umf_result_t umf_access_check(unsigned protection, umf_memory_visibility_t visibility);

/* Whether memory of a provider can be given to other processes; logs if not. */
bool umf_access_can_share(bool is_shared);

/* For the fields of a kind. */
extern const umf_field_word_t umf_protection_words[];
extern const umf_field_word_t umf_visibility_words[];

#endif
