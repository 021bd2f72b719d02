# What makes the released library small: parts that no hot path runs through are compiled for size, and
# functions without a caller, of jemalloc above all, are left out.

set(umf_cold_sources ${UMF_SOURCES})
foreach(hot IN ITEMS
    "base/(thread_slot[a-z_]*|lock|meta)" "system/checksum" "cache/(depot|magazine[a-z_]*)" "ds/[a-z_]+" "track/[a-z_]+"
    "object/(content|event|listener|recorded)" "object/provider/tracked_(memory|provider)" "core/(pool|pool_ext|pool_life|provider|properties)"
    "ext/record/(events|live|objects)" "ext/record/stack/(stacks|walk)" "ctl/stats" "ipc/(export|export_mark|import|ipc|mapping|mapping_[a-z]+|wire)"
    "ext/movement/(copy|cpu|memory_kind|move|quick|route|staged_copy|transfer)" "ext/staging/queue" "ext/suspend/store_copy"
    "providers/os/(os|extent[a-z_]*|pages)" "providers/file/(window|opened)"
    "pools/proxy" "pools/shared/starts" "pools/disjoint/(bins|disjoint|reuse|slab[a-z_]*)" "pools/coalescing/(coalescing|kept|request|reuse|shards)"
    "pools/jemalloc/(jemalloc|arenas|blocks|fill|pages|pages_shards|pages_spans)"
    "pools/scalable/(scalable|below|blocks|records|spans|tbb|purge)")
    list(FILTER umf_cold_sources EXCLUDE REGEX "/src/${hot}\\.c$")
endforeach()
set_property(SOURCE ${umf_cold_sources} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-Os>)
target_compile_options(umf_objects PRIVATE $<$<CONFIG:Release>:-O2> $<$<CONFIG:Release>:-ffunction-sections>)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # Jumps need no padding in front of where they go; a function's cold rest is a function more to unwind.
    target_compile_options(umf_objects PRIVATE
        "$<$<CONFIG:Release>:-falign-labels=1;-falign-jumps=1;-falign-loops=1;-fno-reorder-blocks-and-partition>")
endif()
if(UMF_BUILD_SHARED_LIBRARY)
    target_link_options(umf PRIVATE $<$<CONFIG:Release>:-Wl,--gc-sections>)
    # Most relocations take a bit then instead of 24 bytes. A C library without support for them (glibc
    # before 2.36) would refuse to load ours, so a program made this way is run here.
    if(NOT CMAKE_CROSSCOMPILING AND NOT UMF_PYTHON_WHEEL) # a wheel is for older systems, too
        include(CheckCSourceRuns)
        set(CMAKE_REQUIRED_FLAGS -fPIE)
        set(CMAKE_REQUIRED_LINK_OPTIONS -pie -Wl,-z,pack-relative-relocs -Wl,--fatal-warnings)
        check_c_source_runs("
            static int one; static int *volatile at[] = {&one, &one};
            int main(void) { return at[0] != at[1]; }" UMF_HAVE_PACKED_RELOCATIONS)
        unset(CMAKE_REQUIRED_FLAGS)
        unset(CMAKE_REQUIRED_LINK_OPTIONS)
    endif()
    if(UMF_HAVE_PACKED_RELOCATIONS)
        target_link_options(umf PRIVATE $<$<CONFIG:Release>:-Wl,-z,pack-relative-relocs>)
    endif()
endif()
