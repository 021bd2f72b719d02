# Run by cpack after packing. cpack writes scripts that call ldconfig, where Debian wants a trigger, and
# takes times and permissions as it finds them. So each package is packed once more: the same bytes from
# the same sources, whatever the folder, the umask and the time.

if(NOT DEFINED ENV{SOURCE_DATE_EPOCH})
    # The date of the last entry of the changelog.
    execute_process(COMMAND dpkg-parsechangelog -l "${CMAKE_CURRENT_LIST_DIR}/../packaging/debian/changelog" -S Timestamp
        OUTPUT_VARIABLE time OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    set(ENV{SOURCE_DATE_EPOCH} "${time}")
endif()

foreach(package IN LISTS CPACK_PACKAGE_FILES)
    if(NOT package MATCHES "\\.deb$")
        continue()
    endif()
    set(tree "${package}.tree")
    file(REMOVE_RECURSE "${tree}")
    execute_process(COMMAND dpkg-deb -R "${package}" "${tree}" COMMAND_ERROR_IS_FATAL ANY)
    if(EXISTS "${tree}/DEBIAN/postinst")
        file(REMOVE "${tree}/DEBIAN/postinst" "${tree}/DEBIAN/postrm")
        file(WRITE "${tree}/DEBIAN/triggers" "activate-noawait ldconfig\n")
    endif()
    execute_process(COMMAND chmod -R u=rwX,go=rX "${tree}" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND dpkg-deb --root-owner-group -Zxz --build "${tree}" "${package}"
        OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    file(REMOVE_RECURSE "${tree}")
endforeach()
