# Writes the linker's version script.
#
#   cmake -DSOURCES=<file with one source path a line> -DMAP=<output> -DPREFIX=<of the names of versions> -P version_script.cmake
#
# What cmake/markers.cmake finds in the sources is public. Everything else stays local.

cmake_minimum_required(VERSION 3.20)

include("${CMAKE_CURRENT_LIST_DIR}/markers.cmake")

set(name_1_0 ${PREFIX}_1.0)
set(name_1_1 ${PREFIX}_1.1)
set(name_1_2 ${PREFIX}_1.2)
set(name_EXT_1 ${PREFIX}_EXT_1)
set(name_EXT_1_3 ${PREFIX}_EXT_1.3)

file(STRINGS "${SOURCES}" sources)
foreach(source IN LISTS sources)
    umf_read_markers("${source}" marks)
    foreach(mark IN LISTS marks)
        string(REGEX MATCH "^([^ ]+) (.+)$" mark "${mark}")
        list(APPEND symbols_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
    endforeach()
endforeach()

set(script "")
set(parent "")
foreach(node IN LISTS UMF_NODES)
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
