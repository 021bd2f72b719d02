/** @file
 * The format of recordings and snapshots (umf/record.h), for programs that read them.
 *
 * A file is a header, a table of sections, and the sections. Every number is little-endian. The
 * writer may be alive and write on, or may have died: a reader trusts no offset, count or index
 * before it has compared it with the size of its section. docs/recording.md says more.
 */
#ifndef UMF_RECORD_FORMAT_H
#define UMF_RECORD_FORMAT_H 1

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// @brief The first eight bytes.
#define UMF_RECORD_MAGIC "UMFREC\r\n"
/// @brief The version of the format that this header describes. A reader refuses others.
#define UMF_RECORD_VERSION 1u

/// @brief Kind of a file.
typedef enum umf_record_file_kind_t {
    /// Events, of a writer that may still be at work.
    UMF_RECORD_FILE_RECORDING = 1,
    /// The state at one moment; complete when it can be opened.
    UMF_RECORD_FILE_SNAPSHOT = 2
} umf_record_file_kind_t;

/// @brief A section: items of one size, one after the other. In the header by its number.
typedef enum umf_record_section_kind_t {
    /// ::umf_record_object_t: pools and providers. The item with index i has the number i; item 0
    /// is not used.
    UMF_RECORD_OBJECTS = 0,
    /// char: texts with a zero at their end, at byte offsets. Offset 0 is the empty text.
    UMF_RECORD_TEXTS = 1,
    /// ::umf_record_module_t: code that is mapped for execution, to resolve stacks.
    UMF_RECORD_MODULES = 2,
    /// uint64_t: stacks, each a number of frames (1 to ::UMF_RECORD_FRAMES) and then as many return
    /// addresses, the innermost first. A stack is named by the index of its first item; 0: none.
    UMF_RECORD_STACKS = 3,
    /// ::umf_record_event_t of kind ::UMF_RECORD_ALLOC: a table of live allocations, in no order.
    /// Items with address 0 are not in use.
    UMF_RECORD_LIVE = 4,
    /// ::umf_record_block_t: blocks of events.
    UMF_RECORD_BLOCKS = 5,
    /// ::umf_record_span_t: memory that pools have from their providers (snapshots).
    UMF_RECORD_SPANS = 6,
    /// ::umf_record_run_t: blocks of the spans (snapshots).
    UMF_RECORD_RUNS = 7,
    /// The number of kinds.
    UMF_RECORD_SECTIONS = 8
} umf_record_section_kind_t;

/// @brief Where a section is.
typedef struct umf_record_section_t {
    /// Byte offset in the file, a multiple of 64; 0: the file does not have it.
    uint64_t offset;
    /// Items that have room.
    uint64_t capacity;
    /// Items that are filled, or that were needed if it is more than `capacity`. A writer that is
    /// alive increases it after it has filled an item.
    uint64_t count;
    /// Bytes of an item.
    uint32_t item_size;
    /// 0.
    uint32_t reserved;
} umf_record_section_t;

/// @brief Parts of a recording; bits of umf_record_header_t::flags.
typedef enum umf_record_flag_t {
    /// Stacks.
    UMF_RECORD_HAS_STACKS = 1,
    /// The section ::UMF_RECORD_LIVE.
    UMF_RECORD_HAS_LIVE = 2,
    /// It has ended in an orderly way.
    UMF_RECORD_HAS_ENDED = 4,
    /// Memory that lived before the recording began, as blocks of ::UMF_RECORD_THREAD_OLDER.
    UMF_RECORD_HAS_OLDER = 8
} umf_record_flag_t;

/// @brief The header, at the beginning of the file.
typedef struct umf_record_header_t {
    /// ::UMF_RECORD_MAGIC, without the zero at its end.
    char magic[8];
    /// ::UMF_RECORD_VERSION.
    uint32_t version;
    /// ::umf_record_file_kind_t.
    uint32_t kind;
    /// Bytes of the file.
    uint64_t file_size;
    /// ::umf_record_flag_t.
    uint32_t flags;
    /// The process.
    uint32_t pid;
    /// Two readings of the clock of events. The first of the start, the second of the last time a
    /// block was begun, or of the end. Between them and after them time is linear.
    uint64_t ticks[2];
    /// CLOCK_MONOTONIC at the two readings, in ns.
    uint64_t ns[2];
    /// Ticks in a second, as estimated at the start; used while the second reading is less than
    /// 1 ms after the first.
    uint64_t ticks_per_second;
    /// CLOCK_REALTIME at the start, in ns.
    uint64_t realtime;
    /// Events that were overwritten, or found no room.
    uint64_t dropped;
    /// Allocations that found no room in ::UMF_RECORD_LIVE.
    uint64_t live_dropped;
    /// One allocation of so many is recorded; 1: all.
    uint64_t rate;
    /// The smallest size that is recorded.
    uint64_t min_size;
    /// The largest; 0: no limit.
    uint64_t max_size;
    /// Allocations that lived when their pool was destroyed, and whose place in ::UMF_RECORD_LIVE
    /// another one has taken since. The others of destroyed pools are still in the section.
    uint64_t ended_count;
    /// Their bytes.
    uint64_t ended_bytes;
    /// Byte offset of ::umf_record_names_t after the sections, a multiple of 64; 0: there is none.
    /// A program that looked at the file has added it, such as `umfctl names`.
    uint64_t names;
    /// 0.
    uint64_t reserved;
    /// The sections by ::umf_record_section_kind_t.
    umf_record_section_t sections[UMF_RECORD_SECTIONS];
} umf_record_header_t;

/// @brief Kind of an object.
typedef enum umf_record_object_kind_t {
    /// A pool; its parent is its provider.
    UMF_RECORD_OBJECT_POOL = 1,
    /// A provider.
    UMF_RECORD_OBJECT_PROVIDER = 2
} umf_record_object_kind_t;

/// @brief State of an object; bits of umf_record_object_t::flags.
typedef enum umf_record_object_flag_t {
    /// It was destroyed.
    UMF_RECORD_OBJECT_IS_GONE = 1,
    /// A pool that is suspended.
    UMF_RECORD_OBJECT_IS_ASLEEP = 2
} umf_record_object_flag_t;

/// @brief A number that is not known.
#define UMF_RECORD_UNKNOWN UINT64_MAX

/// @brief A pool or a provider. The figures are of a snapshot, in bytes but for `live_count`, and
/// ::UMF_RECORD_UNKNOWN where the object does not report it.
typedef struct umf_record_object_t {
    /// ::umf_record_object_kind_t; 0: the item is not used.
    uint32_t kind;
    /// ::umf_record_object_flag_t.
    uint32_t flags;
    /// Number of its provider; 0: none.
    uint32_t parent;
    /// The number of its creation in the process, which distinguishes it from earlier and later
    /// objects with its handle; 0: the writer did not say.
    uint32_t birth;
    /// Its handle in the process.
    uint64_t handle;
    /// In use by the program.
    uint64_t live;
    /// Allocations in use.
    uint64_t live_count;
    /// A pool: memory that it has from its provider. A provider: memory allocated from it.
    uint64_t held;
    /// The most of `held` so far.
    uint64_t peak;
    /// Of `held`, without physical memory because the pool is suspended.
    uint64_t away;
    /// Allocations since it was created; 0 if it does not count.
    uint64_t allocs;
    /// Frees likewise.
    uint64_t frees;
    /// The kind, or the name that a user gave it, with a zero at its end.
    char name[48];
} umf_record_object_t;

/// @brief Mapped code.
typedef struct umf_record_module_t {
    /// First address.
    uint64_t base;
    /// Bytes.
    uint64_t size;
    /// Offset of the first byte in its file.
    uint64_t file_offset;
    /// Path: offset in ::UMF_RECORD_TEXTS.
    uint64_t path;
    /// The first bytes of its build id, zero after its end; all 0: none.
    uint8_t build_id[32];
} umf_record_module_t;

/// @brief Kind of an event. Kinds are added without a new version: a reader leaves out events of
/// kinds that it does not know. Kinds from ::UMF_RECORD_PAGE_CREATE on are of arenas: pools over a
/// range of addresses, whose pages of physical memory move.
typedef enum umf_record_event_kind_t {
    /// A pool allocated `size` bytes, the requested size, at `address`.
    UMF_RECORD_ALLOC = 1,
    /// A pool was given `address` back. Recorded before, so that no other thread has it yet.
    UMF_RECORD_FREE = 2,
    /// The free before this, of the same thread and address, was refused: the object lives on, or
    /// there was none.
    UMF_RECORD_FREE_REFUSED = 3,
    /// A pool found no memory for `size` bytes; `address` is the number of bytes that it holds from
    /// its provider.
    UMF_RECORD_REFUSED = 4,
    /// A provider allocated `size` bytes at `address`; the object is the pool that made the
    /// request, or the provider if the program did.
    UMF_RECORD_PROVIDER_ALLOC = 5,
    /// A provider was given `size` bytes at `address` back.
    UMF_RECORD_PROVIDER_FREE = 6,
    /// A provider refused `size` bytes.
    UMF_RECORD_PROVIDER_REFUSED = 7,
    /// A pool was trimmed; `address` is the number of bytes held before, `size` after.
    UMF_RECORD_TRIM = 8,
    /// A pool was suspended; `size` bytes were released.
    UMF_RECORD_SUSPEND = 9,
    /// A pool woke up; `size` bytes came back.
    UMF_RECORD_RESUME = 10,
    /// Shared memory of another process, `size` bytes, was opened at `address`.
    UMF_RECORD_OPEN = 11,
    /// It was closed.
    UMF_RECORD_CLOSE = 12,
    /// An object was created.
    UMF_RECORD_CREATE = 13,
    /// An object was destroyed.
    UMF_RECORD_DESTROY = 14,
    /// A mark of the program; `address` is the offset of its name in ::UMF_RECORD_TEXTS.
    UMF_RECORD_MARK = 15,
    /// An arena made a page of `size` bytes, which is spare: mapped nowhere. A page that is mapped
    /// is a ::UMF_RECORD_PROVIDER_ALLOC, one that leaves its place a ::UMF_RECORD_PROVIDER_FREE.
    UMF_RECORD_PAGE_CREATE = 16,
    /// A page of `size` bytes was destroyed.
    UMF_RECORD_PAGE_DESTROY = 17,
    /// Free pages at `address`, `size` bytes, were donated: they are spare until they are mapped
    /// elsewhere, and their old addresses are stale, because queued work may still use them.
    UMF_RECORD_PAGE_DONATE = 18,
    /// Free pages at `address`, `size` bytes, are to be destroyed: until queued work has completed
    /// their addresses are stale.
    UMF_RECORD_PAGE_RETIRE = 19,
    /// `size` bytes of stale addresses at `address` were unmapped.
    UMF_RECORD_PAGE_UNMAP = 20,
    /// The sums of an arena have changed, or its recording begins; followed by
    /// ::UMF_RECORD_PAGES_MOVED. `address` is the number of bytes of its pages, `size` of those
    /// that
    /// are spare.
    UMF_RECORD_PAGES = 21,
    /// `address` is the number of bytes of stale addresses, `size` of all pages that were donated
    /// since the pool was created.
    UMF_RECORD_PAGES_MOVED = 22
} umf_record_event_kind_t;

/// @brief An event.
typedef struct umf_record_event_t {
    /// When, by the clock of the recording.
    uint64_t ticks;
    /// Where.
    uint64_t address;
    /// Bytes.
    uint64_t size;
    /// Made by UMF_RECORD_WHAT.
    uint64_t what;
} umf_record_event_t;

/// @brief Makes umf_record_event_t::what of the kind, the queue (numbered as they come; 0: on none,
/// 255: one of the others), the object and the stack.
#define UMF_RECORD_WHAT(kind, queue, object, stack)                                                \
    ((uint64_t)(kind) | (uint64_t)(queue) << 8 | (uint64_t)(object) << 16 | (uint64_t)(stack) << 40)
/// @brief The kind in umf_record_event_t::what.
#define UMF_RECORD_EVENT_KIND(what) ((uint32_t)(what)&0xffu)
/// @brief The queue.
#define UMF_RECORD_EVENT_QUEUE(what) ((uint32_t)((what) >> 8) & 0xffu)
/// @brief The object.
#define UMF_RECORD_EVENT_OBJECT(what) ((uint32_t)((what) >> 16) & 0xffffffu)
/// @brief The stack.
#define UMF_RECORD_EVENT_STACK(what) ((uint32_t)((what) >> 40))

/// @brief The most frames of a stack.
#define UMF_RECORD_FRAMES 64u
/// @brief Bytes of a block.
#define UMF_RECORD_BLOCK_SIZE 65536u
/// @brief Events of a block.
#define UMF_RECORD_BLOCK_EVENTS 2046u

/// @brief The thread of blocks whose allocations were made before the recording began, at a time
/// that is not known; the events have the time of the beginning, sizes of blocks, and no stack. A
/// program that started the recording of another process has added them, such as `umfctl record`.
#define UMF_RECORD_THREAD_OLDER UINT32_MAX

/// @brief A block: events of one thread, in the order of their time. Blocks are taken round robin,
/// and again from the first when all are used: the oldest events are overwritten. Numbers grow by
/// one from block to block as they are begun. A reader of a block whose writer is alive reads the
/// number before and after, and drops the block if they differ.
typedef struct umf_record_block_t {
    /// From 1; 0: it was never used, or its content is being given up.
    uint64_t number;
    /// Events in it, increased after each.
    uint32_t count;
    /// The thread, as gettid says.
    uint32_t thread;
    /// When it was begun, by the clock of events.
    uint64_t ticks;
    /// The same moment by CLOCK_MONOTONIC, in ns.
    uint64_t ns;
    /// 0.
    uint64_t reserved[4];
    /// The events.
    umf_record_event_t events[UMF_RECORD_BLOCK_EVENTS];
} umf_record_block_t;

/// @brief State of memory in a snapshot.
typedef enum umf_record_state_t {
    /// The program has it.
    UMF_RECORD_STATE_LIVE = 1,
    /// Free, and kept for one thread, one queue or one size.
    UMF_RECORD_STATE_CACHED = 2,
    /// Free for any request of the pool.
    UMF_RECORD_STATE_FREE = 3,
    /// The pool does not report it.
    UMF_RECORD_STATE_UNKNOWN = 4
} umf_record_state_t;

/// @brief State of a span; bits of umf_record_span_t::flags.
typedef enum umf_record_span_flag_t {
    /// Its memory is away, because its pool is suspended.
    UMF_RECORD_SPAN_IS_AWAY = 1,
    /// Opened from another process.
    UMF_RECORD_SPAN_IS_IMPORT = 2,
    /// Exported to other processes.
    UMF_RECORD_SPAN_IS_EXPORTED = 4
} umf_record_span_flag_t;

/// @brief One allocation of a provider.
typedef struct umf_record_span_t {
    /// Address.
    uint64_t base;
    /// Bytes.
    uint64_t size;
    /// The pool.
    uint32_t object;
    /// ::umf_record_span_flag_t.
    uint32_t flags;
    /// The index of the first of its runs in ::UMF_RECORD_RUNS; they ascend by address.
    uint32_t first_run;
    /// How many there are.
    uint32_t run_count;
} umf_record_span_t;

/// @brief Blocks of one size and state that lie side by side.
typedef struct umf_record_run_t {
    /// Address of the first.
    uint64_t base;
    /// Bytes of each.
    uint64_t size;
    /// How many.
    uint32_t count;
    /// ::umf_record_state_t.
    uint32_t state;
} umf_record_run_t;

/// @brief Names of code, found on the machine of the recording, so that the file can be read
/// elsewhere. After it come `count` items of ::umf_record_name_t, and then `text_bytes` bytes of
/// texts.
typedef struct umf_record_names_t {
    /// Items.
    uint64_t count;
    /// Bytes of the texts, each with a zero at its end. Offset 0 is the empty text.
    uint64_t text_bytes;
    /// Bytes of an item.
    uint32_t item_size;
    /// 0.
    uint32_t reserved[3];
} umf_record_names_t;

/// @brief Bits of umf_record_name_t::flags.
typedef enum umf_record_name_flag_t {
    /// The function is inlined in that of the next item, which has the same address.
    UMF_RECORD_NAME_IS_INLINED = 1
} umf_record_name_flag_t;

/// @brief The function and the source line of a return address. Items ascend by address. Items of
/// one address are inlined functions, the innermost first, and then the function that has the code.
typedef struct umf_record_name_t {
    /// The return address, as in ::UMF_RECORD_STACKS.
    uint64_t address;
    /// From the beginning of the function to `address`; 0 in an inlined function.
    uint64_t offset;
    /// Its name: offset in the texts; 0: not known.
    uint32_t function;
    /// Path of the source file: offset in the texts; 0: not known.
    uint32_t source;
    /// Line in the source file; 0: not known.
    uint32_t line;
    /// ::umf_record_name_flag_t.
    uint32_t flags;
} umf_record_name_t;

#ifdef __cplusplus
}
#endif

#endif
