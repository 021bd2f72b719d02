# Writes the linker's version script.
#
#   cmake -DSOURCES=<file with one source path a line> -DMAP=<output> -P version_script.cmake
#
# A public definition starts with UMF_API_1_0, UMF_API_1_1, UMF_API_1_2 or UMF_API_EXT_1 (see
# src/system/common.h), then its type and its name; a row of a table has both behind its
# "(" (see src/ctl/params.h and src/absent.c). Everything else stays local.

cmake_minimum_required(VERSION 3.20)

set(nodes 1_0 1_1 1_2 EXT_1)
set(name_1_0 UMF_1.0)
set(name_1_1 UMF_1.1)
set(name_1_2 UMF_1.2)
set(name_EXT_1 UMF_EXT_1)

file(STRINGS "${SOURCES}" sources)
foreach(source IN LISTS sources)
    file(READ "${source}" text)
    # Semicolons and brackets mean something in CMake lists.
    string(REGEX REPLACE "[;]|\\[|\\]" " " text "${text}")
    string(REGEX MATCHALL "(^|\n)UMF_API_[A-Z0-9_]+[ \n][^(){}#=]*\\(" marks "${text}")
    string(REGEX MATCHALL "(^|\n)[A-Z_]+\\(UMF_API_[A-Z0-9_]+, umf[A-Za-z0-9_]+" rows "${text}")
    foreach(mark IN LISTS marks rows)
        if(NOT mark MATCHES "UMF_API_([A-Z0-9_]+)[ \n,].*[ *\n](umf[A-Za-z0-9_]+)[ \n]*\\(?$")
            message(FATAL_ERROR "${source}: no umf function follows the marker in '${mark}'")
        endif()
        set(node "${CMAKE_MATCH_1}")
        set(symbol "${CMAKE_MATCH_2}")
        if(NOT node IN_LIST nodes)
            message(FATAL_ERROR "${source}: ${symbol} has the unknown marker UMF_API_${node}")
        endif()
        list(APPEND symbols_${node} ${symbol})
    endforeach()
endforeach()

set(script "")
set(parent "")
foreach(node IN LISTS nodes)
    string(APPEND script "${name_${node}} {\n")
    if(symbols_${node})
        list(SORT symbols_${node})
        list(REMOVE_DUPLICATES symbols_${node})
        list(JOIN symbols_${node} ";\n        " body)
        string(APPEND script "    global:\n        ${body};\n")
    endif()
    if(NOT parent)
        string(APPEND script "    local:\n        *;\n")
    endif()
    string(APPEND script "}${parent};\n\n")
    set(parent " ${name_${node}}")
endforeach()

file(CONFIGURE OUTPUT "${MAP}" CONTENT "${script}" @ONLY)
