/*
 * Two gates, `calls` and `endings`. A thread that enters a gate is counted in one of its stripes. A
 * thread that closes it makes newcomers wait, and then waits until no thread is inside.
 *
 * Every call of oneTBB enters `calls`. Fork closes it before it takes the locks of this library, so
 * that threads inside can finish: oneTBB calls the provider, and the provider takes locks. A thread
 * enters `endings` while oneTBB destroys the thread's data. The destruction of a pool closes it.
 *
 * oneTBB destroys that data in a destructor of thread-specific data. A thread enters `endings`
 * before these destructors run, and leaves it in their second round, by a key of this library.
 *
 * All waits are bounded. The thread that is waited for may be in an operation of a user's provider,
 * and this may wait for the very thread that waits here.
 */
#include "pools/scalable/tbb.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/dl.h"
#include "base/log.h"
#include "base/meta.h"
#include "base/stripes.h"
#include "system/common.h"
#include "system/os.h"
#include "system/pause.h"

/* Pauses before a wait gives up. The long wait takes about a second, because each pause takes
 * longer than requested. */
#define PAUSES_LONG 10000
#define PAUSES_SHORT 40
/* Of a thread that is inside itself: others may wait for a lock of oneTBB that it holds. */
#define PAUSES_INSIDE 200

typedef struct gate_t {
    /* Each counts threads inside, and GATE_CLOSER for each thread that has closed the gate. */
    umf_stripes_t words;
} gate_t;

#define GATE_CLOSER ((int64_t)1 << 32)

static gate_t calls, endings;

typedef struct tbb_thread_t {
    uint16_t depth : 14;    /* of nested calls: a provider may stand on another pool */
    uint16_t is_known : 1;  /* its end is announced */
    uint16_t is_ending : 1; /* it has entered the gate `endings` */
} tbb_thread_t;

static __thread tbb_thread_t self;

bool umf_tbb_is_lost;

/* --- gates --- */

static UMF_COLD void gate_wait(_Atomic int64_t *word) {
    for (unsigned round = 0; atomic_load(word) >= GATE_CLOSER; round++) {
        umf_pause(round);
    }
}

static void gate_enter(gate_t *gate) {
    _Atomic int64_t *word = umf_stripes_own(&gate->words);
    while (umf_unlikely(atomic_fetch_add(word, 1) >= GATE_CLOSER)) {
        atomic_fetch_sub(word, 1);
        gate_wait(word);
    }
}

static void gate_leave(gate_t *gate) {
    atomic_fetch_sub_explicit(umf_stripes_own(&gate->words), 1, memory_order_release);
}

static uint32_t gate_count(gate_t *gate) {
    uint32_t count = 0;
    for (size_t i = 0; i < UMF_STRIPES; i++) {
        count += (uint32_t)(atomic_load(&gate->words.at[i].count) % GATE_CLOSER);
    }
    return count;
}

static void gate_open(gate_t *gate) {
    for (size_t i = 0; i < UMF_STRIPES; i++) {
        atomic_fetch_sub(&gate->words.at[i].count, GATE_CLOSER);
    }
}

/* Closes the gate and waits. `own`: how often the caller itself is inside. false: other threads are
 * still inside. */
static bool gate_close(gate_t *gate, uint32_t own, unsigned pauses) {
    for (size_t i = 0; i < UMF_STRIPES; i++) {
        atomic_fetch_add(&gate->words.at[i].count, GATE_CLOSER);
    }
    for (unsigned round = 0; gate_count(gate) != own; round++) {
        if (round == pauses) {
            return false;
        }
        umf_pause(round);
    }
    return true;
}

/* In a child of fork: the other threads are gone. */
static void gate_reset(gate_t *gate, uint32_t own) {
    for (size_t i = 0; i < UMF_STRIPES; i++) {
        atomic_store(&gate->words.at[i].count, 0);
    }
    atomic_store(umf_stripes_own(&gate->words), own);
}

static uint32_t own_calls(void) {
    return self.depth > 0;
}

/* --- fork --- */

static bool is_losing; /* Sync: locks of fork */

static void fork_prepare(void) {
    is_losing = !gate_close(&calls, own_calls(), own_calls() ? PAUSES_INSIDE : PAUSES_LONG);
    if (is_losing) {
        UMF_LOG_WARN("fork: other threads stay inside a scalable pool; scalable pools of the child "
                     "have no memory to give");
    }
}

static void fork_parent(void) {
    gate_open(&calls);
}

static void fork_child(void) {
    umf_tbb_is_lost |= is_losing;
    gate_reset(&calls, own_calls());
    gate_reset(&endings, self.is_ending);
}

/* --- ends of threads --- */

/* A function of glibc: `function` runs before the destructors of thread-specific data. If a thread
 * registers it in one of those, it never runs. */
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *arg, void *dso)
    __attribute__((weak));
extern void *__dso_handle;

static pthread_key_t key;
static bool has_key;
static char first_round, last_round; /* their addresses are the values of the key */

static void ending_leave(void) {
    umf_tbb_leave();
    self.is_ending = false;
    gate_leave(&endings);
}

static void ending_enter(void *unused) {
    (void)unused;
    gate_enter(&endings);
    self.is_ending = true;
    umf_tbb_enter();
    if (!has_key || pthread_setspecific(key, &first_round) != 0) {
        ending_leave();
    }
}

/* Sets the key again in the first round, so that it runs in the next one: by then all destructors
 * of the first round have run. */
static void on_key(void *round) {
    if (round != &first_round || pthread_setspecific(key, &last_round) != 0) {
        ending_leave();
    }
}

/* The main thread needs no announcement: its end is the end of the process. */
static UMF_COLD void thread_announce(void) {
    /* Set first, because the registration may allocate, and this library may stand in for malloc.
     */
    self.is_known = true;
    if (has_key && __cxa_thread_atexit_impl && umf_os_tid() != umf_os_pid()) {
        __cxa_thread_atexit_impl(ending_enter, NULL, &__dso_handle);
    }
}

/* After the library is unloaded, threads that end must not call into it. */
__attribute__((destructor)) static void unload(void) {
    if (has_key) {
        has_key = false;
        pthread_key_delete(key);
    }
}

static void start(void) {
    has_key = pthread_key_create(&key, on_key) == 0;
    if (!has_key) {
        UMF_LOG_WARN("no thread-specific key is left: while a scalable pool is destroyed, threads "
                     "that have used it must not be ending");
    }
    /* Registered after the fork handlers of the locks, and therefore called before them. */
    if (pthread_atfork(fork_prepare, fork_parent, fork_child) != 0) {
        UMF_LOG_ERROR("cannot register fork handlers (no memory): a child process of fork() must "
                      "not use scalable pools");
    }
}

/* --- calls --- */

void umf_tbb_thread_begins(void) {
    if (umf_unlikely(!self.is_known)) {
        thread_announce();
    }
}

void umf_tbb_enter(void) {
    if (self.depth++ > 0) {
        return;
    }
    umf_tbb_thread_begins();
    gate_enter(&calls);
}

void umf_tbb_leave(void) {
    if (--self.depth == 0) {
        gate_leave(&calls);
    }
}

bool umf_tbb_stop(void) {
    return gate_close(&calls, own_calls(), PAUSES_SHORT) && !own_calls();
}

void umf_tbb_resume(void) {
    gate_open(&calls);
}

bool umf_tbb_pool_destroy(const umf_tbb_t *tbb, void *pool) {
    if (!gate_close(&endings, self.is_ending, PAUSES_LONG)) {
        UMF_LOG_WARN("a scalable pool is destroyed while a thread has been ending for longer than "
                     "a second");
    }
    umf_tbb_enter();
    bool is_destroyed = tbb->pool_destroy(pool);
    umf_tbb_leave();
    gate_open(&endings);
    return is_destroyed;
}

/* --- the library --- */

#define TBB_SYMBOL(mangled, member)                                                                \
    { .name = (mangled), .offset = offsetof(umf_tbb_t, member) }

static const umf_dl_symbol_t tbb_symbols[] = {
    TBB_SYMBOL("_ZN3rml14pool_create_v1ElPKNS_13MemPoolPolicyEPPNS_10MemoryPoolE", pool_create),
    TBB_SYMBOL("_ZN3rml12pool_destroyEPNS_10MemoryPoolE", pool_destroy),
    TBB_SYMBOL("_ZN3rml11pool_mallocEPNS_10MemoryPoolEm", pool_malloc),
    TBB_SYMBOL("_ZN3rml19pool_aligned_mallocEPNS_10MemoryPoolEmm", pool_aligned_malloc),
    TBB_SYMBOL("_ZN3rml9pool_freeEPNS_10MemoryPoolEPv", pool_free),
    TBB_SYMBOL("_ZN3rml10pool_msizeEPNS_10MemoryPoolEPv", pool_msize),
};

/* Never closed, because threads run destructors in the library, and pools may outlive the teardown
 * of this one. */
static _Atomic(umf_tbb_t *) tbb_loaded; /* Sync: atomic, published once */

static umf_result_t tbb_open(umf_tbb_t *tbb, void **library, char *why, size_t why_size) {
    *library = umf_dl_open(UMF_TBB_LIBRARY, false, why, why_size);
    if (!*library) {
        return UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE;
    }
    umf_result_t result =
        umf_dl_load(*library, UMF_TBB_LIBRARY, tbb_symbols, UMF_COUNT_OF(tbb_symbols), tbb);
    if (result != UMF_RESULT_SUCCESS) {
        snprintf(why, why_size, "it is too old or not what its name says");
        umf_dl_close(*library);
    }
    return result;
}

#define TBB_REMEDY "install oneTBB's allocator (Debian and Ubuntu: package libtbbmalloc2)"

umf_result_t umf_tbb_probe(char *why, size_t why_size) {
    umf_tbb_t tbb;
    void *library;
    char reason[160] = "";
    if (atomic_load_explicit(&tbb_loaded, memory_order_acquire)) {
        return UMF_RESULT_SUCCESS;
    }
    umf_result_t result = tbb_open(&tbb, &library, reason, sizeof(reason));
    if (result == UMF_RESULT_SUCCESS) {
        umf_dl_close(library);
    } else {
        snprintf(why, why_size, "%s: %s", reason, TBB_REMEDY);
    }
    return result;
}

umf_result_t umf_tbb_load(const umf_tbb_t **tbb) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    umf_tbb_t *loaded = atomic_load_explicit(&tbb_loaded, memory_order_acquire);
    if (loaded) {
        *tbb = loaded;
        return UMF_RESULT_SUCCESS;
    }
    umf_tbb_t *fresh = umf_meta_alloc(sizeof(*fresh));
    if (!fresh) {
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    void *library;
    char why[256] = "";
    umf_result_t result = tbb_open(fresh, &library, why, sizeof(why));
    if (result != UMF_RESULT_SUCCESS) {
        UMF_LOG_ERROR("the scalable pool cannot use %s: %s; %s", UMF_TBB_LIBRARY, why, TBB_REMEDY);
        umf_meta_free(fresh, sizeof(*fresh));
        return result;
    }
    pthread_once(&once, start);
    if (atomic_compare_exchange_strong(&tbb_loaded, &loaded, fresh)) {
        loaded = fresh;
    } else {
        umf_dl_close(library);
        umf_meta_free(fresh, sizeof(*fresh));
    }
    *tbb = loaded;
    return UMF_RESULT_SUCCESS;
}
