# What `cmake --install` puts where, and the target `uninstall`.
#
# Components: umf_runtime, umem_runtime, umf_development and umf_tools.

include(CMakePackageConfigHelpers)

set(umf_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/umf")
set(umf_pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
set(umf_doc_dir "${CMAKE_INSTALL_DATAROOTDIR}/doc/umf")

# An installed tree may be moved as a whole. Not so below /usr: there the system finds the library.
set(umf_is_relocatable ON)
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" OR IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}"
        OR IS_ABSOLUTE "${CMAKE_INSTALL_BINDIR}")
    set(umf_is_relocatable OFF)
endif()

# --- targets -------------------------------------------------------------------------------------

set(umf_exported umf umf_headers)

# umf_find_the_library(<target> <its installed folder>): an installed program finds the library beside it, and
# the library what it opens at run time (hwloc, oneTBB).
function(umf_find_the_library target dir)
    set(rpath ${UMF_INSTALL_RPATH})
    if(umf_is_relocatable AND NOT DEFINED CMAKE_INSTALL_RPATH)
        file(RELATIVE_PATH to_library "/${dir}" "/${CMAKE_INSTALL_LIBDIR}")
        string(REGEX REPLACE "/$" "" here "\$ORIGIN/${to_library}")
        list(PREPEND rpath "${here}")
    endif()
    if(rpath)
        set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
    endif()
endfunction()

umf_find_the_library(umf "${CMAKE_INSTALL_LIBDIR}")
if(TARGET umf_proxy)
    list(APPEND umf_exported umf_proxy)
    umf_find_the_library(umf_proxy "${CMAKE_INSTALL_LIBDIR}")
endif()

# A static library leaves its private jemalloc to the program that links it. umf.pc has what that needs behind -lumf
# among the libraries of `pkg-config --static`, or among all if there is no shared one.
set(umf_pc_libs "-lumf")
set(umf_pc_private "")
set(umf_package_dependencies "")
set(umf_static umf)
if(TARGET umf_static)
    list(APPEND umf_exported umf_static)
    set(umf_static umf_static)
endif()
if(NOT UMF_BUILD_SHARED_LIBRARY OR TARGET umf_static)
    set(umf_package_dependencies "find_dependency(Threads)")
    if(TARGET umf_jemalloc)
        cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "$<INSTALL_PREFIX>"
            OUTPUT_VARIABLE libdir)
        target_link_libraries(${umf_static} PRIVATE "$<INSTALL_INTERFACE:${libdir}/libumf_jemalloc.a>")
        string(APPEND umf_pc_private " -lumf_jemalloc")
        get_target_property(archive umf_jemalloc IMPORTED_LOCATION)
        install(FILES "${archive}" DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT umf_development)
    endif()
    string(APPEND umf_pc_private " -pthread -ldl")
    if(UMF_ATOMIC_LIBRARY)
        string(APPEND umf_pc_private " -l${UMF_ATOMIC_LIBRARY}")
    endif()
    if(TARGET umf_static)
        set(umf_pc_private "-Wl,-u,umfInit${umf_pc_private}")
    else()
        set(umf_pc_libs "-Wl,-u,umfInit ${umf_pc_libs}${umf_pc_private}")
        set(umf_pc_private "")
    endif()
endif()

install(TARGETS ${umf_exported} EXPORT umf-targets
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        COMPONENT umf_runtime NAMELINK_COMPONENT umf_development
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT umf_development)
if(TARGET umem)
    umf_find_the_library(umem "${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS umem EXPORT umf-targets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
            COMPONENT umem_runtime NAMELINK_COMPONENT umf_development
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT umf_development)
endif()
if(TARGET umfctl)
    umf_find_the_library(umfctl "${CMAKE_INSTALL_BINDIR}")
    install(TARGETS umfctl DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT umf_tools)
    # Where each shell looks for completions.
    set(umf_completion "${PROJECT_SOURCE_DIR}/tools/completion")
    install(FILES "${umf_completion}/umfctl.bash" RENAME umfctl COMPONENT umf_tools
        DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
    install(FILES "${umf_completion}/_umfctl" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT umf_tools)
    install(FILES "${umf_completion}/umfctl.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d"
        COMPONENT umf_tools)
endif()

if(TARGET umf-remote)
    umf_find_the_library(umf-remote "${CMAKE_INSTALL_BINDIR}")
    install(TARGETS umf-remote DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT umf_tools)
endif()
if(TARGET umfd)
    install(TARGETS umfd DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT umf_tools)
    # For users of systemd; the place of the units is the same for all architectures.
    configure_file("${PROJECT_SOURCE_DIR}/packaging/systemd/umfd.service.in" "${PROJECT_BINARY_DIR}/umfd/umfd.service" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/umfd/umfd.service" "${PROJECT_SOURCE_DIR}/packaging/systemd/umfd.socket"
        DESTINATION lib/systemd/user COMPONENT umf_tools)
endif()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    COMPONENT umf_development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "umem" EXCLUDE)
if(TARGET umem)
    install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/umem" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT umf_development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
endif()

# --- for CMake and pkg-config --------------------------------------------------------------------

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/umf-config.cmake.in"
    "${PROJECT_BINARY_DIR}/umf-config.cmake" INSTALL_DESTINATION "${umf_cmake_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/umf-config-version.cmake"
    COMPATIBILITY SameMajorVersion)
install(EXPORT umf-targets NAMESPACE umf:: DESTINATION "${umf_cmake_dir}" COMPONENT umf_development)
install(FILES "${PROJECT_BINARY_DIR}/umf-config.cmake"
    "${PROJECT_BINARY_DIR}/umf-config-version.cmake"
    DESTINATION "${umf_cmake_dir}" COMPONENT umf_development)

if(umf_is_relocatable)
    file(RELATIVE_PATH umf_pc_prefix "/${umf_pkgconfig_dir}" "/")
    set(umf_pc_prefix "\${pcfiledir}/${umf_pc_prefix}")
    string(REGEX REPLACE "/$" "" umf_pc_prefix "${umf_pc_prefix}")
else()
    set(umf_pc_prefix "${CMAKE_INSTALL_PREFIX}")
endif()
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_LIBDIR BASE_DIRECTORY "\${prefix}"
    OUTPUT_VARIABLE umf_pc_libdir)
cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${prefix}"
    OUTPUT_VARIABLE umf_pc_includedir)
set(umf_pc_files umf)
if(TARGET umem)
    list(APPEND umf_pc_files libumem)
endif()
foreach(name IN LISTS umf_pc_files)
    configure_file("${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in" "${PROJECT_BINARY_DIR}/${name}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/${name}.pc"
        DESTINATION "${umf_pkgconfig_dir}" COMPONENT umf_development)
endforeach()

# --- documents -----------------------------------------------------------------------------------

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" RENAME LICENSE.TXT
    DESTINATION "${umf_doc_dir}" COMPONENT umf_development)
install(FILES "${PROJECT_SOURCE_DIR}/licensing/third-party-programs.txt"
    DESTINATION "${umf_doc_dir}/licensing" COMPONENT umf_development)
include(umf_sbom)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples/"
    DESTINATION "${umf_doc_dir}/examples" COMPONENT umf_development)

file(GLOB umf_man_pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/man/*.[1-8]")
foreach(page IN LISTS umf_man_pages)
    cmake_path(GET page EXTENSION LAST_ONLY section)
    string(SUBSTRING "${section}" 1 1 section)
    install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}" COMPONENT umf_tools)
endforeach()

if(PROJECT_IS_TOP_LEVEL)
    add_custom_target(uninstall
        COMMAND ${CMAKE_COMMAND} "-DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt"
            -P "${CMAKE_CURRENT_LIST_DIR}/umf_uninstall.cmake"
        VERBATIM)
endif()
