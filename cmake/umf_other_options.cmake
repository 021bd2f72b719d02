# Options given on the command line that this project does not have are named once. They are no error:
# build scripts written for other builds of UMF pass options that mean nothing here.

set(umf_without_effect
    UMF_BUILD_BENCHMARKS_MT UMF_BUILD_GPU_EXAMPLES UMF_BUILD_GPU_TESTS UMF_DISABLE_HWLOC
    UMF_FORMAT_CODE_STYLE UMF_LINK_HWLOC_STATICALLY UMF_TESTS_FAIL_ON_SKIP UMF_USE_GCOV UMF_USE_MSAN
    UMF_USE_VALGRIND)
set(umf_why_UMF_BUILD_BENCHMARKS_MT "UMF_BUILD_BENCHMARKS builds those with threads, too")
set(umf_why_UMF_DISABLE_HWLOC "hwloc is opened at run time and not needed to run")
set(umf_why_UMF_LINK_HWLOC_STATICALLY "${UMF_HWLOC_LIBRARY} is opened at run time, never linked")
set(umf_why_UMF_USE_GCOV "the option is UMF_USE_COVERAGE")
set(umf_why_UMF_USE_MSAN "MemorySanitizer would have to see into jemalloc")

get_cmake_property(umf_cache CACHE_VARIABLES)
list(FILTER umf_cache INCLUDE REGEX "^UMF_")
foreach(name IN LISTS umf_cache)
    set(umf_value "${${name}}") # reading it keeps CMake from warning about it
    get_property(umf_help CACHE ${name} PROPERTY HELPSTRING)
    if(NOT umf_help STREQUAL "No help, variable specified on the command line.")
        continue() # an option of ours, or of the project around us
    endif()
    if(NOT name IN_LIST umf_without_effect)
        message(STATUS "${name} is not an option of libumf: is it misspelt?")
    elseif(NOT "${umf_value}" MATCHES "^(OFF|0|NO|FALSE|N)$")
        if(NOT umf_why_${name})
            set(umf_why_${name} "libumf has no such part")
        endif()
        message(STATUS "${name} has no effect: ${umf_why_${name}}")
    endif()
    set_property(CACHE ${name} PROPERTY HELPSTRING "Not an option of libumf") # so it is said once
endforeach()
