/** @file
 * The places of the figures of a process in its memory, for a program that reads them from outside
 * with `process_vm_readv`: `umfctl top` of a process that has no attach socket. The process takes
 * no part in it. The kernel decides which process may read, as for a debugger.
 *
 * The object with the library has an ELF note, named ::UMF_VIEW_NOTE, of type ::UMF_VIEW_NOTE_TYPE.
 * Its content is 32 bits, the signed distance from the content to a ::umf_view_t in the same
 * object. So the table is found in the memory of the process alone, wherever the object's file is,
 * and also if the library is a part of the program. A table of another version is not read.
 *
 * All addresses are those of the process. Offsets are bytes from the beginning of the structure. A
 * reader believes nothing: the process may have written anything there, and changes it while it is
 * read.
 */
#ifndef UMF_VIEW_FORMAT_H
#define UMF_VIEW_FORMAT_H 1

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief The name of the note, with its zero.
#define UMF_VIEW_NOTE "UMF"
/// @brief The type of the note.
#define UMF_VIEW_NOTE_TYPE 0x56
/// @brief The first member of the table.
#define UMF_VIEW_MAGIC UINT64_C(0x0a57454956464d55)
/// @brief The version of the table that this header describes.
#define UMF_VIEW_VERSION 3u

/// @brief How the live bytes of a pool follow from its structures.
typedef enum umf_view_how_t {
    /// They do not.
    UMF_VIEW_UNKNOWN = 0,
    /// Each span is one block; it is free if it is dormant.
    UMF_VIEW_BLOCKS = 1,
    /// The cookie of a span is a slab (::umf_view_slab_t), or 0: the span is one live block.
    UMF_VIEW_SLABS = 2,
    /// The pool has shards with a range each (::umf_view_shards_t).
    UMF_VIEW_SHARDS = 3,
    /// The cookie of a span leads to a record for each page of 4 KiB (::umf_view_pages_t).
    UMF_VIEW_PAGES = 4,
    /// The pool's own structure has sums (::umf_view_sums_t). Its spans are addresses, of which
    /// only
    /// a part has memory.
    UMF_VIEW_SUMS = 5
} umf_view_how_t;

/// @brief Offsets of ::UMF_VIEW_SLABS. Chunk i is used if bit i % 64 of the word i / 64 is clear;
/// the words are in front of the slab, the first one directly. A used chunk is live if the bin has
/// no states, if its offset is not 0, or if its state is `live`.
typedef struct umf_view_slab_t {
    uint32_t size;     ///< Of a slab; the states follow at once.
    uint32_t bin;      ///< Address of the bin.
    uint32_t span;     ///< 32 bits: the index of the slab's span.
    uint32_t offsets;  ///< Address of 32 bits for each chunk; 0: there are none.
    uint32_t bin_size; ///< Of a bin.
    uint32_t chunks;   ///< In the bin, 32 bits: chunks of a slab.
    uint32_t chunk;    ///< In the bin, 64 bits: bytes of a chunk.
    uint32_t stride;   ///< In the bin, 64 bits: distance of two states; 0: there are none.
    uint32_t live;     ///< The state of a live chunk.
} umf_view_slab_t;

/// @brief Offsets of ::UMF_VIEW_SHARDS. Live segments are used and not reserved. Small blocks that
/// threads keep count as live.
typedef struct umf_view_shards_t {
    uint32_t shards; ///< In the pool's own structure: addresses of shards; 0 ends them.
    uint32_t most;   ///< There are no more than so many.
    uint32_t range;  ///< In a shard: address of the range.
    uint32_t live;   ///< In a shard, 64 bits: used segments.
} umf_view_shards_t;

/// @brief Offsets of ::UMF_VIEW_PAGES. A page with `own` begins a live block of so many pages.
/// Else, with a kind, objects start in it: the first one (step - bias) % step bytes after its
/// beginning, then one for each step. The state of an object is the byte (offset + bias) / step of
/// the states.
typedef struct umf_view_pages_t {
    uint32_t records; ///< From where the cookie points to the records.
    uint32_t
        shift; ///< From there, 8 bits: 63 if the span is one block; ::UMF_VIEW_NONE: it never is.
    uint32_t direct;      ///< From there, 8 bits: the state of that block.
    uint32_t record_size; ///< Bytes.
    uint32_t states;      ///< In a record: address of the states.
    uint32_t own;         ///< In a record, 32 bits; ::UMF_VIEW_NONE: there are no such blocks.
    uint32_t bias;        ///< In a record, 16 bits.
    uint32_t kind; ///< In a record, 8 bits: the index of the size and 1; 0: no object starts in the
                   ///< page.
    uint32_t kinds;    ///< Objects of a higher kind have a size of their own, which is not known.
    uint32_t live;     ///< The state of a live object.
    const void *sizes; ///< 32 bits for each kind, from the first one.
    const void *steps; ///< 32 bits for each kind and one in front.
} umf_view_pages_t;

/// @brief Offsets of ::UMF_VIEW_SUMS, of 64 bits each in the pool's own structure: bytes, but for
/// `blocks`.
typedef struct umf_view_sums_t {
    uint32_t held;   ///< Of pages.
    uint32_t live;   ///< Of live blocks.
    uint32_t blocks; ///< Live blocks.
    uint32_t spare;  ///< Of pages that are mapped nowhere.
    uint32_t stale;  ///< Of addresses that are mapped although their page is elsewhere, too.
    uint32_t moved;  ///< Of pages that were mapped elsewhere, so far.
} umf_view_sums_t;

/// @brief The offset of an absent field.
#define UMF_VIEW_NONE 0xffffffffu

/// @brief Offsets in ranges.
typedef struct umf_view_range_t {
    uint32_t used;          ///< 64 bits: bytes of used segments.
    uint32_t claimed;       ///< Address of the first segment that may be reserved.
    uint32_t segment_bytes; ///< In a segment, 64 bits: its bytes.
    uint32_t segment_next;  ///< In a segment: address of the next one.
    uint32_t generation;    ///< In a segment, 32 bits: odd if it is reserved.
} umf_view_range_t;

/// @brief A kind of pool.
typedef struct umf_view_kind_t {
    char name[16]; ///< With a zero at its end.
    uint32_t how;  ///< ::umf_view_how_t.
    /// By `how`.
    union {
        umf_view_slab_t slab;     ///< Of ::UMF_VIEW_SLABS.
        umf_view_shards_t shards; ///< Of ::UMF_VIEW_SHARDS.
        umf_view_pages_t pages;   ///< Of ::UMF_VIEW_PAGES.
        umf_view_sums_t sums;     ///< Of ::UMF_VIEW_SUMS.
    };
} umf_view_kind_t;

/// @brief The table.
typedef struct umf_view_t {
    uint64_t magic;        ///< ::UMF_VIEW_MAGIC.
    uint32_t version;      ///< ::UMF_VIEW_VERSION.
    uint32_t size;         ///< Of the table.
    const void *self;      ///< Where the table is.
    const void *pools;     ///< Addresses of pools by index, from 1; 0: there is none.
    const void *highest;   ///< 32 bits: the highest index so far.
    const void *spans;     ///< The address of the spans by index, from 1.
    const void *span_made; ///< 32 bits: the highest index so far.
    const void *range;     ///< A ::umf_view_range_t.

    /// @name In a pool
    /// @{
    uint32_t pool_size;     ///< Bytes.
    uint32_t pool_index;    ///< 32 bits.
    uint32_t pool_birth;    ///< 32 bits: the number of its creation.
    uint32_t pool_self;     ///< Address of the pool's own structure.
    uint32_t pool_fast;     ///< Address of a table of functions of a kind of the library; or 0.
    uint32_t pool_kind;     ///< Address of the descriptor of another kind; or 0.
    uint32_t pool_tracked;  ///< Address of the tracked provider; or 0: nothing is recorded.
    uint32_t pool_provider; ///< Address of a provider.
    uint32_t pool_name;     ///< Text with a zero at its end.
    uint32_t pool_asleep;   ///< 64 bits: not 0 if its memory may be away.
    /// @}
    uint32_t fast_view; ///< In the table of functions: address of a ::umf_view_kind_t; or 0.

    /// @name In a provider
    /// @{
    uint32_t provider_size;    ///< Bytes.
    uint32_t provider_birth;   ///< 32 bits: the number of its creation.
    uint32_t provider_root;    ///< Address of the provider itself, of a tracked one that of the
                               ///< provider below.
    uint32_t provider_kind;    ///< Address of the descriptor; or 0.
    uint32_t provider_name;    ///< Text with a zero at its end.
    uint32_t tracked_set;      ///< Of a tracked one: its set of spans, whose address spans have.
    uint32_t tracked_inner;    ///< Address of the first tracked one that records for it.
    uint32_t tracked_next;     ///< Address of the next one.
    uint32_t tracked_refusals; ///< Of a tracked one, 64 bits: requests that failed.
    /// @}
    uint32_t descriptor_name; ///< In both descriptors: address of text.

    uint32_t name_size;   ///< Of names, with the zero.
    uint32_t span_size;   ///< Bytes of a span.
    uint32_t span_bytes;  ///< In a span, 64 bits.
    uint32_t span_set;    ///< In a span: address of the set.
    uint32_t span_cookie; ///< In a span: 64 bits.
    uint32_t span_kind;   ///< In a span, 8 bits: 1 in use, 3 dormant; others belong to no pool.
} umf_view_t;

#ifdef __cplusplus
}
#endif

#endif
