/* The list of steps for this machine. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf/text.h>

#include "steps.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { MAX_KINDS = 32, MAX_STEPS = 256 };

typedef struct kind_t {
    char name[64];
    bool available;
    char why[256];
} kind_t;

typedef struct kinds_t {
    kind_t kinds[MAX_KINDS];
    size_t count;
} kinds_t;

typedef struct list_t {
    kinds_t providers, pools;
    const steps_place_t *place;
    step_t *steps;
    size_t count;
    const char *section, *key;
} list_t;

/* The creation text for each kind with required settings; '%' is the folder. */
static const struct source_t {
    const char *kind, *label, *text;
    const char *not_tried; /* the reason if it is not tried */
} sources[] = {
    {"os", "os", "os", NULL},
    {"os", "os shared", "os:visibility=shared", NULL},
    {"file", "file", "file:path=\"%/private\"", NULL},
    {"file", "file shared", "file:path=\"%/shared\",visibility=shared", NULL},
    {"devdax", "devdax", NULL, "not tried, because the device may hold data"},
    {"linux_vmm", "linux_vmm", "linux_vmm", NULL},
};

static int remember_kind(const char *name, int available, const char *why, void *arg) {
    kinds_t *kinds = arg;
    kind_t *kind = &kinds->kinds[kinds->count++];
    snprintf(kind->name, sizeof(kind->name), "%s", name);
    snprintf(kind->why, sizeof(kind->why), "%s", why);
    kind->available = available;
    return kinds->count == MAX_KINDS;
}

/*
 * Runs in a process of its own. The question whether a driver works starts the driver. A driver
 * that was started in this process would not work in the steps, which are its children.
 */
static void remember_kinds(list_t *list) {
    enum { PROVIDERS, POOLS, LISTS };
    kinds_t *shared = mmap(NULL, LISTS * sizeof(*shared), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return;
    }
    pid_t child = fork();
    if (child <= 0) { /* in this process if no other can be created */
        umfProviderKinds(remember_kind, &shared[PROVIDERS]);
        umfPoolKinds(remember_kind, &shared[POOLS]);
    }
    if (child == 0) {
        _exit(0);
    }
    if (child > 0) {
        waitpid(child, NULL, 0);
    }
    list->providers = shared[PROVIDERS];
    list->pools = shared[POOLS];
    munmap(shared, LISTS * sizeof(*shared));
}

static bool has_kind(const kinds_t *kinds, const char *name) {
    for (size_t i = 0; i < kinds->count; i++) {
        if (strcmp(kinds->kinds[i].name, name) == 0) {
            return kinds->kinds[i].available;
        }
    }
    return false;
}

__attribute__((format(printf, 3, 4))) static step_t *
add_step(list_t *list, report_state_t (*run)(const step_t *, char *), const char *format, ...) {
    step_t *step = &list->steps[list->count];
    list->count += list->count < MAX_STEPS - 1;
    *step = (step_t){.section = list->section, .key = list->key, .run = run};
    va_list args;
    va_start(args, format);
    vsnprintf(step->name, sizeof(step->name), format, args);
    va_end(args);
    return step;
}

static void set_text(char *out, size_t size, const char *text, const char *folder) {
    const char *percent = strchr(text, '%');
    if (percent) {
        snprintf(out, size, "%.*s%s%s", (int)(percent - text), text, folder, percent + 1);
    } else {
        snprintf(out, size, "%s", text);
    }
}

/* Calls `add` for each provider that can be made of an available kind. */
static void for_each_source(list_t *list, const char *pool,
                            void (*add)(list_t *, const char *pool, const char *label,
                                        const char *text, const char *not_tried)) {
    for (size_t i = 0; i < list->providers.count; i++) {
        const kind_t *kind = &list->providers.kinds[i];
        bool is_known = false;
        for (size_t j = 0; j < COUNT_OF(sources); j++) {
            if (strcmp(sources[j].kind, kind->name) == 0) {
                is_known = true;
                add(list, pool, sources[j].label, sources[j].text,
                    kind->available ? sources[j].not_tried : kind->why);
            }
        }
        if (!is_known) {
            add(list, pool, kind->name, kind->name, kind->available ? NULL : kind->why);
        }
    }
}

static void add_provider(list_t *list, const char *pool, const char *label, const char *text,
                         const char *not_tried) {
    (void)pool;
    bool is_fixed = strcmp(label, "fixed") == 0;
    bool is_device = strcmp(label, "cuda") == 0 || strcmp(label, "cuda_vmm") == 0 ||
                     strcmp(label, "level_zero") == 0 || strcmp(label, "level_zero_vmm") == 0;
    step_t *step = add_step(list,
                            is_fixed    ? step_fixed
                            : is_device ? step_device
                                        : step_provider,
                            "%s", label);
    if (not_tried) {
        step->run = NULL;
        snprintf(step->why, sizeof(step->why), "%s", not_tried);
    } else {
        set_text(step->provider, sizeof(step->provider), text, list->place->folder);
    }
}

static bool is_known_label(const char *label) {
    for (size_t i = 0; i < COUNT_OF(sources); i++) {
        if (strcmp(sources[i].label, label) == 0) {
            return true;
        }
    }
    return false;
}

/* Only over providers that can be created; for the others the reason was reported above. */
static void add_pool(list_t *list, const char *pool, const char *label, const char *text,
                     const char *not_tried) {
    if (!not_tried && is_known_label(label)) {
        step_t *step = add_step(list, step_pool, "%s over %s", pool, label);
        snprintf(step->pool, sizeof(step->pool), "%s", pool);
        set_text(step->provider, sizeof(step->provider), text, list->place->folder);
    } else if (!not_tried && strcmp(label, "fixed") == 0 && strcmp(pool, "disjoint") == 0) {
        add_step(list, step_pool_over_fixed, "%s over %s", pool, label);
    }
}

static void add_pools(list_t *list) {
    for (size_t i = 0; i < list->pools.count; i++) {
        const kind_t *pool = &list->pools.kinds[i];
        if (pool->available) {
            for_each_source(list, pool->name, add_pool);
        } else {
            step_t *step = add_step(list, NULL, "%s", pool->name);
            snprintf(step->why, sizeof(step->why), "%s", pool->why);
        }
    }
}

static void add_over_os(list_t *list, report_state_t (*run)(const step_t *, char *)) {
    for (size_t i = 0; i < list->pools.count; i++) {
        const kind_t *pool = &list->pools.kinds[i];
        if (pool->available) {
            step_t *step = add_step(list, run, "%s", pool->name);
            snprintf(step->pool, sizeof(step->pool), "%s", pool->name);
            snprintf(step->provider, sizeof(step->provider), "os");
        }
    }
}

/* The consumer's pool need not have the name or the path: both come with the handle. */
static void add_sharing(list_t *list) {
    step_t *step = add_step(list, step_sharing, "anonymous memory");
    snprintf(step->provider, sizeof(step->provider), "os:visibility=shared");
    snprintf(step->consumer, sizeof(step->consumer), "os:visibility=shared");

    step = add_step(list, step_sharing, "named memory");
    snprintf(step->provider, sizeof(step->provider), "os:visibility=shared,shm_name=%s",
             list->place->shm_name);
    snprintf(step->consumer, sizeof(step->consumer), "os:visibility=shared");

    if (has_kind(&list->providers, "file")) {
        step = add_step(list, step_sharing, "a file");
        set_text(step->provider, sizeof(step->provider),
                 "file:path=\"%/produced\",visibility=shared", list->place->folder);
        set_text(step->consumer, sizeof(step->consumer),
                 "file:path=\"%/consumer\",visibility=shared", list->place->folder);
    }
}

step_t *steps_list(const steps_place_t *place, size_t *count) {
    list_t *list = calloc(1, sizeof(*list));
    step_t *steps = calloc(MAX_STEPS, sizeof(*steps));
    if (!list || !steps) {
        free(list);
        free(steps);
        return NULL;
    }
    list->place = place;
    list->steps = steps;
    remember_kinds(list);

    list->section = "Providers: allocate, fill, compare, free";
    list->key = "providers";
    for_each_source(list, NULL, add_provider);
    list->section = "Pools: many sizes, counters, lookups by pointer";
    list->key = "pools";
    add_pools(list);
    list->section = "NUMA nodes";
    list->key = "numa";
    add_step(list, step_nodes, "memory of each node");
    add_step(list, step_all_nodes, "a pool over all nodes");
    list->section = "Pointers: whose they are";
    list->key = "pointers";
    add_over_os(list, step_lookups);
    list->section = "Threads: memory freed by others than its owner";
    list->key = "threads";
    add_over_os(list, step_threads);
    list->section = "Fork: a child continues with its pools";
    list->key = "fork";
    add_over_os(list, step_fork);
    list->section = "Sharing with another process";
    list->key = "sharing";
    add_sharing(list);

    list->section = "Suspend and resume: memory is released and comes back with its content";
    list->key = "suspend";
    if (has_kind(&list->providers, "linux_vmm")) {
        step_t *step = add_step(list, step_suspend, "disjoint over linux_vmm");
        snprintf(step->pool, sizeof(step->pool), "disjoint");
        snprintf(step->provider, sizeof(step->provider), "linux_vmm");
    }
    if (has_kind(&list->providers, "cuda_vmm")) {
        step_t *step = add_step(list, step_suspend_cuda, "disjoint over cuda_vmm");
        snprintf(step->pool, sizeof(step->pool), "disjoint");
        snprintf(step->provider, sizeof(step->provider), "cuda_vmm:device=0");
    }

    *count = list->count;
    free(list);
    return steps;
}
