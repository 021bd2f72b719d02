#include "fuzz/support.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <umf/providers/provider_fixed_memory.h>

#include "base/log.h"
#include "base/meta.h"
#include "ctl/ctl.h"
#include "system/os.h"

#define PROVIDER_BYTES ((size_t)32 << 20)
#define ADDRESSES_MORE ((size_t)4 << 30)

static char folder[4096];
static atomic_bool has_outside_names; /* this input has a '/'; threads of the library look, too */

_Noreturn void fuzz_fail(const char *what) {
    fprintf(stderr, "fuzz: not so: %s\n", what);
    abort();
}

/* --- the fence --- */

static int fence(const char *call) {
    if (strcmp(call, "shm_open") == 0 || strcmp(call, "shm_unlink") == 0) {
        return EACCES;
    }
    return has_outside_names && strcmp(call, "open") == 0 ? EACCES : 0;
}

static void folder_remove(void) {
    if (chdir("/") == 0) {
        rmdir(folder);
    }
}

/* So much may be mapped beyond the start: sanitizers touch their shadow of all of it. */
static void addresses_limit(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    FUZZ_CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    struct rlimit limit;
    FUZZ_CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = pages * umf_os_page_size() + ADDRESSES_MORE;
    FUZZ_CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void fence_up(void) {
    static int is_up;
    if (is_up) {
        return;
    }
    is_up = 1;
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/umf_fuzz_XXXXXX", temporary ? temporary : "/tmp");
    FUZZ_CHECK(mkdtemp(folder) && chdir(folder) == 0);
    atexit(folder_remove); /* libFuzzer ends without it: search.sh cleans up there */
    addresses_limit();
    umf_os_set_fault(fence);
}

static void folder_empty(void) {
    DIR *here = opendir(".");
    FUZZ_CHECK(here != NULL);
    for (struct dirent *entry; (entry = readdir(here)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            FUZZ_CHECK(unlink(entry->d_name) == 0);
        }
    }
    closedir(here);
}

/* --- one input --- */

static void settings_forget(void) {
    umf_log_config_t config = {.level = UMF_LOG_LEVEL_ERROR, .flush_level = UMF_LOG_LEVEL_ERROR};
    umf_log_set_config(&config);
    umf_log_set_output("stderr");
    umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
    umf_ctl_defaults_forget(&umf_ctl_provider_defaults);
}

static size_t run_once(const uint8_t *data, size_t size, void (*run)(char *text, size_t length)) {
    char *text = malloc(size + 1);
    FUZZ_CHECK(text != NULL);
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    has_outside_names = memchr(text, '/', size) != NULL;
    run(text, size);
    free(text);
    settings_forget();
    folder_empty();
    return umf_meta_used();
}

/* Tables that grow with use settle after some runs; leaks do not. */
void fuzz_run(const uint8_t *data, size_t size, void (*run)(char *text, size_t length)) {
    static size_t most; /* after any input so far */
    fence_up();
    size_t used = run_once(data, size, run);
    for (int repeats = 0; used > most; repeats++) {
        FUZZ_CHECK(repeats < 8 && "metadata is left behind");
        most = used;
        used = run_once(data, size, run);
    }
}

/* --- pieces --- */

char *fuzz_line(char **text) {
    char *line = *text;
    if (!line || *line == '\0') {
        return NULL;
    }
    char *end = strchr(line, '\n');
    if (end) {
        *end = '\0';
    }
    *text = end ? end + 1 : NULL;
    return line;
}

umf_memory_provider_handle_t fuzz_provider(void) {
    static void *memory;
    umf_fixed_memory_provider_params_handle_t params = NULL;
    umf_memory_provider_handle_t provider = NULL;
    if (!memory) {
        memory = mmap(NULL, PROVIDER_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        FUZZ_CHECK(memory != MAP_FAILED);
    }
    FUZZ_CHECK(umfFixedMemoryProviderParamsCreate(memory, PROVIDER_BYTES, &params) ==
               UMF_RESULT_SUCCESS);
    FUZZ_CHECK(umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &provider) ==
               UMF_RESULT_SUCCESS);
    umfFixedMemoryProviderParamsDestroy(params);
    return provider;
}

void fuzz_use_pool(umf_memory_pool_handle_t pool) {
    static const size_t sizes[] = {1, 64, 5000, 70000};
    unsigned char *blocks[sizeof(sizes) / sizeof(sizes[0])];
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        blocks[i] = umfPoolMalloc(pool, sizes[i]);
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        umf_memory_pool_handle_t found = NULL;
        if (blocks[i]) {
            FUZZ_CHECK(umfPoolByPtr(blocks[i] + sizes[i] - 1, &found) == UMF_RESULT_SUCCESS);
            FUZZ_CHECK(found == pool);
            FUZZ_CHECK(umfPoolFree(pool, blocks[i]) == UMF_RESULT_SUCCESS);
        }
    }
}
