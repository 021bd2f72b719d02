/*
 * Handles of every kind of memory: an input changes the bytes of a good one, and a consumer opens
 * it, with the number of bytes and, if they are all there, without. Whatever it finds, it
 * fails cleanly or gives memory that is there, reads nothing behind them, and leaves nothing open.
 *
 * Input: one letter for the kind (see `kinds`), one digit of flags, one character for the place (in
 * words of 4 bytes); the rest is added to the bytes from there on, bit by bit. The software drivers
 * trust their arguments, as drivers do, so that opened memory is not read.
 */
#include "fuzz/support.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

#include "ipc/wire.h"
#include "peer/broker.h"
#include "providers/file/locator.h"
#include "providers/os/handle.h"
#include "system/checksum.h"
#include "system/common.h"
#include "system/os.h"

#define HANDLE_MAX 1024
#define SIZE ((size_t)2 << 20) /* of an allocation */

enum {
    FIX_HEADER = 1,  /* the sum of the header is right again */
    FIX_DATA = 2,    /* those of the provider, too */
    GOOD_BEFORE = 4, /* the good one was opened before */
    CUT = 8,         /* what follows the changed bytes did not arrive */
};

typedef struct kind_t {
    char letter;
    bool is_real;     /* no driver between us and the memory */
    const char *text; /* of the pool */
    void (*fix)(unsigned char *data, size_t size);
    umf_memory_pool_handle_t producer;
    char *ptr;
    size_t size;
    _Alignas(max_align_t) unsigned char handle[HANDLE_MAX];
} kind_t;

/* --- sums --- */

static void fix_os(unsigned char *data, size_t size) {
    umf_os_handle_t handle;
    memcpy(&handle, data, sizeof(handle));
    size_t rest = size - sizeof(handle);
    size_t length = handle.name_length < rest ? handle.name_length : rest;
    handle.name_check = length ? umf_sum(data + sizeof(handle), length) : 0;
    handle.check = 0;
    handle.check = umf_sum(&handle, sizeof(handle));
    memcpy(data, &handle, sizeof(handle));
}

static void fix_file(unsigned char *data, size_t size) {
    umf_locator_t locator;
    memcpy(&locator, data, sizeof(locator));
    size_t rest = size - sizeof(locator);
    size_t length = locator.path_length < rest ? locator.path_length : rest;
    locator.path_check = umf_sum(data + sizeof(locator), length);
    locator.check = 0;
    locator.check = umf_sum(&locator, sizeof(locator));
    memcpy(data, &locator, sizeof(locator));
}

/* Magic, version, kind; then the sum. */
static void fix_eighth(unsigned char *data, size_t size) {
    uint64_t sum = 0;
    memcpy(data + 8, &sum, sizeof(sum));
    sum = umf_sum(data, size);
    memcpy(data + 8, &sum, sizeof(sum));
}

static kind_t kinds[] = {
    {.letter = 'o', .is_real = true, .text = "proxy over os:visibility=shared", .fix = fix_os},
    {.letter = 'f', .is_real = true, .text = NULL, .fix = fix_file},
    {.letter = 'v',
     .is_real = true,
     .text = "proxy over linux_vmm:piece_size=8M",
     .fix = fix_eighth},
    {.letter = 'c', .text = "proxy over cuda:memory_type=device,device=0"},
    {.letter = 'w',
     .text = "proxy over cuda_vmm:share=fd,piece_size=8M,device=0",
     .fix = fix_eighth},
    {.letter = 'z', .text = "proxy over level_zero", .fix = fix_eighth},
};

/* --- the good ones --- */

/* The library finds them among those that are loaded. */
static void load_drivers(void) {
#ifdef UMF_TEST_FAKE_CUDA
    FUZZ_CHECK(dlopen(UMF_TEST_FAKE_CUDA, RTLD_NOW | RTLD_GLOBAL) != NULL);
#endif
#ifdef UMF_TEST_FAKE_LEVEL_ZERO
    setenv("ZE_ENABLE_ALT_DRIVERS", UMF_TEST_FAKE_LEVEL_ZERO, 1);
#endif
}

/* A file that needs no name in a folder. */
static const char *file_text(void) {
    static char text[64];
    if (!text[0]) {
        int fd;
        FUZZ_CHECK(umf_os_memfd("fuzz", false, &fd) == 0);
        snprintf(text, sizeof(text), "proxy over file:visibility=shared,path=/proc/self/fd/%d", fd);
    }
    return text;
}

static const char *text_of(const kind_t *kind) {
    return kind->text ? kind->text : file_text();
}

/* Kinds that are not built, or whose driver is not here, stay without a producer. */
static void make_good(kind_t *kind) {
    umf_ipc_handle_t handle;
    if (umfPoolCreateFromText(text_of(kind), &kind->producer) != UMF_RESULT_SUCCESS) {
        kind->producer = NULL;
        return;
    }
    kind->ptr = umfPoolMalloc(kind->producer, SIZE);
    FUZZ_CHECK(kind->ptr &&
               umfGetIPCHandle(kind->ptr + 64, &handle, &kind->size) == UMF_RESULT_SUCCESS);
    FUZZ_CHECK(kind->size <= HANDLE_MAX);
    memcpy(kind->handle, handle, kind->size);
    umfPutIPCHandle(handle);
}

/* The software Level Zero driver fails a program that ends with something alive. */
static void destroy_level_zero(void) {
    const kind_t *kind = &kinds[UMF_COUNT_OF(kinds) - 1];
    if (kind->producer) {
        umfFree(kind->ptr);
        umfPoolDestroy(kind->producer);
    }
}

static void prepare(void) {
    static bool is_done;
    if (is_done) {
        return;
    }
    is_done = true;
    load_drivers();
    for (size_t i = 0; i < UMF_COUNT_OF(kinds); i++) {
        make_good(&kinds[i]);
    }
    atexit(destroy_level_zero);
    umf_broker_set_timeout(50);
}

/* --- an input --- */

/* The sum of the data is one of the header's fields, and belongs to it. */
static void fix_header(unsigned char *handle, size_t size) {
    umf_wire_t wire;
    uint64_t offset;
    memcpy(&offset, handle + UMF_WIRE_FIXED, sizeof(offset));
    umf_wire_set_offset(handle, umf_wire_fixed_sum(handle), offset);
    if (umf_wire_check(handle, HANDLE_MAX, &wire) == UMF_RESULT_SUCCESS &&
        wire.data_size == size - UMF_WIRE_HEADER) {
        umf_wire_pack(&wire, handle);
    }
}

/* Returns how many bytes there are. */
static size_t change(const kind_t *kind, unsigned char *handle, const char *text, size_t length) {
    size_t at = length > 2 ? (size_t)(unsigned char)text[2] * 4 : 0;
    memcpy(handle, kind->handle, kind->size);
    for (size_t i = 3; i < length && at < kind->size; i++, at++) {
        handle[at] ^= (unsigned char)text[i];
    }
    unsigned flags = length > 1 ? (unsigned char)text[1] : 0;
    if ((flags & FIX_DATA) && kind->fix) {
        kind->fix(handle + UMF_WIRE_HEADER, kind->size - UMF_WIRE_HEADER);
    }
    if (flags & FIX_HEADER) {
        fix_header(handle, kind->size);
    }
    return (flags & CUT) && at < kind->size ? at : kind->size;
}

/* All of it is there, as far as its protection, as in the handle, lets us read. */
static void look(const kind_t *kind, const unsigned char *handle, const char *ptr) {
    umf_wire_t wire;
    FUZZ_CHECK(umf_wire_check(handle, HANDLE_MAX, &wire) == UMF_RESULT_SUCCESS);
    FUZZ_CHECK(wire.offset < wire.size);
    size_t protection = kind->letter == 'o'   ? offsetof(umf_os_handle_t, protection)
                        : kind->letter == 'f' ? offsetof(umf_locator_t, protection)
                                              : 0;
    const unsigned char *data = handle + UMF_WIRE_HEADER;
    bool is_readable =
        protection == 0 ||
        memcmp(data + protection, kind->handle + UMF_WIRE_HEADER + protection, 4) == 0;
    if (kind->is_real && is_readable) {
        const volatile char *base = ptr - wire.offset;
        (void)base[0];
        (void)base[wire.size - 1];
    }
}

static void close_opened(const kind_t *kind, const unsigned char *handle, umf_result_t result,
                         const char *ptr) {
    if (result == UMF_RESULT_SUCCESS) {
        look(kind, handle, ptr);
        FUZZ_CHECK(umfCloseIPCHandle((void *)(uintptr_t)ptr) == UMF_RESULT_SUCCESS);
    } else {
        FUZZ_CHECK(ptr == NULL);
    }
}

/* In memory that ends where the handle does, so that a sanitizer sees a byte too many. */
static void open_handle(const kind_t *kind, umf_ipc_handler_handle_t handler,
                        const unsigned char *handle, size_t size) {
    unsigned char *copy = malloc(size);
    void *ptr = NULL;
    FUZZ_CHECK(copy != NULL || size == 0);
    memcpy(copy, handle, size);
    umf_result_t result = umfOpenIPCHandleSized(handler, copy, size, &ptr);
    close_opened(kind, copy, result, ptr);
    if (size == kind->size) {
        ptr = NULL;
        result = umfOpenIPCHandle(handler, (umf_ipc_handle_t)copy, &ptr);
        close_opened(kind, copy, result, ptr);
    }
    free(copy);
}

static void open_both(const kind_t *kind, const unsigned char *handle, size_t size,
                      bool good_before) {
    umf_memory_pool_handle_t pool;
    umf_ipc_handler_handle_t handler;
    void *good = NULL;
    if (umfPoolCreateFromText(text_of(kind), &pool) != UMF_RESULT_SUCCESS) {
        return; /* the fence forbids to open files for this input */
    }
    FUZZ_CHECK(umfPoolGetIPCHandler(pool, &handler) == UMF_RESULT_SUCCESS);
    if (good_before) {
        umfOpenIPCHandle(handler, (umf_ipc_handle_t)(uintptr_t)kind->handle, &good);
    }
    open_handle(kind, handler, handle, size);
    FUZZ_CHECK(!good || umfCloseIPCHandle(good) == UMF_RESULT_SUCCESS);
    FUZZ_CHECK(umfPoolDestroy(pool) == UMF_RESULT_SUCCESS);
}

/* The number that the next descriptor gets: greater when one was left open. The broker closes its
 * end of a connection a little later than we do. */
static int next_descriptor(int wanted) {
    int fd = -1;
    for (int tries = 0; fd != wanted && tries < 1000; tries++) {
        if (tries > 0) {
            usleep(1000);
        }
        fd = fcntl(0, F_DUPFD_CLOEXEC, 0);
        FUZZ_CHECK(fd >= 0);
        close(fd);
    }
    return fd;
}

static void run(char *text, size_t length) {
    _Alignas(max_align_t) unsigned char handle[HANDLE_MAX];
    static int next = -1;
    prepare();
    for (size_t i = 0; length > 1 && i < UMF_COUNT_OF(kinds); i++) {
        const kind_t *kind = &kinds[i];
        if (kind->letter == text[0] && kind->producer) {
            size_t size = change(kind, handle, text, length);
            next = next == -1 ? next_descriptor(-1) : next;
            open_both(kind, handle, size, (text[1] & GOOD_BEFORE) != 0);
            FUZZ_CHECK(next_descriptor(next) == next);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_run(data, size, run);
    return 0;
}
