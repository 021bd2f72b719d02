/* Shared by the files of the proxy library. */
#ifndef UMF_LIB_PROXY_COMMON_H
#define UMF_LIB_PROXY_COMMON_H

#define UMF_PROXY_EXPORT __attribute__((visibility("default")))
#define UMF_PROXY_COLD __attribute__((cold, noinline))
#define umf_proxy_likely(x) __builtin_expect(!!(x), 1)
#define umf_proxy_unlikely(x) __builtin_expect(!!(x), 0)

/* Any other TLS model may allocate at a thread's first access. */
#define UMF_PROXY_THREAD __thread __attribute__((tls_model("initial-exec")))

#endif
