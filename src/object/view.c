/*
 * The view: where an outside reader finds the figures of this process (umf/view_format.h). It is
 * data only: nothing runs in the process for it, and nothing is kept up to date for it.
 */
#include <stddef.h>

#include <umf/view_format.h>

#include "ds/range.h"
#include "object/object.h"

#define AT(type, member) ((uint32_t)offsetof(struct type, member))

_Static_assert(offsetof(umf_memory_pool_descriptor_t, name) ==
                   offsetof(umf_memory_provider_descriptor_t, name),
               "one offset for both");

_Atomic(umf_memory_pool_handle_t) umf_pool_table[(size_t)1 << UMF_MAP_ENTRY_POOL_BITS];
_Atomic uint32_t umf_pool_highest;

/* The note names it. */
extern const umf_view_t umf_view;
__attribute__((used)) UMF_HIDDEN const umf_view_t umf_view = {
    .magic = UMF_VIEW_MAGIC,
    .version = UMF_VIEW_VERSION,
    .size = sizeof(umf_view_t),
    .self = &umf_view,
    .pools = umf_pool_table,
    .highest = &umf_pool_highest,
    .spans = &umf_span_table,
    .span_made = &umf_span_made,
    .range = umf_range_view,

    .pool_size = sizeof(struct umf_memory_pool_t),
    .pool_index = AT(umf_memory_pool_t, index),
    .pool_birth = AT(umf_memory_pool_t, birth),
    .pool_self = AT(umf_memory_pool_t, self),
    .pool_fast = AT(umf_memory_pool_t, fast),
    .pool_kind = AT(umf_memory_pool_t, kind),
    .pool_tracked = AT(umf_memory_pool_t, tracked),
    .pool_provider = AT(umf_memory_pool_t, provider),
    .pool_name = AT(umf_memory_pool_t, named.name),
    .pool_asleep = AT(umf_memory_pool_t, layers[UMF_LAYER_SUSPEND]),
    .fast_view = AT(umf_pool_fast_ops_t, view),

    .provider_size = sizeof(struct umf_memory_provider_t),
    .provider_birth = AT(umf_memory_provider_t, birth),
    .provider_root = AT(umf_memory_provider_t, root),
    .provider_kind = AT(umf_memory_provider_t, kind),
    .provider_name = AT(umf_memory_provider_t, name),
    .tracked_set = AT(umf_memory_provider_t, spans),
    .tracked_inner = AT(umf_memory_provider_t, inner),
    .tracked_next = AT(umf_memory_provider_t, next),
    .tracked_refusals = AT(umf_memory_provider_t, refusals),
    .descriptor_name = AT(umf_memory_pool_descriptor_t, name),

    .name_size = UMF_NAMES_LENGTH + 1,
    .span_size = sizeof(umf_span_t),
    .span_bytes = AT(umf_span_t, size),
    .span_set = AT(umf_span_t, set),
    .span_cookie = AT(umf_span_t, cookie),
    .span_kind = AT(umf_span_t, kind),
};

#define TEXT_(word) #word
#define TEXT(word) TEXT_(word)
__asm__(".pushsection .note.umf, \"a\", %note\n"
        ".balign 4\n"
        ".long 4, 4, " TEXT(UMF_VIEW_NOTE_TYPE) "\n"
                                                ".asciz \"" UMF_VIEW_NOTE "\"\n"
                                                "umf_view_note_content:\n"
                                                ".long umf_view - umf_view_note_content\n"
                                                ".popsection\n");
