/** @file
 * Small things that programs on libumem use: linkage, alignments, dumps of memory.
 */
#ifndef UMEM_UTILS_H
#define UMEM_UTILS_H 1

#include <inttypes.h>
#include <stdalign.h>
#include <stddef.h>

#ifdef __cplusplus
/// @brief The declarations that follow have C linkage.
#define UMEM_START_EXTERN_C extern "C" {
/// @brief The end of ::UMEM_START_EXTERN_C.
#define UMEM_CLOSE_EXTERN_C }
#else
/// @brief The declarations that follow have C linkage.
#define UMEM_START_EXTERN_C
/// @brief The end of ::UMEM_START_EXTERN_C.
#define UMEM_CLOSE_EXTERN_C
#endif

#ifdef __GNUC__
/// @brief A function of the library that programs may call.
#define UMEM_EXPORT __attribute__((visibility("default")))
#else
/// @brief A function of the library that programs may call.
#define UMEM_EXPORT
#endif

/// @brief Declares a function of the library that programs may call.
#define UMEM_EXTERN extern UMEM_EXPORT

/// @brief Alignment of addresses in a file.
#define UMEM_FUNDAMENTAL_FILE_ALIGN 1
/// @brief Alignment of addresses in memory of a GPU.
#define UMEM_FUNDAMENTAL_CUDA_ALIGN 256
/// @brief Alignment of addresses in memory of the host.
#define UMEM_FUNDAMENTAL_HOST_ALIGN alignof(max_align_t)

UMEM_START_EXTERN_C

/// @brief Tells whether a number is a power of two.
///
/// @param x any number
/// @return 1 or 0; 0 for 0
static inline int umem_ispowerof2(size_t x) {
    return x != 0 && (x & (x - 1)) == 0;
}

/// @brief Prints memory to stdout, 16 bytes a line, in hexadecimal and as text.
///
/// @param desc printed first; NULL: nothing
/// @param addr memory that the CPU can access
/// @param len bytes
UMEM_EXTERN void hexDump(char *desc, void *addr, int len);

/// @brief Prints memory to stdout, 8 bytes a line, in binary and as text.
///
/// @param desc printed first; NULL: nothing
/// @param addr memory that the CPU can access
/// @param len bytes
UMEM_EXTERN void binDump(char *desc, void *addr, int len);

UMEM_CLOSE_EXTERN_C

#endif /* UMEM_UTILS_H */
