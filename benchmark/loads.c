/*
 * umf-bench-loads LOAD THREADS [LIBRARY]: a program that allocates as programs of one kind do, by
 * malloc and free as it finds them, so by what LD_PRELOAD put there. The work is the same in each
 * run; who starts it takes the time. Fails if LIBRARY is not in the process: the loader only warns
 * about one it cannot find.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 64

typedef struct {
    uint64_t state;
} rng_t;

static rng_t rng_make(size_t seed) {
    return (rng_t){0x9e3779b97f4a7c15u * (seed + 1)};
}

static uint64_t rng_next(rng_t *rng) {
    rng->state ^= rng->state << 13;
    rng->state ^= rng->state >> 7;
    rng->state ^= rng->state << 17;
    return rng->state;
}

static size_t rng_below(rng_t *rng, size_t limit) {
    return (size_t)(((rng_next(rng) >> 32) * limit) >> 32);
}

/* Small sizes often, large ones seldom: each doubling from 2^low on is as likely as the next. */
static size_t rng_size(rng_t *rng, unsigned low, unsigned high) {
    const size_t base = (size_t)1 << (low + rng_below(rng, high - low));
    return base + rng_below(rng, base);
}

static void *must(void *ptr) {
    if (!ptr) {
        fputs("umf-bench-loads: out of memory\n", stderr);
        exit(1);
    }
    return ptr;
}

/* New memory, written to as a program would. */
static void *take(size_t size) {
    char *ptr = must(malloc(size));
    ptr[0] = 1;
    ptr[size - 1] = 1;
    return ptr;
}

static pthread_t start(void *(*function)(void *), void *arg) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, arg) != 0) {
        fputs("umf-bench-loads: a thread cannot be started\n", stderr);
        exit(1);
    }
    return thread;
}

/* Runs the function once for each of `count` arguments of `size` bytes, in threads of their own. */
static void run_all(void *(*function)(void *), void *args, size_t size, unsigned count) {
    pthread_t threads[MAX_THREADS];
    for (unsigned i = 0; i < count; i++) {
        threads[i] = start(function, (char *)args + i * size);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* --- server-churn: connections come and go, and threads with them ------------------------------
 */

#define CONNECTIONS 5000
#define GENERATIONS 20
#define REQUESTS 250000

typedef struct {
    void *slots[CONNECTIONS];
    rng_t rng;
} server_t;

static void *serve_generation(void *arg) {
    server_t *server = arg;
    for (unsigned i = 0; i < REQUESTS; i++) {
        void **slot = &server->slots[rng_below(&server->rng, CONNECTIONS)];
        free(*slot);
        *slot = take(8 + rng_below(&server->rng, 993));
    }
    return NULL;
}

/* What one thread has left open, its successor closes. */
static void *serve(void *arg) {
    for (unsigned i = 0; i < GENERATIONS; i++) {
        pthread_join(start(serve_generation, arg), NULL);
    }
    return NULL;
}

static void server_churn(unsigned threads) {
    static server_t servers[MAX_THREADS];
    for (unsigned i = 0; i < threads; i++) {
        servers[i].rng = rng_make(i);
        for (unsigned k = 0; k < CONNECTIONS; k++) {
            servers[i].slots[k] = take(8 + rng_below(&servers[i].rng, 993));
        }
    }
    run_all(serve, servers, sizeof(servers[0]), threads);
}

/* --- free-elsewhere: half of the threads allocate, the other half frees --------------------------
 */

#define PACKET 1000
#define PACKETS 6000
#define PACKETS_WAITING 16

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t is_filled, is_emptied;
    void **waiting[PACKETS_WAITING];
    unsigned count;
} channel_t;

static void send(channel_t *channel, void **packet) {
    pthread_mutex_lock(&channel->mutex);
    while (channel->count == PACKETS_WAITING) {
        pthread_cond_wait(&channel->is_emptied, &channel->mutex);
    }
    channel->waiting[channel->count++] = packet;
    pthread_cond_signal(&channel->is_filled);
    pthread_mutex_unlock(&channel->mutex);
}

static void **receive(channel_t *channel) {
    pthread_mutex_lock(&channel->mutex);
    while (channel->count == 0) {
        pthread_cond_wait(&channel->is_filled, &channel->mutex);
    }
    void **packet = channel->waiting[--channel->count];
    pthread_cond_signal(&channel->is_emptied);
    pthread_mutex_unlock(&channel->mutex);
    return packet;
}

static void *produce(void *arg) {
    for (unsigned n = 0; n < PACKETS; n++) {
        void **packet = must(malloc(PACKET * sizeof(void *)));
        for (unsigned i = 0; i < PACKET; i++) {
            packet[i] = take(64);
        }
        send(arg, packet);
    }
    return NULL;
}

static void *consume(void *arg) {
    for (unsigned n = 0; n < PACKETS; n++) {
        void **packet = receive(arg);
        for (unsigned i = 0; i < PACKET; i++) {
            free(packet[i]);
        }
        free(packet);
    }
    return NULL;
}

/* One channel for all: whose memory a consumer gets is chance. */
static void free_elsewhere(unsigned threads) {
    static channel_t channel = {
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, 0};
    pthread_t producers[MAX_THREADS], consumers[MAX_THREADS];
    for (unsigned i = 0; i < threads; i++) {
        producers[i] = start(produce, &channel);
        consumers[i] = start(consume, &channel);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(producers[i], NULL);
        pthread_join(consumers[i], NULL);
    }
}

/* --- mixed-stress: objects of all ages, some passed to other threads -----------------------------
 */

#define SHARED 1000
#define KEPT 4000
#define PHASES 40
#define STEPS 100000

static _Atomic(size_t *) shared_objects[SHARED];

/* Filled in whole; the first word says with how much. */
static size_t *take_filled(rng_t *rng) {
    const size_t words = rng_below(rng, 100) ? rng_size(rng, 0, 6) : rng_size(rng, 6, 12);
    size_t *object = must(malloc((words + 1) * sizeof(size_t)));
    object[0] = words;
    for (size_t i = 1; i <= words; i++) {
        object[i] = words ^ i;
    }
    return object;
}

static void free_filled(size_t *object) {
    for (size_t i = 1; object && i <= object[0]; i++) {
        if (object[i] != (object[0] ^ i)) {
            fputs("umf-bench-loads: memory was changed by another thread\n", stderr);
            abort();
        }
    }
    free(object);
}

static void *stress(void *arg) {
    rng_t rng = *(rng_t *)arg;
    size_t **kept = must(calloc(KEPT, sizeof(size_t *)));
    for (unsigned i = 0; i < STEPS; i++) {
        size_t **object = &kept[rng_below(&rng, KEPT)];
        const size_t what = rng_below(&rng, 8);
        if (what == 0) {
            *object = atomic_exchange(&shared_objects[rng_below(&rng, SHARED)], *object);
        } else {
            free_filled(*object);
            *object = what < 5 ? take_filled(&rng) : NULL;
        }
    }
    for (unsigned i = 0; i < KEPT; i++) {
        free_filled(kept[i]);
    }
    free(kept);
    return NULL;
}

static void mixed_stress(unsigned threads) {
    rng_t rngs[MAX_THREADS];
    for (unsigned phase = 0; phase < PHASES; phase++) {
        for (unsigned i = 0; i < threads; i++) {
            rngs[i] = rng_make(phase * MAX_THREADS + i);
        }
        run_all(stress, rngs, sizeof(rngs[0]), threads);
        for (unsigned i = phase % 2; i < SHARED; i += 2) {
            free_filled(atomic_exchange(&shared_objects[i], NULL));
        }
    }
}

/* --- many-sizes: blocks of one size, then of the next, in one thread
 * ------------------------------ */

#define MOST_BLOCKS 1600

static void many_blocks(void **blocks, unsigned count, size_t size) {
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = take(size);
    }
    for (unsigned i = 0; i < count; i += 2) {
        free(blocks[i]);
    }
    for (unsigned i = 0; i < count; i += 2) {
        blocks[i] = take(size);
    }
    for (unsigned i = 0; i < count; i++) {
        free(blocks[i]);
    }
}

/* A small block above free ones: no heap shrinks at its end and grows again all the time. */
static void *take_above(void **blocks, unsigned count, size_t size) {
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = take(size);
    }
    void *last = take(16);
    for (unsigned i = 0; i < count; i++) {
        free(blocks[i]);
    }
    return last;
}

static void many_sizes(unsigned threads) {
    static const size_t sizes[] = {8, 16, 32, 64, 128, 256, 512};
    static const unsigned counts[] = {25, 100, 400, MOST_BLOCKS};
    void *blocks[MOST_BLOCKS];
    (void)threads;
    void *const last = take_above(blocks, MOST_BLOCKS, 1024);
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            for (unsigned done = 0; done < 600000; done += counts[c]) {
                many_blocks(blocks, counts[c], sizes[k]);
            }
        }
    }
    free(last);
}

/* --- many-sizes-threads: a working set of mixed sizes in each thread
 * ------------------------------- */

#define WORKING_SET 1024
#define REPLACEMENTS 6000000

static void *replace(void *arg) {
    rng_t rng = *(rng_t *)arg;
    void **set = must(calloc(WORKING_SET, sizeof(void *)));
    for (unsigned i = 0; i < REPLACEMENTS; i++) {
        void **object = &set[rng_below(&rng, WORKING_SET)];
        free(*object);
        *object = take(rng_size(&rng, 2, 5 + (unsigned)rng_below(&rng, 11)));
    }
    for (unsigned i = 0; i < WORKING_SET; i++) {
        free(set[i]);
    }
    free(set);
    return NULL;
}

static void many_sizes_threads(unsigned threads) {
    rng_t rngs[MAX_THREADS];
    for (unsigned i = 0; i < threads; i++) {
        rngs[i] = rng_make(i);
    }
    run_all(replace, rngs, sizeof(rngs[0]), threads);
}

/* --- big-numbers: every result is a new small object
 * ------------------------------------------------ */

typedef struct {
    unsigned count;
    uint16_t limbs[]; /* the lowest first, none of them zero at the top */
} number_t;

static number_t *number_new(unsigned count) {
    number_t *n = must(malloc(sizeof(*n) + count * sizeof(n->limbs[0])));
    n->count = count;
    return n;
}

static number_t *number_trim(number_t *n) {
    while (n->count > 0 && n->limbs[n->count - 1] == 0) {
        n->count--;
    }
    return n;
}

static number_t *number_add(const number_t *a, const number_t *b) {
    const unsigned count = (a->count > b->count ? a->count : b->count) + 1;
    number_t *sum = number_new(count);
    uint32_t carry = 0;
    for (unsigned i = 0; i < count; i++) {
        carry += (uint32_t)(i < a->count ? a->limbs[i] : 0) + (i < b->count ? b->limbs[i] : 0);
        sum->limbs[i] = (uint16_t)carry;
        carry >>= 16;
    }
    return number_trim(sum);
}

static number_t *number_multiply(const number_t *a, uint16_t factor) {
    number_t *product = number_new(a->count + 1);
    uint32_t carry = 0;
    for (unsigned i = 0; i < a->count; i++) {
        carry += (uint32_t)a->limbs[i] * factor;
        product->limbs[i] = (uint16_t)carry;
        carry >>= 16;
    }
    product->limbs[a->count] = (uint16_t)carry;
    return number_trim(product);
}

static number_t *number_divide(const number_t *a, uint16_t divisor, uint16_t *rest) {
    number_t *quotient = number_new(a->count);
    uint32_t carry = 0;
    for (unsigned i = a->count; i-- > 0;) {
        carry = carry << 16 | a->limbs[i];
        quotient->limbs[i] = (uint16_t)(carry / divisor);
        carry %= divisor;
    }
    *rest = (uint16_t)carry;
    return number_trim(quotient);
}

/* The next of a sequence of numbers of at most twelve limbs, and all that is divided out of it. */
static number_t *number_step(number_t *n, const number_t *offset) {
    static const uint16_t primes[] = {3, 5, 7, 11, 13, 17};
    number_t *product = number_multiply(n, 40503);
    number_t *next = number_add(product, offset);
    free(n);
    free(product);
    for (size_t i = 0; i < sizeof(primes) / sizeof(primes[0]); i++) {
        uint16_t rest = 0;
        number_t *quotient = number_divide(next, primes[i], &rest);
        const int is_taken = rest == 0 || next->count > 12;
        free(is_taken ? next : quotient);
        next = is_taken ? quotient : next;
    }
    return next;
}

static void big_numbers(unsigned threads) {
    (void)threads;
    number_t *offset = number_new(3);
    memcpy(offset->limbs, (uint16_t[]){49831, 7, 12345}, 3 * sizeof(uint16_t));
    number_t *n = number_add(offset, offset);
    for (unsigned i = 0; i < 1600000; i++) {
        n = number_step(n, offset);
    }
    free(n);
    free(offset);
}

/* --- two-level-logic: sets of cubes, split and joined in a recursion
 * -------------------------------- */

#define VARIABLES 40

/* A product of variables: which of them are in it, and which of those are not negated. */
typedef struct {
    uint64_t used, positive;
} cube_t;

typedef struct {
    size_t count, room;
    cube_t **cubes;
} cover_t;

static cover_t *cover_new(size_t room) {
    cover_t *cover = must(malloc(sizeof(*cover)));
    *cover = (cover_t){0, room, must(malloc((room + 1) * sizeof(cube_t *)))};
    return cover;
}

static void cover_add(cover_t *cover, cube_t value) {
    if (cover->count == cover->room) {
        cover->room = cover->room * 2 + 1;
        cover->cubes = must(realloc(cover->cubes, cover->room * sizeof(cube_t *)));
    }
    cube_t *cube = must(malloc(sizeof(*cube)));
    *cube = value;
    cover->cubes[cover->count++] = cube;
}

static void cover_free(cover_t *cover) {
    for (size_t i = 0; i < cover->count; i++) {
        free(cover->cubes[i]);
    }
    free(cover->cubes);
    free(cover);
}

/* The rest of the cover where the variable has the value. */
static cover_t *cover_where(const cover_t *cover, unsigned variable, int value) {
    const uint64_t bit = (uint64_t)1 << variable;
    cover_t *part = cover_new(cover->count / 2);
    for (size_t i = 0; i < cover->count; i++) {
        const cube_t cube = *cover->cubes[i];
        if (!(cube.used & bit) || !(cube.positive & bit) == !value) {
            cover_add(part, (cube_t){cube.used & ~bit, cube.positive & ~bit});
        }
    }
    return part;
}

static unsigned most_used(const cover_t *cover) {
    unsigned counts[VARIABLES] = {0}, best = 0;
    for (size_t i = 0; i < cover->count; i++) {
        for (uint64_t used = cover->cubes[i]->used; used; used &= used - 1) {
            counts[__builtin_ctzll(used)]++;
        }
    }
    for (unsigned v = 1; v < VARIABLES; v++) {
        best = counts[v] > counts[best] ? v : best;
    }
    return best;
}

static int has_full_cube(const cover_t *cover) {
    for (size_t i = 0; i < cover->count; i++) {
        if (!cover->cubes[i]->used) {
            return 1;
        }
    }
    return 0;
}

static cover_t *cover_complement(const cover_t *cover) {
    cover_t *result = cover_new(4);
    if (cover->count == 0) {
        cover_add(result, (cube_t){0, 0});
        return result;
    }
    if (has_full_cube(cover)) {
        return result;
    }
    const unsigned variable = most_used(cover);
    const uint64_t bit = (uint64_t)1 << variable;
    for (int value = 0; value < 2; value++) {
        cover_t *part = cover_where(cover, variable, value);
        cover_t *inverse = cover_complement(part);
        for (size_t i = 0; i < inverse->count; i++) {
            const cube_t cube = *inverse->cubes[i];
            cover_add(result, (cube_t){cube.used | bit, cube.positive | (value ? bit : 0)});
        }
        cover_free(inverse);
        cover_free(part);
    }
    return result;
}

static void two_level_logic(unsigned threads) {
    rng_t rng = rng_make(0);
    (void)threads;
    for (unsigned n = 0; n < 5; n++) {
        cover_t *cover = cover_new(0);
        for (unsigned i = 0; i < 20; i++) {
            cube_t cube = {0, rng_next(&rng)};
            for (unsigned k = 0; k < 5; k++) {
                cube.used |= (uint64_t)1 << rng_below(&rng, VARIABLES);
            }
            cover_add(cover, (cube_t){cube.used, cube.positive & cube.used});
        }
        cover_free(cover_complement(cover));
        cover_free(cover);
    }
}

/* --- random-threads: phases of random work, leftovers go to the next thread
 * ------------------------- */

#define LEFTOVERS 500
#define ROUNDS 100
#define OPERATIONS 25000

typedef struct {
    size_t count;
    void *objects[LEFTOVERS];
} parcel_t;

typedef struct {
    _Atomic(parcel_t *) inbox;
    _Atomic(parcel_t *) *next;
    rng_t rng;
} worker_t;

static void parcel_free(parcel_t *parcel) {
    for (size_t i = 0; parcel && i < parcel->count; i++) {
        free(parcel->objects[i]);
    }
    free(parcel);
}

static void random_round(worker_t *worker, void **objects, size_t count) {
    for (unsigned i = 0; i < OPERATIONS; i++) {
        void **object = &objects[rng_below(&worker->rng, count)];
        if (*object) {
            free(*object);
            *object = NULL;
        } else {
            *object = take(rng_size(&worker->rng, 3, 14));
        }
    }
}

static void *work(void *arg) {
    worker_t *worker = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        void *objects[2 * LEFTOVERS] = {0};
        random_round(worker, objects, 2 * LEFTOVERS);
        parcel_t *parcel = must(malloc(sizeof(*parcel)));
        parcel->count = LEFTOVERS;
        memcpy(parcel->objects, objects, sizeof(parcel->objects));
        parcel_free(atomic_exchange(worker->next, parcel));
        for (size_t i = LEFTOVERS; i < 2 * LEFTOVERS; i++) {
            free(objects[i]);
        }
        parcel_free(atomic_exchange(&worker->inbox, NULL));
    }
    return NULL;
}

static void random_threads(unsigned threads) {
    static worker_t workers[MAX_THREADS];
    const unsigned count = threads * 4 <= MAX_THREADS ? threads * 4 : MAX_THREADS;
    for (unsigned i = 0; i < count; i++) {
        workers[i].rng = rng_make(i);
        workers[i].next = &workers[(i + 1) % count].inbox;
    }
    run_all(work, workers, sizeof(workers[0]), count);
    for (unsigned i = 0; i < count; i++) {
        parcel_free(atomic_exchange(&workers[i].inbox, NULL));
    }
}

/* --- short-threads: threads start, allocate and end
 * ------------------------------------------------- */

#define VISITS 4000
#define GUESTS 300

typedef struct {
    rng_t rng;
    void *left[GUESTS];
} visit_t;

static void *visit(void *arg) {
    visit_t *v = arg;
    for (unsigned i = 0; i < GUESTS; i++) {
        v->left[i] = take(rng_size(&v->rng, 4, 11));
    }
    for (unsigned i = 0; i < GUESTS; i += 2) {
        free(v->left[i]);
        v->left[i] = NULL;
    }
    return NULL;
}

static void short_threads(unsigned threads) {
    static visit_t visits[MAX_THREADS];
    for (unsigned i = 0; i < threads; i++) {
        visits[i].rng = rng_make(i);
    }
    for (unsigned n = 0; n < VISITS; n++) {
        run_all(visit, visits, sizeof(visits[0]), threads);
        for (unsigned i = 0; i < threads * GUESTS; i++) {
            free(visits[i / GUESTS].left[i % GUESTS]);
        }
    }
}

/* --- the table
 * ---------------------------------------------------------------------------------------- */

static void nothing(unsigned threads) {
    (void)threads;
}

static const struct {
    const char *name;
    void (*run)(unsigned threads);
} loads[] = {
    {"nothing", nothing},
    {"server-churn", server_churn},
    {"free-elsewhere", free_elsewhere},
    {"mixed-stress", mixed_stress},
    {"many-sizes", many_sizes},
    {"many-sizes-threads", many_sizes_threads},
    {"big-numbers", big_numbers},
    {"two-level-logic", two_level_logic},
    {"random-threads", random_threads},
    {"short-threads", short_threads},
};

static int is_loaded(const char *library) {
    char line[4096];
    int is_found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !is_found && fgets(line, sizeof(line), maps)) {
        is_found = strstr(line, library) != NULL;
    }
    if (maps) {
        fclose(maps);
    }
    return is_found;
}

int main(int argc, char **argv) {
    if (argc > 3 && argv[3][0] && !is_loaded(argv[3])) {
        printf("%s is not here\n", argv[3]);
        return 1;
    }
    const int threads = argc > 2 ? atoi(argv[2]) : 0;
    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]) && threads > 0; i++) {
        if (strcmp(argv[1], loads[i].name) == 0) {
            loads[i].run(threads < MAX_THREADS ? (unsigned)threads : MAX_THREADS);
            return 0;
        }
    }
    fputs("usage: umf-bench-loads LOAD THREADS [LIBRARY]; the loads are:\n", stderr);
    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        fprintf(stderr, "  %s\n", loads[i].name);
    }
    return 2;
}
