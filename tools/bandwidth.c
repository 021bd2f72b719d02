/* umfctl bandwidth: the speed of copies between any two places of this machine, and their route. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/experimental/memspace.h>
#include <umf/reason.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include "report.h"
#include "umfctl.h"

#define MAX_PLACES 48
#define ROUNDS 3
/* Places in one block of the table: more would not fit 80 columns. */
#define BLOCK 7

typedef struct place_t {
    char name[16];
    umf_memory_pool_handle_t pool; /* NULL: of malloc */
    char *memory[2];
} place_t;

typedef struct rate_t {
    uint64_t bytes_per_s; /* 0: the copy failed */
    umf_copy_route_t route;
    char why[160]; /* it failed */
} rate_t;

static struct {
    place_t places[MAX_PLACES];
    rate_t rates[MAX_PLACES][MAX_PLACES]; /* from, to */
    size_t count;
    size_t size;
} all;

/* Letters for the table and words for programs. */
static const struct {
    char letter;
    const char *word;
} routes[] = {
    [UMF_COPY_ROUTE_NONE] = {'-', "none"},      [UMF_COPY_ROUTE_CPU] = {'c', "cpu"},
    [UMF_COPY_ROUTE_TO] = {'d', "destination"}, [UMF_COPY_ROUTE_FROM] = {'s', "source"},
    [UMF_COPY_ROUTE_STAGED] = {'h', "staged"},
};

/* --- places ------------------------------------------------------------------------------------
 */

static void place_drop(place_t *place) {
    for (size_t i = 0; i < 2; i++) {
        if (!place->pool) {
            free(place->memory[i]);
        } else if (place->memory[i]) {
            umfPoolFree(place->pool, place->memory[i]);
        }
    }
    if (place->pool) {
        umfPoolDestroy(place->pool);
    }
}

/* Memory that was written is what programs copy. */
static bool place_fill(place_t *place) {
    for (size_t i = 0; i < 2; i++) {
        place->memory[i] = place->pool ? umfPoolMalloc(place->pool, all.size) : malloc(all.size);
        if (!place->memory[i] ||
            umfFill(place->memory[i], "u", 1, all.size, NULL) != UMF_RESULT_SUCCESS) {
            return false;
        }
    }
    return true;
}

/* `why` NULL: it is behind the last one of its kind. */
static bool place_absent(const char *name, const char *why) {
    if (why) {
        report_row(&(report_row_t){.name = name, .state = REPORT_ABSENT, .note = why});
    }
    return false;
}

/* `provider` is NULL for memory of malloc. false: there is no such place. */
static bool place_add(const char *name, const char *provider, bool is_first) {
    char text[512] = "proxy over ";
    place_t *place = &all.places[all.count];
    if (all.count == MAX_PLACES) {
        return false;
    }
    memset(place, 0, sizeof(*place));
    snprintf(place->name, sizeof(place->name), "%s", name);
    strncat(text, provider ? provider : "", sizeof(text) - strlen(text) - 1);
    umfLastErrorClear();
    umf_result_t result = provider ? umfPoolCreateFromText(text, &place->pool) : UMF_RESULT_SUCCESS;
    if (result != UMF_RESULT_SUCCESS) {
        return place_absent(name, is_first ? umfctl_reason(result) : NULL);
    }
    umfLastErrorClear();
    bool is_filled = place_fill(place);
    const char *why = *umfLastErrorText() ? umfLastErrorText() : "there is no room for the copies";
    report_row(
        &(report_row_t){.name = name,
                        .state = is_filled ? REPORT_OK : REPORT_ABSENT,
                        .value = {.unit = REPORT_TEXT, .text = provider ? provider : "malloc"},
                        .note = is_filled ? NULL : why});
    if (is_filled) {
        all.count++;
    } else {
        place_drop(place);
    }
    return true;
}

/* One place for each number from 0 on, until there is no such device. */
static void places_numbered(const char *name, const char *provider) {
    char label[32], text[64];
    bool is_there = true;
    for (unsigned i = 0; is_there && i < MAX_PLACES; i++) {
        snprintf(label, sizeof(label), "%s %u", name, i);
        snprintf(text, sizeof(text), "%s:device=%u", provider, i);
        is_there = place_add(label, text, i == 0);
    }
}

static void places_nodes(void) {
    umf_const_memspace_handle_t nodes = umfMemspaceHostAllGet();
    unsigned count = nodes ? (unsigned)umfMemspaceMemtargetNum(nodes) : 0, id;
    char label[32], text[64];
    for (unsigned i = 0; count > 1 && i < count; i++) {
        if (umfMemtargetGetId(umfMemspaceMemtargetGet(nodes, i), &id) == UMF_RESULT_SUCCESS) {
            snprintf(label, sizeof(label), "node %u", id);
            snprintf(text, sizeof(text), "os:numa_mode=bind,numa_list=%u", id);
            place_add(label, text, true);
        }
    }
}

/* The file has no name any more as soon as it is open. */
static void places_file(void) {
    char path[256], text[300];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/umfctl.XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd >= 0) {
        close(fd);
        snprintf(text, sizeof(text), "file:path=\"%s\"", path);
        place_add("file", text, true);
        unlink(path);
    }
}

static int kind(const char *name, int available, const char *why, void *arg) {
    (void)why, (void)arg;
    if (available && strcmp(name, "cuda") == 0) {
        place_add("pinned", "cuda:memory_type=host", true);
        places_numbered("gpu", "cuda");
    } else if (available && strcmp(name, "level_zero") == 0) {
        place_add("ze host", "level_zero:memory_type=host", true);
        places_numbered("ze", "level_zero");
    } else if (available && strcmp(name, "file") == 0) {
        places_file();
    }
    return 0; /* go on */
}

/* --- copies ------------------------------------------------------------------------------------
 */

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static rate_t failed(rate_t rate, umf_result_t result) {
    rate.bytes_per_s = 0;
    snprintf(rate.why, sizeof(rate.why), "%s", umfctl_reason(result));
    return rate;
}

/* The best of some rounds after one that prepares what copies keep. */
static rate_t measure(const place_t *from, const place_t *to) {
    char *target = to->memory[from == to], *source = from->memory[0];
    rate_t rate = {0};
    double best = 0;
    umfLastErrorClear();
    umf_result_t result = umfCopyRoute(target, source, all.size, NULL, &rate.route);
    if (result != UMF_RESULT_SUCCESS) {
        return failed(rate, result);
    }
    for (int i = 0; i < 1 + ROUNDS; i++) {
        double begin = now_s();
        umfLastErrorClear();
        result = umfCopy(target, source, all.size, NULL);
        if (result != UMF_RESULT_SUCCESS) {
            return failed(rate, result);
        }
        double rest = now_s() - begin, speed = rest > 0 ? (double)all.size / rest : 0;
        best = i > 0 && speed > best ? speed : best;
    }
    rate.bytes_per_s = (uint64_t)best + 1;
    return rate;
}

static bool measure_all(void) {
    bool is_good = true;
    for (size_t i = 0; i < all.count; i++) {
        for (size_t j = 0; j < all.count; j++) {
            all.rates[i][j] = measure(&all.places[i], &all.places[j]);
            is_good = is_good && all.rates[i][j].bytes_per_s != 0;
        }
    }
    return is_good;
}

/* --- results -----------------------------------------------------------------------------------
 */

static void print_line(const char *name, size_t from, size_t first, bool is_heading) {
    char line[128];
    int length = snprintf(line, sizeof(line), "  %-10s", name);
    for (size_t j = first; j < all.count && j < first + BLOCK; j++) {
        size_t room = sizeof(line) - (size_t)length;
        const rate_t *rate = &all.rates[from][j];
        length += is_heading ? snprintf(line + length, room, " %8.8s", all.places[j].name)
                  : rate->bytes_per_s
                      ? snprintf(line + length, room, " %6.1f %c", (double)rate->bytes_per_s / 1e9,
                                 routes[rate->route].letter)
                      : snprintf(line + length, room, " %8s", "failed");
    }
    report_line(line);
}

/* The reasons of copies that failed. */
static void print_failed(void) {
    char line[256];
    for (size_t i = 0; i < all.count * all.count; i++) {
        size_t from = i / all.count, to = i % all.count;
        if (all.rates[from][to].why[0]) {
            snprintf(line, sizeof(line), "  %s to %s: %s", all.places[from].name,
                     all.places[to].name, all.rates[from][to].why);
            report_line(line);
        }
    }
}

static void print_table(void) {
    report_section("copies", "GB/s from the place of the row to that of the column", 0);
    for (size_t first = 0; first < all.count; first += BLOCK) {
        print_line("", 0, first, true);
        for (size_t i = 0; i < all.count; i++) {
            print_line(all.places[i].name, i, first, false);
        }
    }
    print_failed();
    report_section("ways", "Ways", 0);
    report_line("  c  the CPU");
    report_line("  d  the copy of the destination's provider or driver");
    report_line("  s  the copy of the source's provider or driver");
    report_line("  h  several threads, through memory of the host in between");
}

/* A section for each source, a row for each destination. */
static void list_all(void) {
    char key[32];
    for (size_t i = 0; i < all.count; i++) {
        snprintf(key, sizeof(key), "from %s", all.places[i].name);
        report_section(key, key, 10);
        for (size_t j = 0; j < all.count; j++) {
            const rate_t *rate = &all.rates[i][j];
            report_row(&(report_row_t){
                .name = all.places[j].name,
                .state = rate->bytes_per_s ? REPORT_OK : REPORT_FAILED,
                .value = {.unit = REPORT_RATE, .number = rate->bytes_per_s},
                .note = rate->bytes_per_s ? routes[rate->route].word : rate->why,
            });
        }
    }
}

/* Enough for all threads of a staged copy, where the machine has the memory. */
static size_t default_size(void) {
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t size = memory / 64 & ~(size_t)0xfffff, most = (size_t)256 << 20;
    return size > most ? most : size < ((size_t)4 << 20) ? (size_t)4 << 20 : size;
}

int umfctl_bandwidth(void) {
    all.size = umfctl_words.size ? umfctl_words.size : default_size();
    umfctl_where();
    report_section("places", "Places", 10);
    report_bytes("one copy", all.size);
    place_add("pageable", NULL, true);
    places_nodes();
    umf_result_t result = umfProviderKinds(kind, NULL);
    bool is_good = measure_all();
    if (report_is_json()) {
        list_all();
    } else {
        print_table();
    }
    while (all.count > 0) {
        place_drop(&all.places[--all.count]);
    }
    umfSuspendTrim();
    return is_good && result == UMF_RESULT_SUCCESS ? 0 : 1;
}
