/*
 * A process that lies to readers of its memory (umf/view_format.h): it has a note and a table as
 * libumf has, but the target of the table is wrong. The word on the command line says how. It says
 * "ready" and its number, and waits for the end of its input.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <umf/view_format.h>

typedef struct pool_t {
    uint32_t index, birth;
    void *self, *fast, *kind, *tracked, *provider;
    char name[65];
    uint64_t asleep;
} pool_t;

typedef struct provider_t {
    uint32_t birth;
    void *root, *kind, *inner, *next;
    char name[65];
    uint64_t set;
} provider_t;

typedef struct span_t {
    uint64_t bytes;
    void *set, *cookie;
    uint8_t kind;
} span_t;

static pool_t pool = {.index = 1, .name = "liar"};
static provider_t provider = {.root = &provider, .name = "source"};
static pool_t *pools[1 << 20] = {NULL, &pool};
static uint32_t highest = 1, made = 3;
static span_t span[64];
static void *spans = span;
static umf_view_range_t range = {0, 8, 0, 8, 16};
static umf_view_kind_t kind = {.name = "coalescing", .how = UMF_VIEW_BLOCKS};
static void *fast[] = {&kind};

#define AT(type, member) (uint32_t) offsetof(type, member)
__attribute__((used)) umf_view_t umf_view = {
    .magic = UMF_VIEW_MAGIC,
    .version = UMF_VIEW_VERSION,
    .size = sizeof(umf_view_t),
    .self = &umf_view,
    .pools = pools,
    .highest = &highest,
    .spans = &spans,
    .span_made = &made,
    .range = &range,
    .pool_size = sizeof(pool_t),
    .pool_index = AT(pool_t, index),
    .pool_birth = AT(pool_t, birth),
    .pool_self = AT(pool_t, self),
    .pool_fast = AT(pool_t, fast),
    .pool_kind = AT(pool_t, kind),
    .pool_tracked = AT(pool_t, tracked),
    .pool_provider = AT(pool_t, provider),
    .pool_name = AT(pool_t, name),
    .pool_asleep = AT(pool_t, asleep),
    .fast_view = 0,
    .provider_size = sizeof(provider_t),
    .provider_birth = AT(provider_t, birth),
    .provider_root = AT(provider_t, root),
    .provider_kind = AT(provider_t, kind),
    .provider_name = AT(provider_t, name),
    .tracked_set = AT(provider_t, set),
    .tracked_inner = AT(provider_t, inner),
    .tracked_next = AT(provider_t, next),
    .tracked_refusals = AT(provider_t, set),
    .descriptor_name = 0,
    .name_size = 65,
    .span_size = sizeof(span_t),
    .span_bytes = AT(span_t, bytes),
    .span_set = AT(span_t, set),
    .span_cookie = AT(span_t, cookie),
    .span_kind = AT(span_t, kind),
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

/* --- lies ------------------------------------------------------------------------------------- */

static uint64_t shard[2], cycle[3];

static void lie_version(void) {
    umf_view.version = 77;
}

static void lie_damaged(void) {
    umf_view.pool_size = 0xffffffff;
}

static void lie_offsets(void) {
    umf_view.pool_name = sizeof(pool_t) - 1;
}

static void lie_elsewhere(void) {
    umf_view.self = &pool;
}

/* Lists without end: of the pools that a pool calls, and of segments. */
static void lie_endless(void) {
    provider.inner = provider.next = &provider;
    kind.how = UMF_VIEW_SHARDS;
    kind.shards = (umf_view_shards_t){.shards = 0, .most = 0xffffffff, .range = 0, .live = 8};
    shard[0] = (uintptr_t)cycle;
    cycle[0] = 1;
    cycle[1] = (uintptr_t)cycle; /* a segment, and the next one */
    static void *shards[2];
    shards[0] = shard;
    pool.self = shards;
}

static void lie_counts(void) {
    highest = made = 0xffffffff;
}

static void lie_names(void) {
    memset(pool.name, 0xff, sizeof(pool.name));
    strcpy(provider.name, "\033]0;owned\007\xc2\x9b"
                          "31m\xe2\x80\xae");
    memset(kind.name, 'A', sizeof(kind.name));
}

static void lie_addresses(void) {
    pool.fast = (void *)UINTPTR_MAX;
    pool.kind = (void *)(uintptr_t)1;
    pool.provider = (void *)(UINTPTR_MAX - 8);
    spans = (void *)(UINTPTR_MAX - 64);
}

static void lie_sizes(void) {
    for (unsigned i = 1; i < 4; i++) {
        span[i].bytes = UINT64_MAX - 1;
    }
}

static void lie_slabs(void) {
    static umf_view_slab_t slab = {.size = 0xffffff00, .bin = 0xfffffff8, .bin_size = 8};
    kind.how = UMF_VIEW_SLABS;
    kind.slab = slab;
    span[1].cookie = span[2].cookie = &pool;
}

static void lie_pages(void) {
    kind.how = UMF_VIEW_PAGES;
    kind.pages = (umf_view_pages_t){.record_size = 16,
                                    .shift = UMF_VIEW_NONE,
                                    .own = 0,
                                    .states = 8,
                                    .kinds = 200,
                                    .sizes = pools,
                                    .steps = pools};
    span[1].bytes = UINT64_MAX;
    span[1].cookie = &pool;
}

/* A page that this process has to supply, and never does. */
static void lie_waiting(void) {
    long fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    void *page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register pages = {
        .range = {.start = (uintptr_t)page, .len = 65536},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    if (fd < 0 || ioctl((int)fd, UFFDIO_API, &api) || ioctl((int)fd, UFFDIO_REGISTER, &pages)) {
        puts("cannot");
        exit(0);
    }
    pools[1] = page;
}

static void lie_closed(void) {
    prctl(PR_SET_DUMPABLE, 0);
}

static const struct {
    const char *name;
    void (*begin)(void);
} lies[] = {
    {"version", lie_version},     {"damaged", lie_damaged}, {"offsets", lie_offsets},
    {"elsewhere", lie_elsewhere}, {"endless", lie_endless}, {"counts", lie_counts},
    {"names", lie_names},         {"sizes", lie_sizes},     {"addresses", lie_addresses},
    {"slabs", lie_slabs},         {"pages", lie_pages},     {"waiting", lie_waiting},
    {"closed", lie_closed},
};

int main(int argc, char **argv) {
    pool.fast = fast;
    pool.tracked = pool.provider = &provider;
    for (unsigned i = 1; i < 4; i++) {
        span[i] = (span_t){.bytes = 4096, .set = &provider.set, .kind = 1};
    }
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        if (argc > 1 && strcmp(argv[1], lies[i].name) == 0) {
            lies[i].begin();
        }
    }
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}
