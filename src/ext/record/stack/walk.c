/*
 * Return addresses of the calling thread, by the rules of rules.h: a few nanoseconds for each
 * frame. Code without unwind information is taken for one that has frame pointers, as compilers at
 * run time make it; where there are no rules at all (other C libraries than glibc 2.35) that goes
 * for all code. What neither can pass, as the frame of a signal handler, is left to the unwinder of
 * the compiler, which takes a hundred nanoseconds and more for each frame: it walked 2 stacks
 * of 2.9 million of a Python program. Were all left to it, that program would run for 19 s, not 2.
 *
 * A word is read only from pages of the stack that are known to be readable. Each page is tried
 * once for a thread.
 */
#include <unwind.h>

#include "base/dl.h"
#include "ext/record/recording.h"
#include "ext/record/stack/rules.h"
#include "system/os.h"

#define PAGES_TRIED 1024u /* at once */
#define LOWEST_CODE 4096u

typedef _Unwind_Reason_Code (*backtrace_t)(_Unwind_Trace_Fn visit, void *arg);
/* Looked up, so that the library does not depend on libgcc_s. NULL: there is none. */
static _Atomic(backtrace_t) unwinder;
typedef _Unwind_Ptr (*address_of_t)(struct _Unwind_Context *context);
static _Atomic(address_of_t) address_of; /* set before `unwinder` */

/* Makes [low, high) longer by pages that can be read, up to and with that of the word. */
UMF_COLD static bool stack_reaches(umf_record_thread_t *thread, uintptr_t address) {
    size_t page = umf_os_page_size();
    uintptr_t last = umf_align_down(address + sizeof(address) - 1, page);
    if (address < thread->stack_low || last < address - page) {
        return false;
    }
    if (thread->stack_end != 0 && last >= thread->stack_end) {
        return false;
    }
    while (thread->stack_high <= last) {
        bool is_near = last - thread->stack_high < PAGES_TRIED * page;
        if (!is_near || umf_os_probe_read((void *)thread->stack_high) != 0) {
            thread->stack_end = is_near ? thread->stack_high : 0;
            return false;
        }
        thread->stack_high += page;
    }
    return true;
}

/* A thread may run on other stacks, too. */
static void stack_begin(umf_record_thread_t *thread, uintptr_t pointer) {
    size_t page = umf_os_page_size();
    uintptr_t low = umf_align_down(pointer, page);
    bool is_same = pointer < thread->stack_high && thread->stack_low - low <= PAGES_TRIED * page;
    for (uintptr_t at = low; is_same && at < thread->stack_low; at += page) {
        is_same = umf_os_probe_read((void *)at) == 0;
    }
    if (!is_same) {
        thread->stack_high = low + page;
        thread->stack_end = 0;
    }
    thread->stack_low = low;
}

UMF_INLINE bool is_readable(umf_record_thread_t *thread, uintptr_t at) {
    uintptr_t size = thread->stack_high - thread->stack_low;
    return umf_likely(at - thread->stack_low <= size - sizeof(at)) || stack_reaches(thread, at);
}

#if defined(__x86_64__) || defined(__aarch64__)
#define HAS_FRAME_RECORDS 1 /* the caller's frame pointer, then the return address */
#else
#define HAS_FRAME_RECORDS 0
#endif

#if defined(__aarch64__)
#define CODE_MASK ((UINT64_C(1) << 48) - 1) /* return addresses may be signed */
#else
#define CODE_MASK UINT64_MAX
#endif

static const umf_record_rule_t frame_record = {
    .kind = UMF_RECORD_RULE_FP, .saved = UMF_RECORD_SAVED_AT_END, .fp = -2, .ra = -1, .offset = 16};

typedef struct walk_t {
    umf_record_thread_t *thread;
    uintptr_t sp, fp, address;
    uintptr_t slot; /* where `address` was read; 0: nowhere */
    bool is_odd;    /* it ended at what only the unwinder can pass */
} walk_t;

__attribute__((no_sanitize("address", "thread"))) static uintptr_t read_at(uintptr_t at) {
    return *(const uintptr_t *)at;
}

static bool read_word(const walk_t *walk, uintptr_t at, uintptr_t *word) {
    bool is_there = is_readable(walk->thread, at);
    *word = is_there ? read_at(at) : 0;
    return is_there;
}

static inline uintptr_t words(int count) {
    return (uintptr_t)(intptr_t)count * sizeof(uintptr_t);
}

static bool step(walk_t *walk, umf_record_rule_t rule) {
    uintptr_t base = rule.kind == UMF_RECORD_RULE_SP ? walk->sp : walk->fp;
    uintptr_t end = base + (uintptr_t)(intptr_t)rule.offset, fp = walk->fp;
    if (umf_unlikely(rule.kind == UMF_RECORD_RULE_FP_DEREF) && !read_word(walk, end, &end)) {
        return false;
    }
    if (rule.saved != UMF_RECORD_SAVED_NOT) {
        base = umf_likely(rule.saved == UMF_RECORD_SAVED_AT_END) ? end : walk->fp;
        if (!read_word(walk, base + words(rule.fp), &fp)) {
            return false;
        }
    }
    walk->slot = end + words(rule.ra);
    if (end <= walk->sp || !read_word(walk, walk->slot, &walk->address)) {
        return false;
    }
    walk->sp = end;
    walk->fp = fp;
    walk->address &= CODE_MASK;
    return walk->address >= LOWEST_CODE;
}

static bool walk_on(walk_t *walk, umf_record_rules_t *rules) {
    umf_record_rule_t rule = rules ? umf_record_rule(rules, walk->address) : frame_record;
    if (umf_likely(rule.kind >= UMF_RECORD_RULE_SP && rule.kind < UMF_RECORD_RULE_END)) {
        return step(walk, rule);
    }
    walk->is_odd = rule.kind == UMF_RECORD_RULE_ODD;
    return rule.kind == UMF_RECORD_RULE_NONE && step(walk, frame_record);
}

static bool is_own(const umf_recording_t *r, uint64_t address) {
    return address - r->own_code < r->own_size;
}

/* A frame of this library at the beginning, which is left out. */
static void note_own(umf_record_seen_t *seen, uintptr_t address, uint16_t slot) {
    if (seen->own_count == UMF_RECORD_SEEN_OWN) {
        seen->end = 0; /* too many to recognise the stack again */
        return;
    }
    seen->own[seen->own_count] = address;
    seen->own_slots[seen->own_count++] = slot;
}

/* false: it did not get to the end. */
static bool walk_frames(walk_t *walk, const umf_recording_t *r, uint64_t *frames,
                        umf_record_seen_t *seen) {
    uintptr_t first = walk->sp;
    if (first < walk->thread->stack_low || first >= walk->thread->stack_high) {
        stack_begin(walk->thread, first);
    }
    seen->count = seen->own_count = 0;
    do {
        uintptr_t place = walk->slot != 0 ? (walk->slot - first) / sizeof(first) : UINT16_MAX;
        seen->end = place <= UINT16_MAX ? seen->end : 0;
        if (seen->count == 0 && is_own(r, walk->address)) {
            note_own(seen, walk->address, (uint16_t)place);
            continue;
        }
        seen->slots[seen->count] = (uint16_t)place;
        frames[seen->count++] = walk->address;
    } while (seen->count < r->stack_depth && walk_on(walk, r->rules));
    return !walk->is_odd && (seen->count > 1 || seen->count == r->stack_depth);
}

typedef struct unwound_t {
    const umf_recording_t *r; /* NULL: all frames */
    uint64_t first; /* the return address of the frame that frames begin with; 0: it was found */
    uint64_t *frames;
    unsigned count, depth;
} unwound_t;

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *arg) {
    unwound_t *unwound = arg;
    uint64_t address = address_of(context);
    if (address == unwound->first) {
        unwound->first = 0;
    }
    bool is_left_out = unwound->r && unwound->count == 0 && is_own(unwound->r, address);
    if (unwound->first == 0 && address != 0 && !is_left_out) {
        unwound->frames[unwound->count++] = address;
    }
    return unwound->count < unwound->depth ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* --- stacks that are known: without them an event with a stack of 16 frames takes 354 ns (57) ---
 */

static umf_record_seen_t *seen_of(umf_record_thread_t *thread, const umf_record_frame_t *from) {
    uint64_t hash = umf_record_hash(from->address ^ from->end << 16 ^ from->fp);
    return &thread->seen[(hash >> 20) % UMF_RECORD_SEEN];
}

/* A stack is the same if it begins in the same frame and the same return addresses lie where its
 * last walk found them. The pages were read by that walk. */
static uint64_t address_in(const umf_record_frame_t *from, uint16_t slot) {
    return slot == UINT16_MAX ? from->address : read_at(from->end + words(slot)) & CODE_MASK;
}

static bool is_seen(const umf_recording_t *r, const umf_record_seen_t *seen,
                    const umf_record_frame_t *from) {
    if (seen->end != from->end || seen->address != from->address || seen->fp != from->fp) {
        return false;
    }
    const uint64_t *frames = r->stacks + seen->index + 1;
    uint64_t differs = 0;
    for (uint32_t i = 0; i < seen->own_count; i++) {
        differs |= address_in(from, seen->own_slots[i]) ^ seen->own[i];
    }
    for (uint32_t i = 0; i < seen->count; i++) {
        differs |= address_in(from, seen->slots[i]) ^ frames[i];
    }
    return differs == 0;
}

static uint32_t walk_new(umf_recording_t *r, umf_record_thread_t *thread,
                         const umf_record_frame_t *from, umf_record_seen_t *seen) {
    uint64_t frames[UMF_RECORD_FRAMES];
    unsigned count = 0;
    bool is_whole = false;
    walk_t walk = {.thread = thread, .sp = from->end, .fp = from->fp, .address = from->address};
    *seen = (umf_record_seen_t){.address = from->address, .fp = from->fp, .end = from->end};
    if (HAS_FRAME_RECORDS) {
        is_whole = walk_frames(&walk, r, frames, seen);
        count = seen->count;
    }
    if (umf_unlikely(!is_whole) && unwinder) {
        unwound_t unwound = {
            .r = r, .first = from->address, .frames = frames, .depth = r->stack_depth};
        unwinder(visit, &unwound);
        count = unwound.count > count ? unwound.count : count;
    }
    seen->index = count > 0 ? umf_record_stack(r, frames, count) : 0;
    seen->end = is_whole && seen->index != 0 ? seen->end : 0;
    return seen->index;
}

uint32_t umf_record_walk(umf_recording_t *r, umf_record_thread_t *thread,
                         const umf_record_frame_t *from) {
    umf_record_seen_t *seen = seen_of(thread, from);
    return umf_likely(is_seen(r, seen, from)) ? seen->index : walk_new(r, thread, from, seen);
}

/* The first walk of the unwinder may allocate. */
void umf_record_walk_init(void) {
    uint64_t frames[2];
    umf_record_rules_init();
    void *library = unwinder ? NULL : umf_dl_find("libgcc_s.so.1", NULL, 0);
    if (library) {
        address_of = (address_of_t)(uintptr_t)umf_dl_symbol(library, "_Unwind_GetIP");
        unwinder =
            address_of ? (backtrace_t)(uintptr_t)umf_dl_symbol(library, "_Unwind_Backtrace") : NULL;
    }
    if (unwinder) {
        unwound_t unwound = {.frames = frames, .depth = 2};
        unwinder(visit, &unwound);
    }
}
