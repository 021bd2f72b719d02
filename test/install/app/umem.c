/* A program of libumem: data of the host goes to a GPU, where there is one, and to a
 * file. */
#include <errno.h>
#include <string.h>

#include "umem.h"

#ifndef TMPDIR
#define TMPDIR "/tmp/"
#endif

#define N 64

int main(void) {
    umemHost host;
    umemCuda cuda;
    umemFile file;
    const char *name = TMPDIR "umf_install_umem";
    double back[N / 2];
    int failed = errno; /* loading libraries leaves errno alone, and so do all calls */

    umemHost_ctor(&host);
    umemCuda_ctor(&cuda, 0);
    umemFile_ctor(&file, name, "w+b");
    int has_gpu = umem_is_ok(&cuda);

    size_t nbytes = N * sizeof(double);
    uintptr_t host_adr = umem_alloc(&host, nbytes);
    umem_set(&host, host_adr, 0, nbytes);
    for (int i = 0; i < N; ++i) {
        ((double *)host_adr)[i] = i;
    }

    uintptr_t cuda_adr = umem_alloc(&cuda, nbytes / 2);
    uintptr_t file_adr = umem_alloc(&file, nbytes / 2);
    umem_copy_to(&host, host_adr + 10 * sizeof(double), &cuda, cuda_adr, nbytes / 2);
    if (has_gpu) {
        umem_copy_from(&file, file_adr, &cuda, cuda_adr, nbytes / 2);
    } else {
        umem_copy_from(&file, file_adr, &host, host_adr + 10 * sizeof(double), nbytes / 2);
    }
    umem_copy_to(&file, file_adr, &host, (uintptr_t)back, nbytes / 2);
    for (int i = 0; i < N / 2; ++i) {
        failed |= back[i] != i + 10;
    }

    umem_free(&host, host_adr);
    umem_free(&cuda, cuda_adr);
    umem_free(&file, file_adr);
    failed |= !umem_is_ok(&host) || !umem_is_ok(&file) || umem_is_ok(&cuda) != has_gpu;
    umem_dtor(&host);
    umem_dtor(&cuda);
    umem_dtor(&file);
    failed |= errno;
    remove(name);
    puts(failed ? "umem in C fails" : "umem in C works");
    return failed;
}
