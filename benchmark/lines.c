/* The functions that code compiled with -fsanitize=thread calls: see lines.h. */
#include "lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <link.h>
#include <time.h>
#include <unistd.h>

#define LINE_SHIFT 6
#define LINE_SLOTS ((size_t)1 << 21)
#define PLACE_SLOTS ((size_t)1 << 14)
#define NOBODY UINT32_MAX

typedef struct {
    uintptr_t number; /* of the line, plus 1; 0: free */
    uint64_t having;  /* threads that have the line, one bit for each */
    uint32_t writer;  /* the last one, or NOBODY */
} line_t;

static line_t lines[LINE_SLOTS];
static lines_place_t places[PLACE_SLOTS]; /* address 0: free */
static uint64_t travelled;
static int counting;
static unsigned meet_every, meet_last;
static __thread uint32_t self = NOBODY;

static size_t slot_of(uintptr_t key, size_t slots) {
    return (size_t)(((uint64_t)key * 0x9e3779b97f4a7c15u) >> 32) & (slots - 1);
}

static void no_room(const char *what) {
    fprintf(stderr, "umf-bench-lines: more %s than it has room for\n", what);
    _exit(1);
}

static line_t *line_find(uintptr_t number) {
    size_t slot = slot_of(number, LINE_SLOTS);
    for (size_t i = 0; i < LINE_SLOTS; i++, slot = (slot + 1) & (LINE_SLOTS - 1)) {
        line_t *line = &lines[slot];
        if (line->number == number + 1) {
            return line;
        }
        if (line->number == 0) {
            line->number = number + 1;
            line->writer = NOBODY;
            return line;
        }
    }
    no_room("lines");
    return NULL;
}

static void count_at(uintptr_t address) {
    travelled++;
    size_t slot = slot_of(address, PLACE_SLOTS);
    for (size_t i = 0; i < PLACE_SLOTS; i++, slot = (slot + 1) & (PLACE_SLOTS - 1)) {
        lines_place_t *place = &places[slot];
        if (place->address == address || place->address == 0) {
            place->address = address;
            place->count++;
            return;
        }
    }
    no_room("places");
}

static void access_line(uintptr_t number, int is_write, uintptr_t address) {
    line_t *line = line_find(number);
    const uint64_t me = (uint64_t)1 << self;
    const int has_moved =
        is_write ? (line->having & ~me) != 0
                 : !(line->having & me) && line->writer != NOBODY && line->writer != self;
    if (has_moved && counting) {
        count_at(address);
    }
    if (is_write) {
        line->having = me;
        line->writer = self;
    } else {
        line->having |= me;
    }
}

static void access_memory(const volatile void *ptr, size_t size, int is_write, void *from) {
    if (self == NOBODY || size == 0) {
        return;
    }
    const uintptr_t last = ((uintptr_t)ptr + size - 1) >> LINE_SHIFT;
    for (uintptr_t at = (uintptr_t)ptr >> LINE_SHIFT; at <= last; at++) {
        access_line(at, is_write, (uintptr_t)from);
    }
}

void lines_enter(unsigned id) {
    self = id;
}

void lines_leave(void) {
    self = NOBODY;
}

void lines_count(int is_counted) {
    counting = is_counted;
}

void lines_meet(unsigned every) {
    meet_every = every;
}

uint64_t lines_travelled(void) {
    return travelled;
}

/* The program itself comes first. */
static int load_address(struct dl_phdr_info *info, size_t size, void *result) {
    (void)size;
    *(uintptr_t *)result = (uintptr_t)info->dlpi_addr;
    return 1;
}

static int higher_first(const void *a, const void *b) {
    const lines_place_t *x = a, *y = b;
    if (x->count != y->count) {
        return x->count < y->count ? 1 : -1;
    }
    return x->address < y->address ? -1 : x->address > y->address;
}

size_t lines_places(lines_place_t *result, size_t capacity) {
    static lines_place_t sorted[PLACE_SLOTS];
    uintptr_t base = 0;
    dl_iterate_phdr(load_address, &base);
    memcpy(sorted, places, sizeof(sorted));
    qsort(sorted, PLACE_SLOTS, sizeof(sorted[0]), higher_first);
    size_t n = 0;
    for (; n < capacity && n < PLACE_SLOTS && sorted[n].count > 0; n++) {
        result[n] = (lines_place_t){sorted[n].address - base, sorted[n].count};
    }
    return n;
}

/*
 * The library makes as many depots and shards as there are CPUs. So on a machine with two CPUs, 16
 * threads would share what they do not share on 16. This definition is in the program, so it is
 * found before that of the C library, also by other libraries.
 */
long sysconf(int name) {
    static long (*next)(int);
    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) {
        return LINES_CPUS;
    }
    if (!next) {
        void *found = dlsym(RTLD_NEXT, "sysconf");
        memcpy(&next, &found, sizeof(next));
    }
    return next(name);
}

/* Time stands still. Otherwise decay, which gives unused memory back, would depend on
 * the machine. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    *now = (struct timespec){.tv_sec = 1000};
    return 0;
}

/* --- functions called by the compiler
 * -------------------------------------------------------------------- */

#define HERE __builtin_return_address(0)

void __tsan_init(void);
void __tsan_func_entry(void *);
void __tsan_func_exit(void);
void __tsan_atomic_thread_fence(int);
void __tsan_atomic_signal_fence(int);
void __tsan_read_range(void *, size_t);
void __tsan_write_range(void *, size_t);

void __tsan_init(void) {}
void __tsan_func_entry(void *caller) {
    (void)caller;
}
void __tsan_func_exit(void) {}
void __tsan_atomic_thread_fence(int order) {
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int order) {
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
void __tsan_read_range(void *ptr, size_t size) {
    access_memory(ptr, size, 0, HERE);
}
void __tsan_write_range(void *ptr, size_t size) {
    access_memory(ptr, size, 1, HERE);
}

#define ACCESS(name, size, is_write)                                                               \
    void name(void *ptr);                                                                          \
    void name(void *ptr) {                                                                         \
        access_memory(ptr, size, is_write, HERE);                                                  \
    }
#define ACCESSES(size)                                                                             \
    ACCESS(__tsan_read##size, size, 0)                                                             \
    ACCESS(__tsan_write##size, size, 1)                                                            \
    ACCESS(__tsan_unaligned_read##size, size, 0)                                                   \
    ACCESS(__tsan_unaligned_write##size, size, 1)
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

/* An atomic read-modify-write takes the line exclusively, even if it changes nothing. */
#define ATOMIC_CHANGE(bits, type, name)                                                            \
    type __tsan_atomic##bits##_##name(volatile type *ptr, type value, int order);                  \
    type __tsan_atomic##bits##_##name(volatile type *ptr, type value, int order) {                 \
        (void)order;                                                                               \
        access_memory(ptr, sizeof(type), 1, HERE);                                                 \
        return CHANGE_##name(ptr, value, __ATOMIC_SEQ_CST);                                        \
    }
#define CHANGE_exchange __atomic_exchange_n
#define CHANGE_fetch_add __atomic_fetch_add
#define CHANGE_fetch_sub __atomic_fetch_sub
#define CHANGE_fetch_and __atomic_fetch_and
#define CHANGE_fetch_or __atomic_fetch_or
#define CHANGE_fetch_xor __atomic_fetch_xor
#define CHANGE_fetch_nand __atomic_fetch_nand

/* A change of 32 bits from 0 to 1 is taken for a lock, see src/base/lock.h. */
static int finds_held(const volatile void *ptr, uint64_t expected, uint64_t value, size_t size,
                      int order, int failure) {
    if (!meet_every || self == NOBODY || size != 4 || expected != 0 || value != 1 ||
        order != __ATOMIC_ACQUIRE || failure != __ATOMIC_RELAXED) {
        return 0;
    }
    const uint32_t writer = line_find((uintptr_t)ptr >> LINE_SHIFT)->writer;
    return writer != NOBODY && writer != self && ++meet_last % meet_every == 0;
}

#define ATOMIC_COMPARE(bits, type, name)                                                           \
    int __tsan_atomic##bits##_##name(volatile type *ptr, type *expected, type value, int order,    \
                                     int failure);                                                 \
    int __tsan_atomic##bits##_##name(volatile type *ptr, type *expected, type value, int order,    \
                                     int failure) {                                                \
        if (finds_held(ptr, *expected, value, sizeof(type), order, failure)) {                     \
            *expected = value;                                                                     \
            return 0;                                                                              \
        }                                                                                          \
        access_memory(ptr, sizeof(type), 1, HERE);                                                 \
        return __atomic_compare_exchange_n(ptr, expected, value, 0, __ATOMIC_SEQ_CST,              \
                                           __ATOMIC_SEQ_CST);                                      \
    }

#define ATOMICS(bits, type)                                                                        \
    type __tsan_atomic##bits##_load(const volatile type *ptr, int order);                          \
    type __tsan_atomic##bits##_load(const volatile type *ptr, int order) {                         \
        (void)order;                                                                               \
        access_memory(ptr, sizeof(type), 0, HERE);                                                 \
        return __atomic_load_n(ptr, __ATOMIC_SEQ_CST);                                             \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile type *ptr, type value, int order);                   \
    void __tsan_atomic##bits##_store(volatile type *ptr, type value, int order) {                  \
        (void)order;                                                                               \
        access_memory(ptr, sizeof(type), 1, HERE);                                                 \
        __atomic_store_n(ptr, value, __ATOMIC_SEQ_CST);                                            \
    }                                                                                              \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *ptr, type expected, type value, \
                                                    int order, int failure);                       \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *ptr, type expected, type value, \
                                                    int order, int failure) {                      \
        if (finds_held(ptr, expected, value, sizeof(type), order, failure)) {                      \
            return value;                                                                          \
        }                                                                                          \
        access_memory(ptr, sizeof(type), 1, HERE);                                                 \
        __atomic_compare_exchange_n(ptr, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        return expected;                                                                           \
    }                                                                                              \
    ATOMIC_COMPARE(bits, type, compare_exchange_strong)                                            \
    ATOMIC_COMPARE(bits, type, compare_exchange_weak)                                              \
    ATOMIC_CHANGE(bits, type, exchange)                                                            \
    ATOMIC_CHANGE(bits, type, fetch_add)                                                           \
    ATOMIC_CHANGE(bits, type, fetch_sub)                                                           \
    ATOMIC_CHANGE(bits, type, fetch_and)                                                           \
    ATOMIC_CHANGE(bits, type, fetch_or)                                                            \
    ATOMIC_CHANGE(bits, type, fetch_xor)                                                           \
    ATOMIC_CHANGE(bits, type, fetch_nand)
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

/* Clang calls these; for gcc the library's sources are compiled with the names defined to them. */
void *__tsan_memcpy(void *to, const void *from, size_t size);
void *__tsan_memmove(void *to, const void *from, size_t size);
void *__tsan_memset(void *to, int byte, size_t size);

void *__tsan_memcpy(void *to, const void *from, size_t size) {
    access_memory(from, size, 0, HERE);
    access_memory(to, size, 1, HERE);
    return memcpy(to, from, size);
}
void *__tsan_memmove(void *to, const void *from, size_t size) {
    access_memory(from, size, 0, HERE);
    access_memory(to, size, 1, HERE);
    return memmove(to, from, size);
}
void *__tsan_memset(void *to, int byte, size_t size) {
    access_memory(to, size, 1, HERE);
    return memset(to, byte, size);
}
