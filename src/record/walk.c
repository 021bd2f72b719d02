/*
 * Return addresses of the calling thread: along frame pointers, which takes a few nanoseconds for
 * each frame, or with the unwinder of the compiler, which takes about a hundred.
 *
 * Frame pointers are there in programs compiled with -fno-omit-frame-pointer (and in many
 * distributions). Code without them that lies between does not end the walk as long as it leaves
 * the register alone; its own frames are missing then. A walk that finds fewer than two frames is
 * made again by the unwinder.
 *
 * A frame pointer is read only from pages of the stack that are known to be readable. Each page is
 * tried once for a thread.
 */
#include <unwind.h>

#include "base/dl.h"
#include "record/recording.h"
#include "system/os.h"

#define PAGES_TRIED 1024u /* at once */
#define LOWEST_CODE 4096u

typedef _Unwind_Reason_Code (*backtrace_t)(_Unwind_Trace_Fn visit, void *arg);
static backtrace_t unwinder; /* NULL: there is none. Immutable after the first start */

/* Makes [low, high) longer by pages that can be read, up to and with that of `address`. */
static bool stack_grow(umf_record_thread_t *thread, uintptr_t address) {
    size_t page = umf_os_page_size();
    uintptr_t last = umf_align_down(address, page);
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

static inline bool is_readable(umf_record_thread_t *thread, uintptr_t at) {
    return at % sizeof(void *) == 0 && at >= thread->stack_low &&
           (umf_likely(at + 2 * sizeof(void *) <= thread->stack_high) ||
            stack_grow(thread, at + 2 * sizeof(void *) - 1));
}

#if defined(__x86_64__) || defined(__aarch64__)
__attribute__((no_sanitize("address", "thread"))) static unsigned
walk_frames(umf_record_thread_t *thread, const void *frame, uint64_t *frames, unsigned depth) {
    uintptr_t at = (uintptr_t)frame;
    unsigned count = 0;
    if (at < thread->stack_low || at >= thread->stack_high) {
        stack_begin(thread, at);
    }
    while (count < depth && is_readable(thread, at)) {
        const uintptr_t *record = (const uintptr_t *)at;
        if (record[1] < LOWEST_CODE) {
            break;
        }
        frames[count++] = record[1];
        if (record[0] <= at) {
            break;
        }
        at = record[0];
    }
    return count;
}
#else
static unsigned walk_frames(umf_record_thread_t *thread, const void *frame, uint64_t *frames,
                            unsigned depth) {
    (void)thread, (void)frame, (void)frames, (void)depth, (void)is_readable;
    return 0;
}
#endif

typedef struct unwound_t {
    uint64_t first; /* the return address of the frame that frames begin with; 0: it was found */
    uint64_t *frames;
    unsigned count, depth;
} unwound_t;

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *arg) {
    unwound_t *unwound = arg;
    uint64_t address = _Unwind_GetIP(context);
    if (address == unwound->first) {
        unwound->first = 0;
    }
    if (unwound->first == 0 && address != 0) {
        unwound->frames[unwound->count++] = address;
    }
    return unwound->count < unwound->depth ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static unsigned unwind(uint64_t first, uint64_t *frames, unsigned depth) {
    unwound_t unwound = {.first = first, .frames = frames, .depth = depth};
    unwinder(visit, &unwound);
    return unwound.count;
}

unsigned umf_record_walk(umf_record_thread_t *thread, const void *frame, uint64_t *frames,
                         unsigned depth) {
    unsigned count = walk_frames(thread, frame, frames, depth);
    if (umf_unlikely(count < 2 && count < depth && unwinder)) {
        unsigned unwound = unwind(count > 0 ? frames[0] : 0, frames, depth);
        count = unwound > count ? unwound : count;
    }
    return count;
}

/* The first walk of the unwinder may allocate. */
void umf_record_walk_init(void) {
    uint64_t frames[2];
    void *library = unwinder ? NULL : umf_dl_find("libgcc_s.so.1", NULL, 0);
    if (library) {
        unwinder = (backtrace_t)(uintptr_t)umf_dl_symbol(library, "_Unwind_Backtrace");
    }
    if (unwinder) {
        unwind(0, frames, 2);
    }
}
