/* Where the software CUDA driver lies: in the build, unless UMF_TEST_FAKE_CUDA names another place,
 * as in a folder with copies of the programs (test/gpu/run.sh). */
#ifndef UMF_TEST_FAKES_CUDA_PATH_H
#define UMF_TEST_FAKES_CUDA_PATH_H

#include <cstdlib>

inline const char *fake_cuda_path() {
    const char *named = getenv("UMF_TEST_FAKE_CUDA");
    return named ? named : UMF_TEST_FAKE_CUDA;
}

#endif
