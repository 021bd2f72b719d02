/*
 * The system behind a few primitives (Linux): the fault hook, texts, facts about the machine.
 *
 * Mappings are in os_memory.c, open files and DAX in os_file.c, their space and content in
 * os_content.c, names and folders in os_path.c, processes in os_process.c.
 */
#include "system/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "system/os_own.h"

_Atomic(umf_os_fault_t) umf_os_fault;

void umf_os_set_fault(umf_os_fault_t fault) {
    atomic_store(&umf_os_fault, fault);
}

const char *umf_os_error_text(int error, char *buffer, size_t size) {
#ifndef __GLIBC__
    const char *text = strerror_r(error, buffer, size) == 0 ? buffer : NULL;
#elif __GLIBC__ > 2 || __GLIBC_MINOR__ >= 32
    /* strerror() would translate the text, which locks and allocates. */
    const char *text = strerrordesc_np(error);
#else
    const char *text = strerror_r(error, buffer, size);
#endif
    if (!text) {
        snprintf(buffer, size, "Unknown error %d", error);
        text = buffer;
    }
    return text;
}

/* Concurrent threads store the same value. */
static UMF_COLD size_t os_sysconf_ask(atomic_size_t *cache, int name, size_t fallback) {
    long answer = sysconf(name);
    size_t value = answer > 0 ? (size_t)answer : fallback;
    atomic_store_explicit(cache, value, memory_order_relaxed);
    return value;
}

/* The first answer is cached. */
UMF_INLINE size_t os_sysconf(atomic_size_t *cache, int name, size_t fallback) {
    size_t value = atomic_load_explicit(cache, memory_order_relaxed);
    return umf_likely(value != 0) ? value : os_sysconf_ask(cache, name, fallback);
}

size_t umf_os_page_size(void) {
    static atomic_size_t cache;
    return os_sysconf(&cache, _SC_PAGESIZE, 4096);
}

size_t umf_os_memory(void) {
    static atomic_size_t cache;
    return os_sysconf(&cache, _SC_PHYS_PAGES, 1) * umf_os_page_size();
}

size_t umf_os_cache_line_size(void) {
#ifdef _SC_LEVEL1_DCACHE_LINESIZE
    static atomic_size_t cache;
    return os_sysconf(&cache, _SC_LEVEL1_DCACHE_LINESIZE, 64);
#else
    return 64; /* musl has no such name */
#endif
}

size_t umf_os_cpu_count(void) {
    static atomic_size_t cache;
    return os_sysconf(&cache, _SC_NPROCESSORS_ONLN, 1);
}

int umf_os_random(void *bytes, size_t size) {
    int error = os_fault("random");
    if (error != 0) {
        return error;
    }
    ssize_t got = getrandom(bytes, size, GRND_NONBLOCK);
    return got == (ssize_t)size ? 0 : (got == -1 ? errno : EAGAIN);
}

int umf_os_read_text(const char *path, char *text, size_t size) {
    size_t length = 0;
    ssize_t count;
    int fd = -1;
    int error = os_open(path, O_RDONLY, 0, &fd);
    if (error != 0) {
        return error;
    }
    do {
        count = read(fd, text + length, size - 1 - length);
        length += count > 0 ? (size_t)count : 0;
    } while (count > 0 || (count == -1 && errno == EINTR));
    error = os_result(count);
    text[length] = '\0';
    close(fd);
    return error;
}

/* FNV-1a, 64 bits. */
static uint64_t os_hash_text(const char *text) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t umf_os_boot_id(void) {
    static _Atomic uint64_t cache;
    char text[64];
    uint64_t id = atomic_load_explicit(&cache, memory_order_relaxed);
    if (id == 0 && umf_os_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text)) == 0) {
        id = os_hash_text(text) | 1;
        atomic_store_explicit(&cache, id, memory_order_relaxed);
    }
    return id;
}
