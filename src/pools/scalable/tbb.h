/*
 * oneTBB's memory pools, found at run time, and when they may be entered.
 *
 * Two things in oneTBB are unsafe. A fork while a thread is inside leaves its locks locked in the
 * child. And when a thread ends, oneTBB destroys the thread's data, but the destruction of a pool
 * by another thread does not wait for that. Both are made safe here: every call goes through enter
 * and leave.
 */
#ifndef UMF_SRC_POOLS_SCALABLE_TBB_H
#define UMF_SRC_POOLS_SCALABLE_TBB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <umf/base.h>

#include "system/common.h"

#define UMF_TBB_LIBRARY "libtbbmalloc.so.2"

/* As in tbb/scalable_allocator.h: rml::MemPoolPolicy, and calls with a reference as a pointer. */
typedef struct umf_tbb_policy_t {
    void *(*alloc)(intptr_t id, size_t *size);
    int (*free)(intptr_t id, void *ptr, size_t size); /* not 0: failed */
    size_t granularity;
    int version;
    unsigned flags;
} umf_tbb_policy_t;

#define UMF_TBB_POLICY_VERSION 1
#define UMF_TBB_KEEP_ALL_MEMORY 2u

typedef struct umf_tbb_t {
    int (*pool_create)(intptr_t id, const umf_tbb_policy_t *policy, void **pool);
    bool (*pool_destroy)(void *pool);
    void *(*pool_malloc)(void *pool, size_t size);
    void *(*pool_aligned_malloc)(void *pool, size_t size, size_t alignment);
    bool (*pool_free)(void *pool, void *ptr);
    size_t (*pool_msize)(void *pool, void *ptr);
} umf_tbb_t;

/* Loads the library at the first call; it stays loaded. DEPENDENCY_UNAVAILABLE: it is not there,
 * and a log line says what to install. */
umf_result_t umf_tbb_load(const umf_tbb_t **tbb);
/* Tells whether the library can be loaded; `why` gets the reason if not. */
umf_result_t umf_tbb_probe(char *why, size_t why_size);

/* Announces a thread that may have to enter when it ends. Call it before it can end. */
void umf_tbb_thread_begins(void);

/* Enter and leave surround every call of a function above, except pool_msize. They may nest, and
 * the provider may be called in between. Enter waits while a fork is under way. */
void umf_tbb_enter(void);
void umf_tbb_leave(void);

/* No thread enters until resume. false: a thread is still inside, possibly the caller itself.
 * Resume must follow in both cases. */
bool umf_tbb_stop(void);
void umf_tbb_resume(void);

/* Destroys a pool. Waits until oneTBB destroys no data of an ending thread. */
bool umf_tbb_pool_destroy(const umf_tbb_t *tbb, void *pool);

/* This process is the child of a fork that found other threads inside oneTBB. Its locks stay
 * locked, so nothing of it may be called but pool_msize. Written while the child has one thread. */
extern UMF_HIDDEN bool umf_tbb_is_lost;

#endif
