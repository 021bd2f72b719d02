# A port for vcpkg: vcpkg install libumf --overlay-ports=packaging/vcpkg. It builds the sources that it lies in.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../.." ABSOLUTE)

string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" dynamic shared)
vcpkg_check_features(OUT_FEATURE_OPTIONS options FEATURES
    jemalloc UMF_BUILD_LIBUMF_POOL_JEMALLOC
    tools UMF_BUILD_TOOLS)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS ${options}
    -DUMF_BUILD_SHARED_LIBRARY=${shared}
    -DUMF_BUILD_TESTS=OFF
    -DUMF_BUILD_EXAMPLES=OFF
    "-DUMF_DEPS_DIR=${CURRENT_BUILDTREES_DIR}/deps")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME umf CONFIG_PATH lib/cmake/umf)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES umfctl umfd umf-remote AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE" "${SOURCE_PATH}/licensing/third-party-programs.txt")
