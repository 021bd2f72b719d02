/*
 * umf-bench-remote: gets and puts of another process' memory, beside ucx_perftest with the same
 * UCX, transport and size, in turns. Over the loopback device, then on one machine, where the
 * anchor is UCX over shared memory. A figure is the least of some rounds: of their means, for 64 B
 * of their medians.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf.h>
#include <umf/remote.h>
#include <umf/text.h>

#include "figures.h"
#include "owner.h"

#define PERFTEST "ucx_perftest"
#define LARGE ((size_t)64 << 20)
#define SMALL ((size_t)64)
#define LARGE_COUNT 4
#define SMALL_COUNT 2000
#define ROUNDS 7
#define NEVER 1e12
#define SLOW 1e6 /* microseconds: one round is enough */
#define WARM 10  /* a warm-up of one operation for so many */

static int rounds = ROUNDS;

/* --- ucx_perftest ----------------------------------------------------------------------------- */

/* Another process takes it only by chance before ucx_perftest does. */
static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_bound = bind(made, (struct sockaddr *)&at, size) == 0 &&
                    getsockname(made, (struct sockaddr *)&at, &size) == 0;
    close(made);
    return is_bound ? ntohs(at.sin_port) : 0;
}

static pid_t perftest_start(char *const *words, const char *transports, int output) {
    pid_t process = fork();
    if (process == 0) {
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(output == -1 ? nowhere : output, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        setenv("UCX_TLS", transports, 1);
        setenv("UCX_NET_DEVICES", "lo", 1);
        execvp(words[0], words);
        _exit(127);
    }
    return process;
}

/* Microseconds of an operation: the median, or the mean of all. 0: it could not connect. */
static double perftest_client(char *const *words, const char *transports, bool is_median) {
    char line[512];
    double value = 0, median, mean;
    int ends[2];
    if (pipe(ends) != 0) {
        return 0;
    }
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    pid_t client = perftest_start(words, transports, ends[1]);
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    while (from && fgets(line, sizeof(line), from)) {
        if (sscanf(line, " %*[0-9],%lf,%*[^,],%lf", &median, &mean) == 2) {
            value = is_median ? median : mean;
        }
    }
    if (from) {
        fclose(from);
    }
    waitpid(client, NULL, 0);
    return value;
}

/* 0: not measured. */
static double perftest(const char *test, size_t size, const char *wait, const char *transports) {
    char port[16], bytes[24], count[24], warm[24];
    int number = size == LARGE ? LARGE_COUNT : SMALL_COUNT;
    double value = 0;
    snprintf(port, sizeof(port), "%d", free_port());
    snprintf(bytes, sizeof(bytes), "%zu", size);
    snprintf(count, sizeof(count), "%d", number);
    snprintf(warm, sizeof(warm), "%d", number / WARM + 1);
    char *server_words[] = {PERFTEST, "-p", port, NULL};
    char *words[] = {PERFTEST,     "-p", port,  "-t",        (char *)test, "-s",
                     bytes,        "-n", count, "-w",        warm,         "-E",
                     (char *)wait, "-f", "-v",  "127.0.0.1", NULL};
    pid_t server = perftest_start(server_words, transports, -1);
    for (int i = 0; i < 500 && value == 0; i++) {
        if (waitpid(server, NULL, WNOHANG) == server) { /* it is not installed */
            return 0;
        }
        value = perftest_client(words, transports, size == SMALL);
        nap_ms(value == 0 ? 10 : 0);
    }
    process_end(server);
    return value;
}

/* --- the library ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b) {
    const double *one = a, *two = b;
    return (*one > *two) - (*one < *two);
}

/* Microseconds of an operation, as of perftest_client; 0: it failed. */
static double measure(umf_remote_memory_handle_t memory, char *bytes, size_t size, bool is_put) {
    static double times[SMALL_COUNT];
    int number = size == LARGE ? LARGE_COUNT : SMALL_COUNT, warm = number / WARM + 1;
    double sum = 0;
    for (int i = -warm; i < number; i++) {
        double start = now_ms(CLOCK_MONOTONIC);
        umf_result_t result = is_put ? umfRemotePut(memory, 0, bytes, size, NULL)
                                     : umfRemoteGet(memory, 0, bytes, size, NULL);
        if (result != UMF_RESULT_SUCCESS) {
            return 0;
        }
        if (i >= 0) {
            times[i] = (now_ms(CLOCK_MONOTONIC) - start) * 1e3;
            sum += times[i];
        }
    }
    qsort(times, (size_t)number, sizeof(times[0]), compare);
    return size == SMALL ? times[number / 2] : sum / number;
}

/* --- rows ------------------------------------------------------------------------------------- */

typedef struct anchor_t {
    const char *test, *wait;
    double times;   /* its figure is for a part of an operation: one way of two */
    double allowed; /* microseconds that an operation may take longer */
    double bar;     /* 0: none */
} anchor_t;

typedef struct case_t {
    const char *name;
    size_t size;
    bool is_put;
    anchor_t anchors[2];
} case_t;

static const case_t network[] = {
    {"get of 64 MiB",
     LARGE,
     false,
     {{"ucp_get", "poll", 1, 0, 1 / 0.95}, {"ucp_am_bw", "poll", 1, 0, 1 / 0.95}}},
    {"put of 64 MiB",
     LARGE,
     true,
     {{"ucp_put_bw", "poll", 1, 0, 1 / 0.9}, {"ucp_am_bw", "poll", 1, 0, 1 / 0.9}}},
    {"get of 64 B",
     SMALL,
     false,
     {{"ucp_am_lat", "sleep", 2, 10, 1.3}, {"ucp_am_lat", "poll", 2, 0, 0}}},
};

static const case_t machine[] = {
    {"get of 64 MiB",
     LARGE,
     false,
     {{"ucp_am_bw", "poll", 1, 0, 1 / 0.95}, {"ucp_get", "poll", 1, 0, 0}}},
    {"put of 64 MiB",
     LARGE,
     true,
     {{"ucp_am_bw", "poll", 1, 0, 1 / 0.9}, {"ucp_put_bw", "poll", 1, 0, 0}}},
    {"get of 64 B",
     SMALL,
     false,
     {{"ucp_am_lat", "sleep", 2, 10, 1.3}, {"ucp_am_lat", "poll", 2, 0, 0}}},
};

static void print_case(const case_t *one, double ours, const double *theirs) {
    char what[80];
    for (int i = 0; i < 2; i++) {
        const anchor_t *to = &one->anchors[i];
        snprintf(what, sizeof(what), "%s%s / %s%s%s", one->name,
                 to->allowed > 0 ? " less 10 us" : "", to->test,
                 to->times > 1 ? " there and back" : "",
                 strcmp(to->wait, "sleep") == 0 ? ", asleep" : "");
        double ratio = (ours - to->allowed) / theirs[i];
        if (to->bar > 0) {
            row(what, ratio > 0 ? ratio : 0, "x", to->bar);
        } else {
            anchor(what, ratio, "x");
        }
    }
    anchor(one->name, ours, "us");
    for (int i = 0; i < 2; i++) {
        const anchor_t *to = &one->anchors[i];
        snprintf(what, sizeof(what), "%s, %s", to->test, to->wait);
        anchor(what, theirs[i], "us");
    }
}

/* One round of each in turn. */
static void run_case(const case_t *one, umf_remote_memory_handle_t memory, char *bytes,
                     const char *transports) {
    double ours = NEVER, theirs[2] = {NEVER, NEVER};
    for (int round = 0; round < rounds; round++) {
        double value = measure(memory, bytes, one->size, one->is_put);
        if (value == 0) {
            not_measured(one->name);
            return;
        }
        ours = least(ours, value);
        for (int i = 0; i < 2; i++) {
            const anchor_t *to = &one->anchors[i];
            if (theirs[i] > SLOW && theirs[i] < NEVER) {
                continue; /* puts of UCX 1.13 over TCP: seconds */
            }
            value = perftest(to->test, one->size, to->wait, transports) * to->times;
            if (value == 0) {
                printf("%s: not measured, " PERFTEST " does not run (install ucx-utils)\n",
                       one->name);
                return;
            }
            theirs[i] = least(theirs[i], value);
        }
    }
    print_case(one, ours, theirs);
}

static bool run_cases(const owner_t *owner, unsigned flags, const case_t *cases, size_t count,
                      const char *transports) {
    umf_remote_params_t params = UMF_REMOTE_PARAMS_INIT;
    umf_remote_handle_t remote;
    umf_remote_memory_handle_t memory;
    umf_memory_pool_handle_t pool;
    params.flags = flags;
    char *bytes = umfPoolCreateFromText(REMOTE_POOL, &pool) == UMF_RESULT_SUCCESS
                      ? umfPoolMalloc(pool, LARGE)
                      : NULL;
    if (!bytes || umfRemoteCreate(&params, &remote) != UMF_RESULT_SUCCESS) {
        return false;
    }
    memset(bytes, 'y', LARGE);
    bool is_open =
        umfRemoteOpen(remote, owner->handle, owner->handle_size, &memory) == UMF_RESULT_SUCCESS;
    for (size_t i = 0; i < count && is_open; i++) {
        run_case(&cases[i], memory, bytes, transports);
    }
    umfRemoteDestroy(remote);
    umfFree(bytes);
    return umfPoolDestroy(pool) == UMF_RESULT_SUCCESS && is_open;
}

int main(int count, char **words) {
    char text[256];
    owner_t owner = {0};
    if (count == 2) {
        rounds = (int)strtol(words[1], NULL, 10);
    }
    if (count > 2 || rounds < 1) {
        fputs("usage: umf-bench-remote [ROUNDS]\n", stderr);
        return 2;
    }
    umf_result_t found = umfRemoteProbe(text, sizeof(text));
    puts(text);
    if (found != UMF_RESULT_SUCCESS) {
        return 77;
    }
    head();
    bool is_good = owner_start(&owner, LARGE, UMF_REMOTE_GET | UMF_REMOTE_PUT);
    if (is_good) {
        puts("through UCX over the loopback device, beside " PERFTEST " over TCP");
        is_good = run_cases(&owner, UMF_REMOTE_NETWORK_ONLY, network,
                            sizeof(network) / sizeof(network[0]), "tcp");
    }
    if (is_good) {
        puts("on one machine, beside " PERFTEST " over shared memory");
        is_good =
            run_cases(&owner, 0, machine, sizeof(machine) / sizeof(machine[0]), "posix,sysv,cma");
    }
    process_end(owner.process);
    if (!is_good) {
        not_measured("remote memory");
    }
    return has_missed();
}
