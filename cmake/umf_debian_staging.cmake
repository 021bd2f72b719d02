# Run by cpack between installing and packing: Debian wants manual pages and changelogs compressed,
# without a time in them.

if(CPACK_GENERATOR STREQUAL "DEB")
    file(GLOB_RECURSE files "${CPACK_TEMPORARY_DIRECTORY}/*")
    list(FILTER files INCLUDE REGEX "/share/(man/man[1-8]/[^/]+\\.[1-8]|doc/[^/]+/changelog)$")
    foreach(file IN LISTS files)
        execute_process(COMMAND gzip -9n "${file}" COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
endif()
