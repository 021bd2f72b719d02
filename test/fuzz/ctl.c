/*
 * Paths of umfCtlGet, umfCtlSet and umfCtlExec. A line is one call:
 *
 *     get <size> <path> [arguments]
 *     set <size> <path> [arguments] = <value>
 *     exec <path> [arguments]
 *
 * A value that begins with '#' is a number, otherwise it is text. An argument for "{}" is @<name>,
 * or
 * #<index> below 4096, from where on an argument may be the address of a name. Where the path needs
 * for the handle of a pool or a provider the target gives one by itself, for a wrong handle is not
 * allowed.
 */
#include "fuzz/support.h"

#include <stdlib.h>
#include <string.h>

#include <umf/experimental/ctl.h>
#include <umf/pools/pool_disjoint.h>
#include <umf/pools/pool_proxy.h>

#define ARGUMENTS 8
#define BUFFER 512

static umf_memory_provider_handle_t provider;
static umf_memory_pool_handle_t pools[3];

typedef struct call_t {
    char *path;
    size_t size;
    const void *given[ARGUMENTS]; /* by the line */
    size_t given_count;
    const void *arguments[ARGUMENTS]; /* for the call */
} call_t;

/* Cuts the next word off the front. */
static char *word(char **line) {
    char *begin = *line + strspn(*line, " ");
    char *end = begin + strcspn(begin, " ");
    *line = *end ? end + 1 : end;
    *end = '\0';
    return begin;
}

static void read_arguments(call_t *call, char **line) {
    while (call->given_count < ARGUMENTS) {
        char *rest = *line + strspn(*line, " ");
        if (*rest != '@' && *rest != '#') {
            return;
        }
        *line = rest;
        char *argument = word(line);
        call->given[call->given_count++] =
            *argument == '@' ? (const void *)(argument + 1)
                             : (const void *)(uintptr_t)(strtoul(argument + 1, NULL, 0) % 4096);
    }
}

/* The text of the element when the roots are walked; "" if it cannot be a node there. */
static const char *resolved(const call_t *call, const char *element, size_t length, size_t *used,
                            char *copy) {
    if (length == 2 && memcmp(element, "{}", 2) == 0) {
        const void *given = *used < call->given_count ? call->given[*used] : NULL;
        return (uintptr_t)given < 4096 ? "" : given;
    }
    if (length > 15) {
        return "";
    }
    memcpy(copy, element, length);
    copy[length] = '\0';
    return copy;
}

/* Only behind umf.pool.by_handle and umf.provider.by_handle, as written or by arguments, a handle
 * stands; the rest are names and indices in the order given. */
static void place_arguments(call_t *call) {
    const char *at = call->path;
    const char *handle = NULL;
    size_t used = 0, count = 0;
    int is_pool = 0, is_provider = 0;
    for (size_t depth = 0; *at && count < ARGUMENTS; depth++) {
        char copy[16];
        size_t length = strcspn(at, ".");
        int is_open = length == 2 && memcmp(at, "{}", 2) == 0;
        const char *name = resolved(call, at, length, &used, copy);
        if (depth == 1) {
            is_pool = strcmp(name, "pool") == 0;
            is_provider = strcmp(name, "provider") == 0;
        } else if (depth == 2 && strcmp(name, "by_handle") == 0) {
            handle = is_pool ? (const char *)pools[0] : is_provider ? (const char *)provider : NULL;
        }
        if (is_open) {
            call->arguments[count++] = depth == 3 && handle       ? handle
                                       : used < call->given_count ? call->given[used++]
                                                                  : NULL;
        }
        at += length + (at[length] == '.');
    }
}

#define EACH(a) a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]

static void get(const call_t *call) {
    char *buffer = malloc(call->size);
    FUZZ_CHECK(buffer != NULL);
    umfCtlGet(call->path, buffer, call->size, EACH(call->arguments));
    free(buffer);
}

static void set(const call_t *call, const char *value) {
    char *buffer = calloc(1, call->size);
    FUZZ_CHECK(buffer != NULL);
    if (*value == '#') {
        long long number = strtoll(value + 1, NULL, 0);
        memcpy(buffer, &number, call->size < sizeof(number) ? call->size : sizeof(number));
    } else {
        size_t length = strlen(value) + 1;
        memcpy(buffer, value, length < call->size ? length : call->size);
    }
    umfCtlSet(call->path, buffer, call->size, EACH(call->arguments));
    free(buffer);
}

static void run_line(char *line) {
    call_t call = {0};
    const char *verb = word(&line);
    int is_exec = strcmp(verb, "exec") == 0;
    if (!is_exec) {
        call.size = strtoul(word(&line), NULL, 10) % BUFFER;
        call.size += call.size == 0;
    }
    call.path = word(&line);
    read_arguments(&call, &line);
    place_arguments(&call);
    if (is_exec) {
        umfCtlExec(call.path, NULL, 0, EACH(call.arguments));
    } else if (strcmp(verb, "set") == 0) {
        line += strspn(line, " =");
        set(&call, line);
    } else {
        get(&call);
    }
}

static void create(umf_memory_pool_handle_t *pool, const umf_memory_pool_ops_t *ops) {
    FUZZ_CHECK(umfPoolCreate(ops, provider, NULL, 0, pool) == UMF_RESULT_SUCCESS);
}

static void run(char *text, size_t length) {
    (void)length;
    provider = fuzz_provider();
    create(&pools[0], umfDisjointPoolOps());
    create(&pools[1], umfDisjointPoolOps());
    create(&pools[2], umfProxyPoolOps());
    for (char *line; (line = fuzz_line(&text)) != NULL;) {
        run_line(line);
    }
    umf_memory_pool_handle_t late = NULL;
    create(&late, umfDisjointPoolOps());
    fuzz_use_pool(late);
    FUZZ_CHECK(umfPoolDestroy(late) == UMF_RESULT_SUCCESS);
    for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++) {
        fuzz_use_pool(pools[i]);
        FUZZ_CHECK(umfPoolDestroy(pools[i]) == UMF_RESULT_SUCCESS);
    }
    FUZZ_CHECK(umfMemoryProviderDestroy(provider) == UMF_RESULT_SUCCESS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_run(data, size, run);
    return 0;
}
