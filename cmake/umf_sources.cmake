# The sources of the library.
#
# Providers and pools come from their lists, src/providers/providers.def and src/pools/pools.def. A
# line is UMF_PROVIDER(<kind>, "<name>", <feature>) or UMF_POOL(...), and stands for <kind>.c, the
# files <kind>_*.c, the table <kind>_params.def and the folder <kind>/, compiled when this build has the
# feature. All other files are taken as they are.
#
# Sets UMF_SOURCES; UMF_PARAMS_TABLES; UMF_OPTIONAL_FILES, of kinds that a build may be without, and
# UMF_OPTIONAL_SOURCES, the same with what they belong to, for cmake/umf_absent.cmake;
# UMF_PROVIDER_KINDS and UMF_POOL_KINDS, the kinds this build has; and UMF_FEATURE_DEFINITIONS:
# UMF_WITH_<feature> is 1 or 0 in every source.

set(umf_feature_ANY 1)
set(umf_feature_LINUX 0)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(umf_feature_LINUX 1)
endif()
set(umf_feature_EXT 0)
if(UMF_BUILD_EXT)
    set(umf_feature_EXT 1)
endif()
set(umf_feature_JEMALLOC 0)
if(UMF_BUILD_LIBUMF_POOL_JEMALLOC)
    set(umf_feature_JEMALLOC 1)
endif()

set(umf_feature_CUDA ${UMF_HAVE_CUDA})
set(umf_feature_LEVEL_ZERO ${UMF_HAVE_LEVEL_ZERO})

include(hwloc) # umf_feature_HWLOC, UMF_HWLOC_LIBRARY

set(UMF_FEATURE_DEFINITIONS)
foreach(feature ANY LINUX JEMALLOC CUDA LEVEL_ZERO HWLOC EXT)
    list(APPEND UMF_FEATURE_DEFINITIONS "UMF_WITH_${feature}=${umf_feature_${feature}}")
endforeach()

# The kind out of a list that a file belongs to: by its name, the longest that fits, else by its folder.
function(umf_kind_of file kinds out)
    get_filename_component(name "${file}" NAME)
    set(found "")
    set(length 0)
    foreach(kind IN LISTS kinds)
        string(LENGTH "${kind}" kind_length)
        if(name MATCHES "^${kind}(_[a-z0-9_]+)?\\.(c|def)$" AND kind_length GREATER length)
            set(found "${kind}")
            set(length "${kind_length}")
        elseif(length EQUAL 0 AND file MATCHES "(^|/)${kind}/")
            set(found "${kind}")
        endif()
    endforeach()
    set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Reads the list `def` of one folder. Files that belong to no line are shared by all of its kinds.
function(umf_read_list def macro out_kinds out_sources)
    set(dir "${PROJECT_SOURCE_DIR}/src/${def}")
    cmake_path(GET dir PARENT_PATH dir)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${dir}" "${dir}/*.c")
    set(kinds)
    set(optional_kinds)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE "${dir}" "${dir}/*.c" "${dir}/*_params.def")
    if(EXISTS "${PROJECT_SOURCE_DIR}/src/${def}")
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
            "${PROJECT_SOURCE_DIR}/src/${def}")
        file(STRINGS "${PROJECT_SOURCE_DIR}/src/${def}" lines REGEX "^${macro}\\(")
        foreach(line IN LISTS lines)
            if(NOT line MATCHES "^${macro}\\(([a-z0-9_]+), *\"[^\"]*\", *([A-Z0-9_]+)\\)")
                message(FATAL_ERROR "src/${def}: cannot read '${line}'")
            endif()
            set(kind "${CMAKE_MATCH_1}")
            if(NOT DEFINED umf_feature_${CMAKE_MATCH_2})
                message(FATAL_ERROR "src/${def}: unknown feature '${CMAKE_MATCH_2}' of ${kind}")
            endif()
            set(feature_of_${kind} ${CMAKE_MATCH_2})
            if(NOT CMAKE_MATCH_2 STREQUAL "ANY")
                list(APPEND optional_kinds ${kind})
            endif()
            if(umf_feature_${feature_of_${kind}})
                list(APPEND kinds ${kind})
            else()
                list(FILTER sources EXCLUDE REGEX "(^|/)${kind}((_[a-z0-9_]+)?\\.c$|/)")
            endif()
        endforeach()
    endif()
    string(TOLOWER "${macro}" what)
    string(REPLACE "umf_" "" what "${what}")
    foreach(file IN LISTS files)
        umf_kind_of("${file}" "${optional_kinds}" kind)
        if(kind)
            list(APPEND UMF_OPTIONAL_SOURCES "${kind} ${what} ${feature_of_${kind}} ${dir}/${file}")
            list(APPEND UMF_OPTIONAL_FILES "${dir}/${file}")
        endif()
    endforeach()
    set(UMF_OPTIONAL_SOURCES "${UMF_OPTIONAL_SOURCES}" PARENT_SCOPE)
    set(UMF_OPTIONAL_FILES "${UMF_OPTIONAL_FILES}" PARENT_SCOPE)
    list(TRANSFORM sources PREPEND "${dir}/")
    set(${out_kinds} "${kinds}" PARENT_SCOPE)
    set(${out_sources} "${sources}" PARENT_SCOPE)
endfunction()

set(UMF_OPTIONAL_SOURCES)
set(UMF_OPTIONAL_FILES)

umf_read_list(providers/providers.def UMF_PROVIDER UMF_PROVIDER_KINDS umf_provider_sources)
umf_read_list(pools/pools.def UMF_POOL UMF_POOL_KINDS umf_pool_sources)

file(GLOB_RECURSE umf_other_sources CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src"
    "${PROJECT_SOURCE_DIR}/src/*.c")
list(FILTER umf_other_sources EXCLUDE REGEX "^(providers|pools)/")
# The capabilities that a build can leave out. Their functions answer NOT_SUPPORTED then.
set(umf_ext_sources ${umf_other_sources})
list(FILTER umf_ext_sources INCLUDE REGEX "^ext/")
foreach(file IN LISTS umf_ext_sources)
    string(REGEX REPLACE "^ext/([a-z]+)/.*" "\\1" part "${file}")
    list(APPEND UMF_OPTIONAL_SOURCES "${part} part EXT ${PROJECT_SOURCE_DIR}/src/${file}")
    list(APPEND UMF_OPTIONAL_FILES "${PROJECT_SOURCE_DIR}/src/${file}")
endforeach()
if(NOT UMF_BUILD_EXT)
    list(FILTER umf_other_sources EXCLUDE REGEX "^ext/")
endif()
list(TRANSFORM umf_other_sources PREPEND "${PROJECT_SOURCE_DIR}/src/")

if(umf_feature_HWLOC)
    list(FILTER umf_other_sources EXCLUDE REGEX "/topology_none\\.c$")
else()
    list(FILTER umf_other_sources EXCLUDE REGEX "/topology_hwloc\\.c$")
endif()

# Tables of parameters stand for functions of the kinds that this build has, and of those it has not.
file(GLOB_RECURSE UMF_PARAMS_TABLES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*_params.def")

set(UMF_SOURCES ${umf_other_sources} ${umf_provider_sources} ${umf_pool_sources})
