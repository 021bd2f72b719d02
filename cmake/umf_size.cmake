# What makes the released library small: parts that no hot path runs through are compiled for size, and
# functions that nobody calls, of jemalloc above all, are left out.

set(umf_cold_sources ${UMF_SOURCES})
list(FILTER umf_cold_sources EXCLUDE REGEX
    "/src/(ds|track)/|/src/pools/[a-z]+\\.c$|/src/pools/[a-z]+_(hot|parts|tbb)\\.c$|/src/base/(local|lock|magazine|meta|sum)\\.c$|/src/core/(pool|provider|properties)\\.c$|/src/ipc/(export|import|ipc|mapping|wire)\\.c$|/src/providers/(os|os_[a-z]+|window|opened)\\.c$")
set_property(SOURCE ${umf_cold_sources} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-Os>)
target_compile_options(umf_objects PRIVATE $<$<CONFIG:Release>:-O2> $<$<CONFIG:Release>:-ffunction-sections>)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # Jumps need no padding in front of where they go; a function's cold rest is a function more to unwind.
    target_compile_options(umf_objects PRIVATE
        "$<$<CONFIG:Release>:-falign-labels=1;-falign-jumps=1;-falign-loops=1;-fno-reorder-blocks-and-partition>")
endif()
if(UMF_BUILD_SHARED_LIBRARY)
    target_link_options(umf PRIVATE $<$<CONFIG:Release>:-Wl,--gc-sections>)
endif()
