#include "pools/jemalloc/sizes.h"

#include <jemalloc/jemalloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <umf/result.h>

#include "base/lock.h"
#include "base/log.h"
#include "system/os.h"
#include "system/pause.h"

#define ARENAS_PER_CPU 4

/* The page size for which jemalloc was built (cmake/jemalloc.cmake). */
#define JEMALLOC_PAGE ((size_t)1 << UMF_JEMALLOC_LG_PAGE)
_Static_assert(JEMALLOC_PAGE >= UMF_PAGE_SIZE, "its extents are whole pages of the page cache");

/* The addresses and memory that jemalloc's start takes: two blocks of 2 MiB with their alignment.
 */
#define START_ROOM ((size_t)8 << 20)

#define BIN_FIRST_PAGES ((size_t)16 << 10) /* from this size on the page cache serves objects */
/* A thread caches about so many bytes of each size, but at least so many objects. */
#define BIN_BYTES ((size_t)128 << 10)
#define BIN_OBJECTS_MIN 16

enum {
    SIZES_NONE,
    SIZES_READY,
    SIZES_FAILED,
    SIZES_STARTING, /* plus the fork count of the process that starts jemalloc */
};

umf_jemalloc_sizes_t umf_jemalloc_sizes;

static bool mib_find(const char *name, umf_mib_t *mib) {
    mib->length = UMF_COUNT_OF(mib->ids);
    return umf_je_mallctlnametomib(name, mib->ids, &mib->length) == 0;
}

/* Reads a number at `mib` with `index` as its third element. */
static size_t mib_read(umf_mib_t mib, size_t index, size_t size) {
    union {
        size_t size;
        unsigned number;
        uint32_t number32;
    } value = {0};
    mib.ids[2] = index;
    umf_je_mallctlbymib(mib.ids, mib.length, &value, &size, NULL, 0);
    return size == sizeof(size_t) ? value.size : value.number;
}

static bool bin_add(size_t size, size_t slab_size) {
    if (umf_jemalloc_sizes.bins == UMF_JEMALLOC_BINS_MAX) {
        return false;
    }
    uint32_t bin = umf_jemalloc_sizes.bins++;
    umf_jemalloc_sizes.size[bin] = (uint32_t)size;
    umf_jemalloc_sizes.slab_size[bin] = (uint32_t)slab_size;
    umf_starts_set_size(&umf_jemalloc_sizes.starts, bin + 1, size);
    umf_jemalloc_sizes.capacity[bin] = size <= UMF_JEMALLOC_BIN_FINE
                                           ? umf_magazine_capacity(BIN_BYTES, size, BIN_OBJECTS_MIN)
                                           : umf_magazine_capacity_large(size);
    umf_jemalloc_sizes.capacity[bin].is_kept = size > UMF_JEMALLOC_BIN_LARGEST;
    return true;
}

/* Sizes below a granule are left out: such an object gets a granule. */
static bool bins_add_slabs(void) {
    unsigned count = 0;
    size_t length = sizeof(count);
    umf_mib_t size, slab;
    if (umf_je_mallctl("arenas.nbins", &count, &length, NULL, 0) ||
        !mib_find("arenas.bin.0.size", &size) || !mib_find("arenas.bin.0.slab_size", &slab)) {
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        size_t bytes = mib_read(size, i, sizeof(size_t));
        if (bytes >= BIN_FIRST_PAGES) {
            break;
        }
        if (bytes % UMF_JEMALLOC_GRANULE == 0 &&
            !bin_add(bytes, mib_read(slab, i, sizeof(size_t)))) {
            return false;
        }
    }
    umf_jemalloc_sizes.slab_bins = umf_jemalloc_sizes.object_bins = umf_jemalloc_sizes.bins;
    return umf_jemalloc_sizes.bins > 0 && umf_jemalloc_sizes.size[0] == UMF_JEMALLOC_GRANULE;
}

/* Four sizes for each power of two, as in jemalloc. */
static bool bins_add_pages(void) {
    size_t step = BIN_FIRST_PAGES / 4;
    for (size_t size = BIN_FIRST_PAGES; size <= UMF_JEMALLOC_KEPT_LARGEST; size += step) {
        if (size > UMF_JEMALLOC_BIN_LARGEST) {
            umf_jemalloc_sizes.of_block[size >> UMF_PAGE_SHIFT] = (uint8_t)umf_jemalloc_sizes.bins;
        }
        if (!bin_add(size, 0)) {
            return false;
        }
        umf_jemalloc_sizes.object_bins += size <= UMF_JEMALLOC_BIN_LARGEST;
        if (size == 8 * step) {
            step *= 2;
        }
    }
    return true;
}

static void bins_index(void) {
    uint32_t bin = 0;
    for (size_t i = 0; i < UMF_COUNT_OF(umf_jemalloc_sizes.of_size); i++) {
        bin += umf_jemalloc_sizes.size[bin] < i * UMF_JEMALLOC_GRANULE;
        umf_jemalloc_sizes.of_size[i] = (uint8_t)bin;
    }
    for (size_t i = UMF_JEMALLOC_BIN_FINE / UMF_PAGE_SIZE;
         i < UMF_COUNT_OF(umf_jemalloc_sizes.of_pages); i++) {
        bin += umf_jemalloc_sizes.size[bin] < i * UMF_PAGE_SIZE;
        umf_jemalloc_sizes.of_pages[i] = (uint8_t)bin;
    }
    for (size_t i = 1; i < UMF_COUNT_OF(umf_jemalloc_sizes.small.magazine); i++) {
        umf_jemalloc_sizes.small.magazine[i] = umf_magazine_offset(umf_jemalloc_bin_of(i));
    }
}

/* jemalloc may be built for larger pages than those of the machine, but not for smaller ones. */
umf_result_t umf_jemalloc_sizes_probe(char *why, size_t why_size) {
    size_t page = umf_os_page_size();
    if (page <= JEMALLOC_PAGE) {
        return UMF_RESULT_SUCCESS;
    }
    snprintf(why, why_size,
             "its jemalloc is for pages of at most %zu bytes, this machine's have %zu: configure "
             "libumf with -DUMF_JEMALLOC_LG_PAGE=%d",
             JEMALLOC_PAGE, page, __builtin_ctzll(page));
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

static bool sizes_ask(void) {
    size_t page = 0, length = sizeof(page);
    return umf_je_mallctl("arenas.page", &page, &length, NULL, 0) == 0 && page == JEMALLOC_PAGE &&
           mib_find("arenas.create", &umf_jemalloc_sizes.arenas_create) &&
           mib_find("arena.0.extent_hooks", &umf_jemalloc_sizes.arena_hooks) &&
           mib_find("arena.0.purge", &umf_jemalloc_sizes.arena_purge) &&
           mib_find("arena.0.reset", &umf_jemalloc_sizes.arena_reset) &&
           mib_find("arena.0.destroy", &umf_jemalloc_sizes.arena_destroy) && bins_add_slabs() &&
           bins_add_pages();
}

static bool sizes_init(void) {
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t arenas = (size_t)(cpus > 0 ? cpus : 1) * ARENAS_PER_CPU;
    umf_jemalloc_sizes.default_arenas =
        (uint32_t)(arenas < UMF_JEMALLOC_ARENAS_MAX ? arenas : UMF_JEMALLOC_ARENAS_MAX);
    if (!sizes_ask()) {
        UMF_LOG_ERROR("the jemalloc of this build lacks a requirement of the pool (pages of "
                      "%zu bytes, sizes from 16 bytes on)",
                      JEMALLOC_PAGE);
        return false;
    }
    bins_index();
    return true;
}

/* jemalloc crashes if its start gets no memory (for example under ulimit -v). */
static bool sizes_have_room(void) {
    void *room = NULL;
    int error =
        umf_os_map(&room, START_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (error != 0) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "jemalloc is not started: %zu MiB of addresses, which its start may take, "
                      "cannot be had",
                      START_ROOM >> 20);
        return false;
    }
    umf_os_unmap(room, START_ROOM);
    return true;
}

/* jemalloc takes a key at its start, and does not say that there was none. */
static bool sizes_have_key(void) {
    pthread_key_t key;
    if (pthread_key_create(&key, NULL) != 0) {
        UMF_LOG_ERROR("jemalloc is not started: the process has no thread-specific key left "
                      "(pthread_key_create), and jemalloc needs one: create the pool earlier");
        return false;
    }
    pthread_key_delete(key);
    return true;
}

/*
 * The first pool starts jemalloc. No lock is held meanwhile, because jemalloc registers fork
 * handlers at its start. If another thread forks at that moment, the child finds jemalloc half
 * started and must not enter it.
 */
umf_result_t umf_jemalloc_sizes_start(void) {
    char why[200];
    umf_result_t fits = umf_jemalloc_sizes_probe(why, sizeof(why));
    if (fits != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("no jemalloc pool here: %s", why);
        return fits;
    }
    for (unsigned round = 0;; round++) {
        unsigned state = SIZES_NONE;
        unsigned starting = SIZES_STARTING + umf_fork_count();
        if (atomic_compare_exchange_strong(&umf_jemalloc_sizes.state, &state, starting)) {
            umf_result_t may = !sizes_have_room()  ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY
                               : !sizes_have_key() ? UMF_RESULT_ERROR_OUT_OF_RESOURCES
                                                   : UMF_RESULT_SUCCESS;
            if (may != UMF_RESULT_SUCCESS) {
                /* a later pool may find memory, or a key */
                atomic_store(&umf_jemalloc_sizes.state, SIZES_NONE);
                return may;
            }
            state = sizes_init() ? SIZES_READY : SIZES_FAILED;
            atomic_store(&umf_jemalloc_sizes.state, state);
        }
        if (state == SIZES_READY) {
            return UMF_RESULT_SUCCESS;
        }
        if (state != starting) {
            UMF_LOG_ERROR("jemalloc did not start%s",
                          state == SIZES_FAILED
                              ? ""
                              : ": this process was forked while it did; create a jemalloc pool "
                                "before forking");
            return UMF_RESULT_ERROR_UNKNOWN;
        }
        umf_pause(round);
    }
}
