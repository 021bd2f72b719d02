# Build scripts written for other builds of UMF pass options that mean nothing here (UMF_BUILD_GPU_TESTS,
# UMF_USE_VALGRIND, UMF_LINK_HWLOC_STATICALLY ...). Reading one is what keeps CMake from warning about it.

get_cmake_property(umf_cache CACHE_VARIABLES)
list(FILTER umf_cache INCLUDE REGEX "^UMF_")
foreach(name IN LISTS umf_cache)
    set(umf_value "${${name}}")
endforeach()

if(UMF_USE_MSAN)
    message(STATUS "UMF_USE_MSAN has no effect: MemorySanitizer would have to see into jemalloc")
endif()
