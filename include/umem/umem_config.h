/** @file
 * Facts about this libumem: its version, and its contexts. A program may set a HAVE_..._CONTEXT to
 * 0 before it includes any header of libumem. The context's type, constructor and class are not
 * declared then.
 */
#ifndef UMEM_CONFIG_H
#define UMEM_CONFIG_H 1

/// @brief Major part of the version of the interface.
#define UMEM_VERSION_MAJOR 0
/// @brief Minor part of the version of the interface.
#define UMEM_VERSION_MINOR 1
/// @brief Last part of the version of the interface.
#define UMEM_VERSION_MICRO 0

#ifndef HAVE_MALLOC_H
/// @brief The system has malloc.h.
#define HAVE_MALLOC_H 1
#endif

#ifndef HAVE_FILE_CONTEXT
/// @brief There is a ::umemFile.
#define HAVE_FILE_CONTEXT 1
#endif
#ifndef HAVE_MMAP_CONTEXT
/// @brief There is a ::umemMMap.
#define HAVE_MMAP_CONTEXT 1
#endif
#ifndef HAVE_CUDA_CONTEXT
/// @brief There is a ::umemCuda.
#define HAVE_CUDA_CONTEXT 1
#endif
#ifndef HAVE_CUDA_HOST_CONTEXT
/// @brief There is a ::umemCudaHost.
#define HAVE_CUDA_HOST_CONTEXT 1
#endif
#ifndef HAVE_CUDA_MANAGED_CONTEXT
/// @brief There is a ::umemCudaManaged.
#define HAVE_CUDA_MANAGED_CONTEXT 1
#endif
#ifndef HAVE_RMM_CONTEXT
/// @brief There is a ::umemRMM.
#define HAVE_RMM_CONTEXT 1
#endif

#endif /* UMEM_CONFIG_H */
