# umf_read_markers(<source> <out>): the public functions that a source or a table of parameters defines, as
# "<node> <function>". A definition starts with UMF_API_1_0, UMF_API_1_1, UMF_API_1_2, UMF_API_EXT_1 or UMF_API_EXT_1_3 (see
# src/system/common.h), then its type and its name; a row of a table has both behind its "(" (see
# src/ctl/params.h). <out>_pointers has the functions that return a pointer.

set(UMF_NODES 1_0 1_1 1_2 EXT_1 EXT_1_3)

function(umf_read_markers source out)
    file(READ "${source}" text)
    # Semicolons and brackets mean something in CMake lists.
    string(REGEX REPLACE "[;]|\\[|\\]" " " text "${text}")
    string(REGEX MATCHALL "(^|\n)UMF_API_[A-Z0-9_]+[ \n][^(){}#=]*\\(" marks "${text}")
    string(REGEX MATCHALL "(^|\n)UMF_PARAM[A-Z_]*\\(UMF_API_[A-Z0-9_]+, umf[A-Za-z0-9_]+" rows "${text}")
    set(found)
    set(pointers)
    foreach(mark IN LISTS marks rows)
        if(NOT mark MATCHES "UMF_API_([A-Z0-9_]+)[ \n,].*[ *\n](umf[A-Za-z0-9_]+)[ \n]*\\(?$")
            message(FATAL_ERROR "${source}: no umf function follows the marker in '${mark}'")
        endif()
        if(NOT CMAKE_MATCH_1 IN_LIST UMF_NODES)
            message(FATAL_ERROR "${source}: ${CMAKE_MATCH_2} has the unknown marker UMF_API_${CMAKE_MATCH_1}")
        endif()
        set(name "${CMAKE_MATCH_2}")
        list(APPEND found "${CMAKE_MATCH_1} ${name}")
        if(mark MATCHES "[*]")
            list(APPEND pointers "${name}")
        endif()
    endforeach()
    list(REMOVE_DUPLICATES found)
    set(${out} "${found}" PARENT_SCOPE)
    set(${out}_pointers "${pointers}" PARENT_SCOPE)
endfunction()
