/*
 * Writes recordings and snapshots for tests: record_sample <file> <what> [<events>]
 *
 *   demo         a program of three pools and four threads: marks, steps, a leak in keep_batch, a
 *                double free, a pool that sleeps, and memory that ends
 *   clean        the same, but all is freed and nothing fails
 *   overwritten  demo in a file with room for the last events only
 *   died         demo of a program that died: live allocations are only in the events
 *   tiny         a few events, and the file ends with the last
 *   arena        likewise, of a pool whose pages move, and an event of a later version
 *   snapshot     pools with spans and runs
 *   grown        the same pools later
 *   named        snapshot with names of code, of which one is inlined
 *
 * The same words make the same file. Stacks are of functions of this program.
 */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <umf/record_format.h>

#define THREADS 4u
#define SLOTS 4096u /* addresses of a pool that can be in use */
#define OBJECTS 16u
#define TEXTS 4096u
#define MODULES 4u
#define STACKS 1024u
#define MODULE_BASE 0x550000000000u
#define START_TICKS 7000000u
#define START_NS 5000000000u
#define TICKS_OF_NS 3u

typedef struct slot_t {
    uint64_t size, ticks;
    uint32_t stack;
} slot_t;

typedef struct pool_t {
    uint32_t number, provider;
    uint64_t held, used;
    uint32_t free_slots[SLOTS], free_count;
    slot_t slots[SLOTS];
} pool_t;

static struct {
    char *file;
    size_t size;
    umf_record_header_t *header;
    umf_record_block_t *open[THREADS];
    uint64_t next_block, now;
    bool is_single; /* all is done by one thread */
    pool_t pools[3];
} sample;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* --- the file --------------------------------------------------------------------------------- */

static void *section(umf_record_section_kind_t kind) {
    return sample.file + sample.header->sections[kind].offset;
}

static uint64_t take(umf_record_section_kind_t kind, uint64_t count) {
    umf_record_section_t *at = &sample.header->sections[kind];
    uint64_t first = at->count;
    at->count += count;
    if (at->count > at->capacity) {
        fprintf(stderr, "record_sample: section %d is full\n", (int)kind);
        exit(1);
    }
    return first;
}

static void create(const char *path, const uint64_t capacities[UMF_RECORD_SECTIONS]) {
    static const uint32_t sizes[] = {sizeof(umf_record_object_t), 1,
                                     sizeof(umf_record_module_t), 8,
                                     sizeof(umf_record_event_t),  sizeof(umf_record_block_t),
                                     sizeof(umf_record_span_t),   sizeof(umf_record_run_t)};
    umf_record_header_t header = {.magic = {'U', 'M', 'F', 'R', 'E', 'C', '\r', '\n'},
                                  .version = UMF_RECORD_VERSION,
                                  .kind = UMF_RECORD_FILE_RECORDING,
                                  .pid = 4321,
                                  .ticks = {START_TICKS, START_TICKS},
                                  .ns = {START_NS, START_NS},
                                  .ticks_per_second = TICKS_OF_NS * 1000000000u,
                                  .realtime = 1767225600000000000u,
                                  .rate = 1,
                                  .max_size = UINT64_MAX};
    uint64_t end = (sizeof(header) + 63) / 64 * 64;
    for (int i = 0; i < UMF_RECORD_SECTIONS; i++) {
        if (capacities[i]) {
            header.sections[i] = (umf_record_section_t){end, capacities[i], 0, sizes[i], 0};
            end += (capacities[i] * sizes[i] + 63) / 64 * 64;
        }
    }
    header.file_size = sample.size = end;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)end) != 0) {
        fail(path);
    }
    sample.file = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (sample.file == MAP_FAILED) {
        fail(path);
    }
    close(fd);
    sample.header = (umf_record_header_t *)sample.file;
    *sample.header = header;
}

static uint64_t text(const char *words) {
    uint64_t at = take(UMF_RECORD_TEXTS, strlen(words) + 1);
    return (uint64_t)(strcpy((char *)section(UMF_RECORD_TEXTS) + at, words) -
                      (char *)section(UMF_RECORD_TEXTS));
}

static uint32_t object(umf_record_object_kind_t kind, uint32_t parent, const char *name) {
    uint32_t number = (uint32_t)take(UMF_RECORD_OBJECTS, 1);
    umf_record_object_t *at = (umf_record_object_t *)section(UMF_RECORD_OBJECTS) + number;
    *at = (umf_record_object_t){.kind = kind,
                                .parent = parent,
                                .birth = number,
                                .handle = 0x1000u * number,
                                .live = UMF_RECORD_UNKNOWN,
                                .live_count = UMF_RECORD_UNKNOWN,
                                .held = UMF_RECORD_UNKNOWN,
                                .peak = UMF_RECORD_UNKNOWN,
                                .away = UMF_RECORD_UNKNOWN};
    snprintf(at->name, sizeof(at->name), "%s", name);
    return number;
}

static umf_record_block_t *begin_block(unsigned thread) {
    umf_record_section_t *blocks = &sample.header->sections[UMF_RECORD_BLOCKS];
    umf_record_block_t *block =
        (umf_record_block_t *)section(UMF_RECORD_BLOCKS) + sample.next_block++ % blocks->capacity;
    blocks->count = sample.next_block < blocks->capacity ? sample.next_block : blocks->capacity;
    for (unsigned i = 0; i < THREADS; i++) {
        if (sample.open[i] == block) {
            sample.open[i] = NULL;
        }
    }
    sample.header->dropped += block->count;
    memset(block, 0, offsetof(umf_record_block_t, events));
    block->number = sample.next_block;
    block->thread = 4321 + thread;
    block->ns = START_NS + sample.now;
    block->ticks = START_TICKS + TICKS_OF_NS * sample.now;
    sample.header->ns[1] = block->ns;
    sample.header->ticks[1] = block->ticks;
    return sample.open[thread] = block;
}

static void event(unsigned thread, umf_record_event_kind_t kind, uint32_t owner, uint32_t stack,
                  uint64_t address, uint64_t size) {
    thread = sample.is_single ? 0 : thread;
    umf_record_block_t *block = sample.open[thread];
    if (!block || block->count == UMF_RECORD_BLOCK_EVENTS) {
        block = begin_block(thread);
    }
    sample.now += 100 + address / 64 % 50;
    block->events[block->count++] =
        (umf_record_event_t){.ticks = START_TICKS + TICKS_OF_NS * sample.now,
                             .address = address,
                             .size = size,
                             .what = UMF_RECORD_WHAT(kind, thread % 3, owner, stack)};
}

static void mark(unsigned thread, const char *words) {
    event(thread, UMF_RECORD_MARK, 0, 0, text(words), 0);
}

/* --- stacks, of the functions below ------------------------------------------------------------
 */

static umf_record_module_t module;

static int find_module(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size, (void)arg;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        const char *at = (const char *)info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && part->p_flags & PF_X) {
            module.base = MODULE_BASE + (part->p_offset & ~(uint64_t)4095);
            module.file_offset = part->p_offset & ~(uint64_t)4095;
            module.size = (part->p_filesz + 8191) & ~(uint64_t)4095;
            module.path = (uintptr_t)at - part->p_offset; /* for now: where offset 0 would be */
        }
        const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
        if (part->p_type == PT_NOTE && note->n_type == NT_GNU_BUILD_ID &&
            note->n_descsz <= sizeof(module.build_id)) {
            memcpy(module.build_id, (const char *)(note + 1) + note->n_namesz, note->n_descsz);
        }
    }
    return 1;
}

#ifdef WITH_LINES /* with debug information; each function begins with an inlined one */
#define FRAME_OFFSET 48
#define NOPS "nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\n"
static inline __attribute__((always_inline)) void fill_rows(void) {
    __asm__ volatile(NOPS NOPS NOPS NOPS NOPS NOPS NOPS NOPS); /* fill_rows is here */
}
#else
#define FRAME_OFFSET 1
static inline __attribute__((always_inline)) void fill_rows(void) {}
#endif

static uint64_t frame(void (*function)(void)) {
    return MODULE_BASE + (uintptr_t)function + FRAME_OFFSET - module.path;
}

#define PLACE(name)                                                                                \
    void name(void);                                                                               \
    __attribute__((noinline)) void name(void) {                                                    \
        fill_rows();                                                                               \
        __asm__ volatile("nop\nnop\nnop" ::"i"(__LINE__));                                         \
    }
PLACE(train_step)
PLACE(forward_pass)
PLACE(backward_pass)
PLACE(load_batch)
PLACE(keep_batch)
PLACE(grow_cache)

static uint32_t stacks[5]; /* forward, backward, load, keep, cache */

static void make_stacks(void) {
    static void (*const innermost[])(void) = {forward_pass, backward_pass, load_batch, keep_batch,
                                              grow_cache};
    take(UMF_RECORD_STACKS, 1);
    for (size_t i = 0; i < sizeof(stacks) / sizeof(stacks[0]); i++) {
        stacks[i] = (uint32_t)take(UMF_RECORD_STACKS, 4);
        uint64_t *at = (uint64_t *)section(UMF_RECORD_STACKS) + stacks[i];
        at[0] = 3;
        at[1] = frame(innermost[i]);
        at[2] = frame(train_step);
        at[3] = 0x7f1234500000u + i; /* of no module */
    }
}

static void make_modules(void) {
    char path[1024];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    dl_iterate_phdr(find_module, NULL);
    make_stacks();
    module.path = text(path);
    ((umf_record_module_t *)section(UMF_RECORD_MODULES))[take(UMF_RECORD_MODULES, 1)] = module;
}

/* --- pools ------------------------------------------------------------------------------------ */

enum { WEIGHTS, ACTIVATIONS, CACHE };
static const uint64_t grains[] = {1 << 20, 64 << 10, 256};

static void make_objects(void) {
    static const char *const names[] = {"weights", "activations", "kv \"cache\""};
    take(UMF_RECORD_OBJECTS, 1);
    uint32_t providers[] = {object(UMF_RECORD_OBJECT_PROVIDER, 0, "cuda_vmm"),
                            object(UMF_RECORD_OBJECT_PROVIDER, 0, "os")};
    for (unsigned i = 0; i < 3; i++) {
        pool_t *pool = &sample.pools[i];
        pool->provider = providers[i == CACHE];
        pool->number = object(UMF_RECORD_OBJECT_POOL, pool->provider, names[i]);
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            pool->free_slots[slot] = SLOTS - 1 - slot;
        }
        pool->free_count = SLOTS;
    }
}

static uint64_t address_of(const pool_t *pool, uint32_t slot) {
    return ((uint64_t)pool->number << 40) + (uint64_t)slot * (64u << 20);
}

static bool give(unsigned thread, unsigned which, unsigned stack, uint64_t size, uint32_t *slot) {
    pool_t *pool = &sample.pools[which];
    if (pool->free_count == 0) {
        return false;
    }
    *slot = pool->free_slots[--pool->free_count];
    uint64_t grown = (size + grains[which] * 16 - 1) / (grains[which] * 16) * grains[which] * 16;
    if (pool->used + size > pool->held) {
        event(thread, UMF_RECORD_PROVIDER_ALLOC, pool->number, stacks[stack],
              address_of(pool, 0) + (1ull << 39) + pool->held, grown);
        pool->held += grown;
    }
    pool->used += size;
    event(thread, UMF_RECORD_ALLOC, pool->number, stacks[stack], address_of(pool, *slot), size);
    pool->slots[*slot] = (slot_t){size, START_TICKS + TICKS_OF_NS * sample.now, stacks[stack]};
    return true;
}

static void give_back(unsigned thread, unsigned which, uint32_t slot) {
    pool_t *pool = &sample.pools[which];
    event(thread, UMF_RECORD_FREE, pool->number, 0, address_of(pool, slot), 0);
    pool->used -= pool->slots[slot].size;
    pool->slots[slot].size = 0;
    pool->free_slots[pool->free_count++] = slot;
}

static void keep_live(void) {
    for (unsigned i = 0; i < 3; i++) {
        const pool_t *pool = &sample.pools[i];
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            const slot_t *at = &pool->slots[slot];
            if (at->size) {
                umf_record_event_t *live = section(UMF_RECORD_LIVE);
                /* Items in between are not in use. */
                live[take(UMF_RECORD_LIVE, 2)] = (umf_record_event_t){
                    .ticks = at->ticks,
                    .address = address_of(pool, slot),
                    .size = at->size,
                    .what = UMF_RECORD_WHAT(UMF_RECORD_ALLOC, 0, pool->number, at->stack)};
            }
        }
    }
}

/* --- what happens ----------------------------------------------------------------------------- */

/* A step: activations come and go in order, the cache in no order, a batch may be kept. */
static uint64_t step(unsigned number, bool leaks) {
    enum { LAYERS = 24, ENTRIES = 40 };
    uint32_t batch, layers[LAYERS], entries[ENTRIES];
    if (number < 40) {
        char words[32];
        snprintf(words, sizeof(words), "step %u", number);
        mark(0, words);
    }
    give(3, WEIGHTS, 2, 3 << 20, &batch);
    for (unsigned i = 0; i < LAYERS; i++) {
        give(0, ACTIVATIONS, i % 2, (1 + i % 5) * (128u << 10), &layers[i]);
    }
    for (unsigned i = 0; i < ENTRIES; i++) {
        give(1 + i % 2, CACHE, 4, 64 + (number * 31 + i * 97) % 4000, &entries[i]);
    }
    for (unsigned i = LAYERS; i-- > 0;) {
        give_back(i % 2, ACTIVATIONS, layers[i]);
    }
    for (unsigned i = 0; i < ENTRIES; i++) {
        give_back(1 + i % 2, CACHE, entries[i * 7 % ENTRIES]);
    }
    give_back(3, WEIGHTS, batch);
    if (leaks) {
        uint32_t kept;
        give(3, WEIGHTS, 3, 256 << 10, &kept);
    }
    return 2 * (LAYERS + ENTRIES + 1);
}

static void sleep_and_wake(void) {
    const pool_t *pool = &sample.pools[ACTIVATIONS];
    event(0, UMF_RECORD_SUSPEND, pool->number, 0, 0, pool->held);
    sample.now += 50000;
    event(0, UMF_RECORD_RESUME, pool->number, 0, 0, pool->held);
    event(0, UMF_RECORD_TRIM, pool->number, 0, pool->held, pool->held);
}

static void end_badly(void) {
    pool_t *pool = &sample.pools[WEIGHTS];
    uint32_t slot;
    give(2, WEIGHTS, 2, 1 << 20, &slot);
    give_back(2, WEIGHTS, slot);
    event(2, UMF_RECORD_FREE, pool->number, 0, address_of(pool, slot), 0);
    event(2, UMF_RECORD_FREE_REFUSED, pool->number, 0, address_of(pool, slot), 0);
    mark(0, "evaluation");
    give(0, WEIGHTS, 0, 100 << 20, &slot);
    event(0, UMF_RECORD_PROVIDER_REFUSED, pool->number, stacks[1], 0, 512 << 20);
    event(0, UMF_RECORD_REFUSED, pool->number, stacks[1], pool->held, 512 << 20);
    give_back(0, WEIGHTS, slot);
}

static void live_through(uint64_t events, bool fails) {
    unsigned leaks = 0;
    for (unsigned i = 0; i < 3; i++) {
        event(0, UMF_RECORD_CREATE, sample.pools[i].number, 0, 0, 0);
    }
    uint64_t done = 0;
    for (unsigned number = 0; done < events; number++) {
        bool keeps = fails && number % 3 == 0 && leaks < 500;
        done += step(number, keeps);
        leaks += keeps;
        if (number == 5) {
            sleep_and_wake();
        }
    }
    if (fails) {
        end_badly();
    }
}

static void end(void) {
    sample.header->ns[1] = START_NS + sample.now;
    sample.header->ticks[1] = START_TICKS + TICKS_OF_NS * sample.now;
    sample.header->flags |= UMF_RECORD_HAS_ENDED;
}

/* --- files ------------------------------------------------------------------------------------ */

/* The pool ends with all that lives in it. Of that, another allocation has the place of `lost`. */
static void end_weights(uint64_t lost) {
    const pool_t *pool = &sample.pools[WEIGHTS];
    umf_record_object_t *objects = section(UMF_RECORD_OBJECTS);
    event(0, UMF_RECORD_DESTROY, pool->number, 0, 0, 0);
    objects[pool->number].flags |= UMF_RECORD_OBJECT_IS_GONE;
    sample.header->ended_count = lost;
    sample.header->ended_bytes = 1000 * lost;
}

static bool ends_weights;

static void recording(const char *path, uint64_t events, uint64_t blocks, bool fails, bool dies) {
    /* A block of each thread is not full. A step has a few events of providers and marks besides.
     */
    blocks = blocks ? blocks : (events + events / 8) / UMF_RECORD_BLOCK_EVENTS + THREADS + 1;
    create(path, (uint64_t[UMF_RECORD_SECTIONS]){OBJECTS, TEXTS, MODULES, STACKS,
                                                 dies ? 0 : 6 * SLOTS, blocks});
    sample.header->flags = UMF_RECORD_HAS_STACKS | (dies ? 0 : UMF_RECORD_HAS_LIVE);
    text("");
    make_objects();
    make_modules();
    live_through(events, fails);
    if (ends_weights) {
        end_weights(blocks == 6 ? 3 : 0);
    }
    if (!dies) {
        keep_live();
        end();
    }
}

/* The file ends with the last event of its only block. */
static void cut_off(const char *path) {
    umf_record_block_t *block = section(UMF_RECORD_BLOCKS);
    size_t size = (size_t)((char *)&block->events[block->count] - sample.file);
    if (truncate(path, (off_t)size) != 0) {
        fail(path);
    }
}

/* What recording makes, but all of it in 4 KB. */
static void tiny(const char *path) {
    create(path, (uint64_t[UMF_RECORD_SECTIONS]){6, 1024, 1, 24, 8, 1});
    sample.is_single = true;
    sample.header->flags = UMF_RECORD_HAS_STACKS | UMF_RECORD_HAS_LIVE;
    text("");
    make_objects();
    make_modules();
    uint32_t slot;
    give(0, WEIGHTS, 3, 4096, &slot);
    give(0, CACHE, 4, 100, &slot);
    give_back(0, CACHE, slot);
    sleep_and_wake();
    end_badly();
    keep_live();
    end();
    cut_off(path);
}

static void sums(uint64_t reserved, uint64_t spare, uint64_t stale, uint64_t donated) {
    uint32_t number = sample.pools[ACTIVATIONS].number;
    event(0, UMF_RECORD_PAGES, number, 0, reserved << 20, spare << 20);
    event(0, UMF_RECORD_PAGES_MOVED, number, 0, stale << 20, donated << 20);
}

/* Pages of a block of 4 MiB that was freed serve a block of 6 MiB. */
static void live_in_arena(uint32_t number, uint64_t base) {
    const uint64_t mib = 1 << 20;
    event(0, UMF_RECORD_CREATE, number, 0, 0, 0);
    sums(0, 0, 0, 0);
    for (unsigned i = 0; i < 3; i++) {
        event(0, UMF_RECORD_PAGE_CREATE, number, stacks[0], 0, 2 * mib);
        event(0, UMF_RECORD_PROVIDER_ALLOC, number, stacks[0], base + 2 * i * mib, 2 * mib);
    }
    sums(6, 0, 0, 0);
    event(0, UMF_RECORD_ALLOC, number, stacks[0], base, 4 * mib);
    event(0, UMF_RECORD_ALLOC, number, stacks[1], base + 4 * mib, 2 * mib);
    event(0, UMF_RECORD_FREE, number, 0, base, 0);
    event(0, UMF_RECORD_PAGE_CREATE, number, stacks[1], 0, 2 * mib);
    event(0, UMF_RECORD_PROVIDER_FREE, number, 0, base, 2 * mib);
    event(0, UMF_RECORD_PROVIDER_FREE, number, 0, base + 2 * mib, 2 * mib);
    event(0, UMF_RECORD_PAGE_DONATE, number, stacks[1], base, 4 * mib);
    for (unsigned i = 3; i < 6; i++) {
        event(0, UMF_RECORD_PROVIDER_ALLOC, number, stacks[1], base + 2 * i * mib, 2 * mib);
    }
    sums(8, 0, 4, 4);
    event(0, UMF_RECORD_ALLOC, number, stacks[1], base + 6 * mib, 6 * mib);
    event(0, UMF_RECORD_PAGE_UNMAP, number, 0, base, 4 * mib);
    sums(8, 0, 0, 4);
    event(0, UMF_RECORD_FREE, number, 0, base + 4 * mib, 0);
    event(0, UMF_RECORD_PROVIDER_FREE, number, 0, base + 4 * mib, 2 * mib);
    event(0, UMF_RECORD_PAGE_RETIRE, number, 0, base + 4 * mib, 2 * mib);
    event(0, UMF_RECORD_PAGE_UNMAP, number, 0, base + 4 * mib, 2 * mib);
    event(0, UMF_RECORD_PAGE_DESTROY, number, 0, 0, 2 * mib);
    event(0, UMF_RECORD_PAGE_CREATE, number, 0, 0, mib);
    sums(7, 1, 0, 4);
}

static void arena(const char *path) {
    create(path, (uint64_t[UMF_RECORD_SECTIONS]){6, 1024, 1, 24, 0, 1});
    sample.is_single = true;
    sample.header->flags = UMF_RECORD_HAS_STACKS;
    text("");
    make_objects();
    make_modules();
    const pool_t *pool = &sample.pools[ACTIVATIONS];
    live_in_arena(pool->number, address_of(pool, 0));
    event(0, (umf_record_event_kind_t)(UMF_RECORD_PAGES_MOVED + 1), pool->number, 0, 1, 1);
    end();
    cut_off(path);
}

/* `bare`: taken without a recording with leaks. */
static void snapshot(const char *path, uint64_t grown, bool bare) {
    create(path, (uint64_t[UMF_RECORD_SECTIONS]){6, 1024, 1, 24, 8, 0, 3, 12});
    sample.header->kind = UMF_RECORD_FILE_SNAPSHOT;
    sample.header->flags = UMF_RECORD_HAS_STACKS | UMF_RECORD_HAS_LIVE | UMF_RECORD_HAS_ENDED;
    text("");
    make_objects();
    make_modules();
    umf_record_object_t *objects = section(UMF_RECORD_OBJECTS);
    for (unsigned i = 0; i < 3; i++) {
        pool_t *pool = &sample.pools[i];
        uint32_t slot = pool->free_slots[--pool->free_count];
        uint64_t base = address_of(pool, slot), grain = grains[i];
        pool->slots[slot] = (slot_t){grain * (i == CACHE ? grown : 1), START_TICKS, stacks[i + 2]};
        uint64_t first = take(UMF_RECORD_RUNS, 4);
        umf_record_run_t *run = (umf_record_run_t *)section(UMF_RECORD_RUNS) + first;
        run[0] = (umf_record_run_t){base, pool->slots[slot].size, 1, UMF_RECORD_STATE_LIVE};
        run[1] = (umf_record_run_t){run[0].base + run[0].size, grain, 4, UMF_RECORD_STATE_CACHED};
        run[2] = (umf_record_run_t){run[1].base + 4 * grain, 8 * grain, 1, UMF_RECORD_STATE_FREE};
        run[3] = (umf_record_run_t){run[2].base + 8 * grain, grain, 1, UMF_RECORD_STATE_UNKNOWN};
        uint64_t size = run[3].base + grain - base;
        ((umf_record_span_t *)section(
            UMF_RECORD_SPANS))[take(UMF_RECORD_SPANS, 1)] = (umf_record_span_t){
            base, size, pool->number, i == WEIGHTS ? UMF_RECORD_SPAN_IS_AWAY : 0, (uint32_t)first,
            4};
        umf_record_object_t *at = &objects[pool->number];
        at->live = pool->slots[slot].size;
        at->live_count = 1;
        at->held = at->peak = size;
        at->away = i == WEIGHTS ? size : 0;
        at->flags = i == WEIGHTS ? UMF_RECORD_OBJECT_IS_ASLEEP : 0;
        at->allocs = 10 * grown;
        at->frees = at->allocs - 1;
        objects[pool->provider].held = size;
    }
    if (bare) {
        objects[sample.pools[CACHE].number].allocs = objects[sample.pools[CACHE].number].frees = 0;
        sample.header->flags = UMF_RECORD_HAS_ENDED;
    } else {
        keep_live();
    }
}

/* A function at a line of model.cpp, with another one inlined there, for the place of a stack. */
static void named(const char *path) {
    static const char texts[] = "\0fill\0/src/fill.h\0evaluate\0/src/model.cpp";
    snapshot(path, 2, false);
    uint64_t address = ((uint64_t *)section(UMF_RECORD_STACKS))[stacks[3] + 1];
    umf_record_names_t head = {
        .count = 3, .text_bytes = sizeof(texts), .item_size = sizeof(umf_record_name_t)};
    umf_record_name_t names[] = {{address, 0, 1, 6, 12, UMF_RECORD_NAME_IS_INLINED},
                                 {address, 7, 18, 27, 34, 0},
                                 {0x7f1234500000u, 5, 18, 0, 0, 0}};
    sample.header->names = sample.size;
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || write(fd, &head, sizeof(head)) != (ssize_t)sizeof(head) ||
        write(fd, names, sizeof(names)) != (ssize_t)sizeof(names) ||
        write(fd, texts, sizeof(texts)) != (ssize_t)sizeof(texts)) {
        fail(path);
    }
    close(fd);
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[2] : "";
    uint64_t events = argc > 3 ? strtoull(argv[3], NULL, 10) : 20000;
    if (strcmp(what, "demo") == 0 || strcmp(what, "died") == 0) {
        recording(argv[1], events, 0, true, *what == 'd' && what[1] == 'i');
    } else if (strcmp(what, "destroyed") == 0 || strcmp(what, "destroyed_lost") == 0) {
        ends_weights = true;
        recording(argv[1], events, what[9] ? 6 : 0, true, false);
    } else if (strcmp(what, "clean") == 0) {
        recording(argv[1], events, 0, false, false);
    } else if (strcmp(what, "overwritten") == 0) {
        recording(argv[1], events, 6, true, false);
    } else if (strcmp(what, "tiny") == 0) {
        tiny(argv[1]);
    } else if (strcmp(what, "arena") == 0) {
        arena(argv[1]);
    } else if (strcmp(what, "snapshot") == 0 || strcmp(what, "grown") == 0) {
        snapshot(argv[1], *what == 'g' ? 5 : 2, false);
    } else if (strcmp(what, "named") == 0) {
        named(argv[1]);
    } else if (strcmp(what, "bare") == 0) {
        snapshot(argv[1], 2, true);
    } else {
        fputs("usage: record_sample <file> "
              "demo|clean|destroyed|destroyed_lost|overwritten|died|tiny|arena|snapshot|grown|"
              "named|bare [<events>]\n",
              stderr);
        return 2;
    }
    return munmap(sample.file, sample.size) == 0 ? 0 : 1;
}
