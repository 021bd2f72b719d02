# umf_version_script(<target>): links a shared library with a version script made from its sources,
# again whenever one of them changes. cmake/version_script.cmake reads the markers.

set(UMF_VERSION_SCRIPT_TOOL "${CMAKE_CURRENT_LIST_DIR}/version_script.cmake")

function(umf_version_script target)
    set(map "${CMAKE_CURRENT_BINARY_DIR}/${target}.map")
    set(list "${CMAKE_CURRENT_BINARY_DIR}/${target}.map.sources")
    # Optional kinds have the same functions where they are absent.
    set(marked ${UMF_SOURCES} ${UMF_PARAMS_TABLES} ${UMF_OPTIONAL_FILES})
    list(REMOVE_DUPLICATES marked)
    list(JOIN marked "\n" sources)
    file(CONFIGURE OUTPUT "${list}" CONTENT "${sources}\n" @ONLY)

    set(prefix UMF)
    if(UMF_PYTHON_WHEEL) # symbols of another libumf.so.1 that is in the global scope are others
        set(prefix UMF_PYTHON)
    endif()
    add_custom_command(OUTPUT "${map}"
        COMMAND ${CMAKE_COMMAND} "-DSOURCES=${list}" "-DMAP=${map}" "-DPREFIX=${prefix}" -P "${UMF_VERSION_SCRIPT_TOOL}"
        DEPENDS ${marked} "${list}" "${UMF_VERSION_SCRIPT_TOOL}"
        COMMENT "Making the version script"
        VERBATIM)
    add_custom_target(${target}_version_script DEPENDS "${map}")
    add_dependencies(${target} ${target}_version_script)
    target_link_options(${target} PRIVATE "LINKER:--version-script=${map}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
endfunction()
