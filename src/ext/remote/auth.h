/* Proofs that a process has the key of its group. */
#ifndef UMF_SRC_EXT_REMOTE_AUTH_H
#define UMF_SRC_EXT_REMOTE_AUTH_H

#include <stdbool.h>
#include <stddef.h>

#include <umf/base.h>

#define UMF_REMOTE_KEY 32
#define UMF_REMOTE_PROOF 32

typedef struct umf_remote_key_t {
    unsigned char bytes[UMF_REMOTE_KEY];
    unsigned char *(*hmac)(const void *digest, const void *key, int key_size,
                           const unsigned char *data, size_t size, unsigned char *out,
                           unsigned *out_size);
    const void *digest;
} umf_remote_key_t;

/* Reads the key and finds libcrypto. INVALID_ARGUMENT, NOT_SUPPORTED: logged. */
umf_result_t umf_remote_key_read(umf_remote_key_t *key, const char *path);
/* HMAC-SHA-256 of the data. false: libcrypto fails. */
bool umf_remote_prove(const umf_remote_key_t *key, const void *data, size_t size,
                      unsigned char *proof);
/* Equal? The time that it takes does not depend on the bytes. */
bool umf_remote_is_equal(const unsigned char *a, const unsigned char *b, size_t size);

#endif
