/*
 * Handles as bytes: what travels between processes.
 */
#ifndef UMF_TEST_FAKES_HANDLE_H
#define UMF_TEST_FAKES_HANDLE_H

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include <umf/ipc.h>

#include "fakes/content.h"

inline Bytes bytes_of(umf_ipc_handle_t handle, size_t size) {
    auto first = reinterpret_cast<const unsigned char *>(handle);
    return Bytes(first, first + size);
}

// Gets a handle, copies it, puts it.
inline umf_result_t get_handle(const void *ptr, Bytes *bytes) {
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    umf_result_t result = umfGetIPCHandle(ptr, &handle, &size);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    *bytes = bytes_of(handle, size);
    return umfPutIPCHandle(handle);
}

// The same where it must succeed.
inline Bytes handle_of(const void *ptr) {
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    EXPECT_EQ(umfGetIPCHandle(ptr, &handle, &size), UMF_RESULT_SUCCESS);
    Bytes bytes = bytes_of(handle, size);
    EXPECT_EQ(umfPutIPCHandle(handle), UMF_RESULT_SUCCESS);
    return bytes;
}

// Aligned, and no longer than needed, so that a sanitizer sees every byte read too much.
inline std::vector<std::max_align_t> aligned_copy(const Bytes &bytes) {
    std::vector<std::max_align_t> copy(bytes.size() / sizeof(std::max_align_t) + 1);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<unsigned char *>(copy.data()));
    return copy;
}

inline umf_result_t open_handle(umf_ipc_handler_handle_t handler, const Bytes &handle, void **ptr) {
    auto copy = aligned_copy(handle);
    return umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(copy.data()), ptr);
}

#endif
