/* Proofs that a process has the key of its group. */
#include "ext/remote/auth.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/dl.h"
#include "base/log.h"
#include "system/common.h"
#include "system/os.h"

static umf_result_t crypto_find(umf_remote_key_t *key) {
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
    for (size_t i = 0; i < UMF_COUNT_OF(names); i++) {
        void *library = umf_dl_find(names[i], NULL, 0);
        const void *(*sha256)(void) =
            library ? (const void *(*)(void))(uintptr_t)umf_dl_symbol(library, "EVP_sha256") : NULL;
        void *hmac = sha256 ? umf_dl_symbol(library, "HMAC") : NULL;
        if (hmac) {
            key->hmac = (__typeof__(key->hmac))(uintptr_t)hmac;
            key->digest = sha256();
            return UMF_RESULT_SUCCESS;
        }
    }
    UMF_LOG_ERROR("a key needs libcrypto.so.3 (OpenSSL), which is not here: install libssl3");
    return UMF_RESULT_ERROR_NOT_SUPPORTED;
}

/* 32 bytes, of a file that only its owner can read. */
static umf_result_t key_file_read(umf_remote_key_t *key, const char *path, int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size != UMF_REMOTE_KEY ||
        umf_os_read_at(fd, key->bytes, UMF_REMOTE_KEY, 0) != 0) {
        UMF_LOG_ERROR("%s is no file of %d random bytes", path, UMF_REMOTE_KEY);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0 || !umf_os_is_own_user(status.st_uid)) {
        UMF_LOG_ERROR("%s is not this user's, or others can read it: set its mode to 0600", path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_remote_key_read(umf_remote_key_t *key, const char *path) {
    int fd;
    int error = umf_os_open(path, O_RDONLY | O_NONBLOCK, 0, &fd);
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__, "no key can be read from %s", path);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    umf_result_t result = key_file_read(key, path, fd);
    umf_os_close(fd);
    return result == UMF_RESULT_SUCCESS ? crypto_find(key) : result;
}

bool umf_remote_prove(const umf_remote_key_t *key, const void *data, size_t size,
                      unsigned char *proof) {
    unsigned length = UMF_REMOTE_PROOF;
    return key->hmac(key->digest, key->bytes, UMF_REMOTE_KEY, data, size, proof, &length) &&
           length == UMF_REMOTE_PROOF;
}

bool umf_remote_is_equal(const unsigned char *a, const unsigned char *b, size_t size) {
    unsigned difference = 0;
    for (size_t i = 0; i < size; i++) {
        difference |= (unsigned)(a[i] ^ b[i]);
    }
    return difference == 0;
}
