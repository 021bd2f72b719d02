# A wheel is built without the jemalloc pool where that needs more than pip brings: the build ends with a wheel on
# every machine that has compilers.

set(umf_wheel_lacks)
if(NOT UMF_JEMALLOC_SOURCE_DIR AND NOT EXISTS "${PROJECT_SOURCE_DIR}/build/deps/jemalloc-source/configure")
    set(umf_wheel_lacks "its source (-DUMF_JEMALLOC_SOURCE_DIR=<folder> names one)")
endif()
foreach(tool IN ITEMS make patch) # jemalloc.cmake runs them
    find_program(UMF_WHEEL_${tool} ${tool} PATHS ENV PATH NO_DEFAULT_PATH)
    mark_as_advanced(UMF_WHEEL_${tool})
    if(NOT UMF_WHEEL_${tool})
        list(APPEND umf_wheel_lacks ${tool})
    endif()
endforeach()
if(umf_wheel_lacks)
    list(JOIN umf_wheel_lacks ", " umf_wheel_lacks)
    message(STATUS "jemalloc: the wheel has no pool of this kind, as there is no: ${umf_wheel_lacks}")
    set(UMF_BUILD_LIBUMF_POOL_JEMALLOC OFF)
endif()
