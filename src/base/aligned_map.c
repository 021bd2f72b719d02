/*
 * Placing mappings.
 *
 * An alignment above the page size is reached by mapping more and unmapping the ends. Mappings of
 * 2 MiB and more are mapped at multiples of 2 MiB and get transparent huge pages: the first touch
 * of such memory is about twenty times faster. To avoid the larger mapping, the next one is
 * requested below the last one made, or at the address of a freed one above it; the kernel follows
 * the request if it can. Reusing the freed addresses matters: the pointer map keeps a table for
 * every 2 MiB that were ever divided, so mappings must not spread over the address space.
 */
#include "base/aligned_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "system/os.h"

#define ALIGNED_HUGE ((size_t)2 << 20)
#define ALIGNED_ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

typedef enum map_huge_t {
    ALIGNED_HUGE_UNKNOWN,
    ALIGNED_HUGE_NEVER,  /* no huge pages, so alignment to them is of no use */
    ALIGNED_HUGE_ADVISE, /* only where madvise requests them */
    ALIGNED_HUGE_ALWAYS, /* everywhere */
} map_huge_t;

static _Atomic int map_huge; /* Sync: atomic, relaxed; written once with the same value */
/* The end of the next address range to request; 0: unknown. Sync: atomic, relaxed; only a hint */
static _Atomic uintptr_t map_next_end;

static UMF_COLD map_huge_t map_ask_huge(void) {
    char text[22] = {0}; /* as "[always] madvise never"; the brackets mark the choice */
    int fd;
    map_huge_t huge = ALIGNED_HUGE_NEVER;
    if (umf_os_open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY, 0, &fd) == 0) {
        if (umf_os_read_at(fd, text, sizeof(text) - 1, 0) == 0) {
            huge = strstr(text, "[always]")    ? ALIGNED_HUGE_ALWAYS
                   : strstr(text, "[madvise]") ? ALIGNED_HUGE_ADVISE
                                               : ALIGNED_HUGE_NEVER;
        }
        umf_os_close(fd);
    }
    return huge;
}

static map_huge_t map_get_huge(void) {
    int huge = atomic_load_explicit(&map_huge, memory_order_relaxed);
    if (umf_unlikely(huge == ALIGNED_HUGE_UNKNOWN)) {
        huge = (int)map_ask_huge();
        atomic_store_explicit(&map_huge, huge, memory_order_relaxed);
    }
    return (map_huge_t)huge;
}

/* Maps `size + alignment` bytes and unmaps what lies before and behind the aligned range. */
static int map_over(size_t size, size_t alignment, int prot, int flags, void **ptr) {
    size_t total;
    if (!umf_add(size, alignment - umf_os_page_size(), &total)) {
        return ENOMEM;
    }
    void *mapped = NULL;
    int error = umf_os_map(&mapped, total, prot, flags, -1, 0);
    if (error) {
        return error;
    }
    size_t rest = (uintptr_t)mapped % alignment;
    size_t head = rest ? alignment - rest : 0;
    size_t tail = total - head - size;
    char *base = (char *)mapped + head;
    if (head && (error = umf_os_unmap(mapped, head)) != 0) {
        umf_os_unmap(mapped, total);
        return error;
    }
    if (tail && (error = umf_os_unmap(base + size, tail)) != 0) {
        umf_os_unmap(base, size + tail);
        return error;
    }
    *ptr = base;
    return 0;
}

/* Maps at `hint` (may be NULL). The kernel's choice is kept if it is aligned. */
UMF_INLINE int map_try(void *hint, size_t size, size_t alignment, int prot, int flags, void **ptr) {
    void *mapped = hint;
    int error = umf_os_map(&mapped, size, prot, flags, -1, 0);
    if (error) {
        return error;
    }
    if ((uintptr_t)mapped % alignment == 0) {
        *ptr = mapped;
        return 0;
    }
    error = umf_os_unmap(mapped, size);
    return error ? error : map_over(size, alignment, prot, flags, ptr);
}

/* `alignment` is a multiple of ALIGNED_HUGE. */
static int map_huge_aligned(size_t size, size_t alignment, int prot, void **ptr) {
    uintptr_t end = atomic_load_explicit(&map_next_end, memory_order_relaxed);
    uintptr_t hint = end > size ? (end - size) / alignment * alignment : 0;
    void *mapped;
    int error = map_try((void *)hint, size, alignment, prot, ALIGNED_ANONYMOUS, &mapped);
    if (error) {
        return error;
    }
    atomic_store_explicit(&map_next_end, (uintptr_t)mapped, memory_order_relaxed);
    *ptr = mapped;
    return 0;
}

static void map_advise(void *ptr, size_t size, int advice) {
    int error = umf_os_advise(ptr, size, advice);
    if (error) {
        UMF_LOG_DEBUG("advice %d on %zu bytes at %p failed (errno %d)", advice, size, ptr, error);
    }
}

void umf_os_advise_small_pages(void *ptr, size_t size) {
    if (map_get_huge() == ALIGNED_HUGE_ALWAYS) {
        map_advise(ptr, size, MADV_NOHUGEPAGE);
    }
}

void umf_os_advise_huge_pages(void *ptr, size_t size) {
    if (map_get_huge() != ALIGNED_HUGE_NEVER) {
        map_advise(ptr, size, MADV_HUGEPAGE);
    }
}

/* `is_advised`: huge pages are requested, where that is required. */
static int map_aligned(size_t size, size_t alignment, int prot, bool is_advised, void **ptr) {
    bool divides_huge = alignment == 0 || ALIGNED_HUGE % alignment == 0;
    bool can_be_huge = size >= ALIGNED_HUGE && (divides_huge || alignment % ALIGNED_HUGE == 0);
    map_huge_t huge = can_be_huge ? map_get_huge() : ALIGNED_HUGE_NEVER;
    if (huge == ALIGNED_HUGE_NEVER) {
        size_t page_size = umf_os_page_size();
        return map_try(NULL, size, alignment > page_size ? alignment : page_size, prot,
                       ALIGNED_ANONYMOUS, ptr);
    }
    int error = map_huge_aligned(size, divides_huge ? ALIGNED_HUGE : alignment, prot, ptr);
    if (!error && is_advised && huge == ALIGNED_HUGE_ADVISE) {
        map_advise(*ptr, size, MADV_HUGEPAGE);
    }
    return error;
}

int umf_os_map_aligned_plain(size_t size, size_t alignment, int prot, void **ptr) {
    return map_aligned(size, alignment, prot, false, ptr);
}

int umf_os_map_aligned(size_t size, size_t alignment, int prot, void **ptr) {
    return map_aligned(size, alignment, prot, true, ptr);
}

int umf_os_reserve_aligned(size_t size, size_t alignment, void **ptr) {
    size_t page_size = umf_os_page_size();
    return map_over(size, alignment > page_size ? alignment : page_size, PROT_NONE,
                    ALIGNED_ANONYMOUS | MAP_NORESERVE, ptr);
}

int umf_os_map_aligned_file(size_t size, size_t alignment, int prot, int fd, uint64_t offset,
                            void **ptr) {
    void *base = NULL;
    int flags = MAP_SHARED;
    bool reserve = alignment > umf_os_page_size();
    if (reserve) {
        int error = umf_os_reserve_aligned(size, alignment, &base);
        if (error) {
            return error;
        }
        flags |= MAP_FIXED;
    }
    int error = umf_os_map(&base, size, prot, flags, fd, (size_t)offset);
    if (error) {
        if (reserve) {
            umf_os_unmap(base, size);
        }
        return error;
    }
    *ptr = base;
    return 0;
}

void umf_os_map_freed(const void *ptr, size_t size) {
    uintptr_t base = (uintptr_t)ptr;
    uintptr_t end = umf_align_up(base + size, ALIGNED_HUGE);
    if (size >= ALIGNED_HUGE && base % ALIGNED_HUGE == 0 &&
        end > atomic_load_explicit(&map_next_end, memory_order_relaxed)) {
        atomic_store_explicit(&map_next_end, end, memory_order_relaxed);
    }
}
