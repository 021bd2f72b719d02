# UMF_ABSENT_DIR has umf_absent.def, out of the sources of the kinds that a build may be without; the target
# umf_absent makes it. cmake/absent.cmake reads them.

set(UMF_ABSENT_DIR "${CMAKE_CURRENT_BINARY_DIR}/absent")
set(umf_absent_list "${UMF_ABSENT_DIR}/umf_absent.def")
set(umf_absent_sources "${UMF_ABSENT_DIR}/sources")
set(umf_absent_files)
foreach(line IN LISTS UMF_OPTIONAL_SOURCES)
    string(REGEX REPLACE "^[^ ]+ [^ ]+ [^ ]+ " "" file "${line}")
    list(APPEND umf_absent_files "${file}")
endforeach()
list(JOIN UMF_OPTIONAL_SOURCES "\n" umf_absent_lines)
file(CONFIGURE OUTPUT "${umf_absent_sources}" CONTENT "${umf_absent_lines}\n" @ONLY)

add_custom_command(OUTPUT "${umf_absent_list}"
    COMMAND ${CMAKE_COMMAND} "-DSOURCES=${umf_absent_sources}" "-DLIST=${umf_absent_list}"
        -P "${CMAKE_CURRENT_LIST_DIR}/absent.cmake"
    COMMAND ${CMAKE_COMMAND} -E touch "${umf_absent_list}"
    DEPENDS ${umf_absent_files} "${umf_absent_sources}" "${CMAKE_CURRENT_LIST_DIR}/absent.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/markers.cmake"
    COMMENT "Listing the functions of optional kinds"
    VERBATIM)
add_custom_target(umf_absent DEPENDS "${umf_absent_list}")
