# Headers of the CUDA driver, for the CUDA provider. Nothing is linked: the driver is found at run
# time.
#
# Sets UMF_HAVE_CUDA, and UMF_CUDA_INCLUDE_DIR to the folder of cuda.h and cudaTypedefs.h: the one
# given, that of a CUDA Toolkit, or the one scripts/install-deps.sh fetched.

set(UMF_HAVE_CUDA 0)
if(NOT UMF_BUILD_CUDA_PROVIDER)
    return()
endif()

if(NOT UMF_CUDA_INCLUDE_DIR)
    unset(UMF_CUDA_INCLUDE_DIR CACHE) # empty would pass for found
    # Not find_package(CUDAToolkit), which leaves a hundred names in the cache of a parent project.
    find_path(UMF_CUDA_INCLUDE_DIR cudaTypedefs.h
        HINTS ${CUDAToolkit_INCLUDE_DIRS} "$ENV{CUDA_PATH}/include" /usr/local/cuda/include
            "${PROJECT_SOURCE_DIR}/build/deps/cuda/include"
        DOC "Folder of cuda.h and cudaTypedefs.h")
else()
    set(UMF_CUDA_INCLUDE_DIR "${UMF_CUDA_INCLUDE_DIR}" CACHE PATH "Folder of cuda.h and cudaTypedefs.h")
endif()

if(EXISTS "${UMF_CUDA_INCLUDE_DIR}/cudaTypedefs.h")
    umf_check_libc(UMF_CUDA_INCLUDE_DIR "Set it to a folder with the headers of CUDA alone (links to cuda.h and"
        " cudaTypedefs.h are enough), or pass -DUMF_BUILD_CUDA_PROVIDER=OFF.")
    set(UMF_HAVE_CUDA 1)
elseif(UMF_BUILD_CUDA_PROVIDER STREQUAL "AUTO")
    message(STATUS "No cudaTypedefs.h: the library is built without the CUDA provider"
        " (scripts/install-deps.sh fetches it, UMF_CUDA_INCLUDE_DIR names it)")
else()
    message(FATAL_ERROR "UMF_BUILD_CUDA_PROVIDER is ON and no cudaTypedefs.h was found."
        " Install the CUDA Toolkit, run scripts/install-deps.sh, or set UMF_CUDA_INCLUDE_DIR to the"
        " folder that has it.")
endif()
