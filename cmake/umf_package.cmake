# Debian packages: `cpack -G DEB` in a build folder, or `cmake --workflow --preset deb` for all of it.
#
#   libumf1      the library, and libumf_proxy.so.1 where it was built
#   libumem0     the interface of libumem over it
#   libumf-dev   headers, what compilers, CMake and pkg-config need, examples
#   umf-tools    umfctl, umfd and the manual pages
#
# Below /usr, as the preset has it, libraries go where Debian wants them, lib/<architecture>.

set(CPACK_PACKAGE_NAME umf)
set(CPACK_PACKAGE_VERSION "${UMF_VERSION_DEBIAN}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has its own
set(CPACK_PACKAGE_VENDOR libumf)
set(CPACK_PACKAGE_CONTACT "libumf maintainers <maintainers@libumf.invalid>")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS "${CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS}")
set(CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/umf_debian_staging.cmake")
set(CPACK_POST_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/umf_debian_finish.cmake")

# One package for each component. A static build has no library to run with.
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL umf_development)
set(CPACK_DEBIAN_UMF_DEVELOPMENT_PACKAGE_NAME libumf-dev)
if(UMF_BUILD_SHARED_LIBRARY)
    list(APPEND CPACK_COMPONENTS_ALL umf_runtime)
    set(CPACK_COMPONENT_UMF_DEVELOPMENT_DEPENDS umf_runtime)
    set(CPACK_DEBIAN_UMF_RUNTIME_PACKAGE_NAME libumf${PROJECT_VERSION_MAJOR})
endif()
if(UMF_BUILD_SHARED_LIBRARY AND TARGET umem)
    list(APPEND CPACK_COMPONENTS_ALL umem_runtime)
    list(APPEND CPACK_COMPONENT_UMF_DEVELOPMENT_DEPENDS umem_runtime)
    set(CPACK_COMPONENT_UMEM_RUNTIME_DEPENDS umf_runtime)
    set(CPACK_DEBIAN_UMEM_RUNTIME_PACKAGE_NAME libumem0)
endif()
if(UMF_BUILD_TOOLS)
    list(APPEND CPACK_COMPONENTS_ALL umf_tools)
    set(CPACK_DEBIAN_UMF_TOOLS_PACKAGE_NAME umf-tools)
endif()

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SOURCE umf)
set(CPACK_DEBIAN_UMF_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_UMEM_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_UMF_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_UMF_TOOLS_PACKAGE_SECTION utils)

# Dependencies: what is linked is found by dpkg-shlibdeps, and what links us finds libumf1 in its shlibs.
# Libraries opened at run time are weaker. hwloc comes along by default, because without it no function
# about NUMA nodes works. oneTBB does not: the scalable pool alone wants it.
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(umf_recommends "")
if(umf_feature_HWLOC)
    set(umf_recommends libhwloc15)
endif()
set(CPACK_DEBIAN_UMF_RUNTIME_PACKAGE_RECOMMENDS "${umf_recommends}")
set(CPACK_DEBIAN_UMF_RUNTIME_PACKAGE_SUGGESTS libtbbmalloc2)
if(NOT UMF_BUILD_SHARED_LIBRARY)
    set(CPACK_DEBIAN_UMF_DEVELOPMENT_PACKAGE_RECOMMENDS "${umf_recommends}")
    set(CPACK_DEBIAN_UMF_DEVELOPMENT_PACKAGE_SUGGESTS libtbbmalloc2)
endif()
if(TARGET umfctl AND UMF_BUILD_SHARED_LIBRARY)
    set(CPACK_COMPONENT_UMF_TOOLS_DEPENDS umf_runtime)
endif()

set(CPACK_COMPONENT_UMF_RUNTIME_DESCRIPTION
    "Memory pools over any kind of memory - shared library
A provider is a source of memory: the operating system, a file, a buffer. A
pool divides it. Any pool works on any provider, a pointer alone is enough to
find its pool, and other processes can map the same memory.
.
This library takes the place of libumf.so.1 of the Unified Memory Framework.")
set(CPACK_COMPONENT_UMEM_RUNTIME_DESCRIPTION
    "Memory pools over any kind of memory - libumem
The interface of libumem 0.1, for C and C++, over libumf: contexts for memory
of the host, of files and of GPUs, and copies between any two of them.")
set(CPACK_COMPONENT_UMF_DEVELOPMENT_DESCRIPTION
    "Memory pools over any kind of memory - development files
What is needed to compile programs that use libumf: headers, files for CMake
and pkg-config, and examples.")
set(CPACK_COMPONENT_UMF_TOOLS_DESCRIPTION
    "Memory pools over any kind of memory - umfctl
umfctl tells which providers and pools of libumf this machine offers, why it
does not offer the others and which limits matter, and tests them. umfd is the
service of vaults, memory that outlives its users. The manual pages are here,
too.")

# Every package needs its own copyright and changelog. EXCLUDE_FROM_ALL: in packages only.
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER "${component}" upper)
    install(FILES "${PROJECT_SOURCE_DIR}/packaging/debian/copyright"
            "${PROJECT_SOURCE_DIR}/packaging/debian/changelog"
        DESTINATION "share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}"
        COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

include(CPack)
