/*
 * Atomics of C11, for tests in C++, too: headers say _Atomic(type), which is std::atomic<type>
 * there, as in C++23. Tests include private headers inside of extern "C".
 */
#ifndef UMF_SRC_SYSTEM_ATOMIC_H
#define UMF_SRC_SYSTEM_ATOMIC_H

#ifndef __cplusplus
#include <stdatomic.h>
#else
extern "C++" {
#include <atomic>
}

#define _Atomic(type) std::atomic<type>

using std::atomic_compare_exchange_strong_explicit;
using std::atomic_compare_exchange_weak_explicit;
using std::atomic_exchange_explicit;
using std::atomic_fetch_add_explicit;
using std::atomic_fetch_and_explicit;
using std::atomic_fetch_or_explicit;
using std::atomic_fetch_sub_explicit;
using std::atomic_load;
using std::atomic_load_explicit;
using std::atomic_signal_fence;
using std::atomic_store;
using std::atomic_store_explicit;
using std::atomic_thread_fence;
using std::memory_order;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;
#endif

#endif
