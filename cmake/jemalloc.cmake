# The private jemalloc behind the jemalloc pool: target umf_jemalloc.
#
# A distribution's libjemalloc is no choice: it replaces malloc in the whole program, and its
# initial-exec TLS makes libumf.so fail to load late ("cannot allocate memory in static TLS block").
# So this is a static, position-independent build in which every global symbol carries our prefix.
#
# It is built once, by the build beside the library's own files, and shared by all build folders: UMF_DEPS_DIR holds one
# folder for each set of options, patches and compiler, and each build folder a copy of it (jemalloc_build.cmake).
# Sanitizer builds use the same, uninstrumented archive. Configuring finds the source only, or fetches it.
#
# Where the source comes from, first hit wins:
#   1. UMF_JEMALLOC_SOURCE_DIR
#   2. build/deps/jemalloc-source below the source tree, put there by scripts/install-deps.sh
#   3. the pinned release archive below

set(UMF_JEMALLOC_SOURCE_DIR "" CACHE PATH "Unpacked source of jemalloc 5.3.0 or newer")
# Inside another project our sources are not ours to write to.
if(PROJECT_IS_TOP_LEVEL)
    set(umf_deps_default "${PROJECT_SOURCE_DIR}/build/deps")
else()
    set(umf_deps_default "${PROJECT_BINARY_DIR}/deps")
endif()
set(UMF_DEPS_DIR "${umf_deps_default}" CACHE PATH "Where the private jemalloc is built and kept")

# jemalloc fixes its page when it is built, at no less than the machine's. Where kernels with larger pages
# are usual, one library serves them all.
set(umf_lg_page_default 12)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ppc64|ppc64le|loongarch64)$")
    set(umf_lg_page_default 16)
endif()
set(UMF_JEMALLOC_LG_PAGE "${umf_lg_page_default}" CACHE STRING
    "Base-2 logarithm of the largest page of the machines that the jemalloc pool is to run on: 12 to 16")
if(NOT UMF_JEMALLOC_LG_PAGE MATCHES "^1[2-6]$")
    message(FATAL_ERROR "UMF_JEMALLOC_LG_PAGE is '${UMF_JEMALLOC_LG_PAGE}'; it can be 12 (4 KiB) to 16 (64 KiB).")
endif()

set(umf_jemalloc_version 5.3.0)
set(umf_jemalloc_url
    "https://github.com/jemalloc/jemalloc/releases/download/${umf_jemalloc_version}/jemalloc-${umf_jemalloc_version}.tar.bz2")
set(umf_jemalloc_sha256 2db82d1e7119df3e71b7640219b6dfe84789bc0537983c3b7ac4f7189aecfeaa)

set(umf_jemalloc_options
    --with-jemalloc-prefix=umf_je_ # the public names
    --with-private-namespace=umf_  # the internal ones, which become umf_je_ too
    --without-export
    --enable-static --disable-shared
    --disable-cxx
    --disable-initial-exec-tls
    # Its thread data is found through a pthread key, because all thread-local variables of a shared
    # library share one block: with those 2.6 KB in it, libumf.so could not be dlopen-ed.
    force_tls=0
    --disable-libdl
    --with-lg-page=${UMF_JEMALLOC_LG_PAGE}
    --disable-doc --disable-fill --disable-prof --disable-stats)
# Its fork handlers must run between ours (src/base/lock.h), whenever it starts.
string(JOIN " " umf_jemalloc_cflags
    -fPIC -fvisibility=hidden -O2 -fno-unroll-loops -g0
    -ffunction-sections -fdata-sections # umf_size.cmake, as the next line
    -falign-labels=1 -falign-jumps=1 -falign-loops=1 -fno-reorder-blocks-and-partition
    -Dpthread_atfork=umf_fork_below)

# The flags of umf_hardening.cmake that the compiler of jemalloc has, which may be another one than that of the library.
function(umf_jemalloc_harden cc)
    separate_arguments(cc UNIX_COMMAND "${cc}")
    set(flags "${umf_jemalloc_cflags} -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2")
    foreach(flag IN LISTS umf_hardening_candidates)
        execute_process(COMMAND ${cc} -Werror ${flag} -c -x c /dev/null -o /dev/null
            RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
        if(NOT failed)
            string(APPEND flags " ${flag}")
        endif()
    endforeach()
    set(umf_jemalloc_cflags "${flags}" PARENT_SCOPE)
endfunction()

function(umf_jemalloc_find_source out)
    if(UMF_JEMALLOC_SOURCE_DIR)
        set(dir "${UMF_JEMALLOC_SOURCE_DIR}")
    elseif(EXISTS "${PROJECT_SOURCE_DIR}/build/deps/jemalloc-source/configure")
        set(dir "${PROJECT_SOURCE_DIR}/build/deps/jemalloc-source")
    else()
        umf_jemalloc_download()
        set(dir "${UMF_DEPS_DIR}/jemalloc-${umf_jemalloc_version}")
    endif()
    if(NOT EXISTS "${dir}/configure" OR NOT EXISTS "${dir}/VERSION")
        message(FATAL_ERROR "${dir} holds no release of jemalloc (configure or VERSION is missing).")
    endif()
    file(STRINGS "${dir}/VERSION" version LIMIT_COUNT 1)
    string(REGEX MATCH "^[0-9.]+" version "${version}")
    if(version VERSION_LESS umf_jemalloc_version)
        message(FATAL_ERROR
            "${dir} holds jemalloc ${version}; ${umf_jemalloc_version} or newer is needed.")
    endif()
    set(${out} "${dir}" PARENT_SCOPE)
    set(${out}_version "${version}" PARENT_SCOPE)
endfunction()

function(umf_jemalloc_download)
    set(archive "${UMF_DEPS_DIR}/jemalloc-${umf_jemalloc_version}.tar.bz2")
    if(NOT EXISTS "${archive}")
        message(STATUS "jemalloc: fetching ${umf_jemalloc_url}")
        file(DOWNLOAD "${umf_jemalloc_url}" "${archive}.part" STATUS status)
        list(GET status 0 failed)
        if(failed)
            file(REMOVE "${archive}.part")
            message(FATAL_ERROR
                "The source of jemalloc is not here and could not be fetched (${status}). Do one of:\n"
                "  run scripts/install-deps.sh (Debian, Ubuntu)\n"
                "  pass -DUMF_JEMALLOC_SOURCE_DIR=<unpacked jemalloc ${umf_jemalloc_version}>\n"
                "  pass -DUMF_BUILD_LIBUMF_POOL_JEMALLOC=OFF to build without the jemalloc pool")
        endif()
        file(RENAME "${archive}.part" "${archive}")
    endif()
    file(SHA256 "${archive}" found)
    if(NOT found STREQUAL umf_jemalloc_sha256)
        file(REMOVE "${archive}")
        message(FATAL_ERROR
            "${archive} has SHA-256 ${found}, expected ${umf_jemalloc_sha256}. It was removed.")
    endif()
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${UMF_DEPS_DIR}")
endfunction()

# All build folders share one archive, so the host's plain compiler makes it, whatever the preset uses. A compiler with
# another C library makes its own.
if(NOT CMAKE_CROSSCOMPILING AND NOT UMF_LIBC_IS_GLIBC)
    set(umf_jemalloc_cc "${CMAKE_C_COMPILER}")
elseif(CMAKE_CROSSCOMPILING)
    set(umf_jemalloc_cc "${CMAKE_C_COMPILER}")
    set(umf_jemalloc_host "${CMAKE_C_COMPILER_TARGET}")
    if(NOT umf_jemalloc_host) # gcc has one compiler for each target, for that target
        execute_process(COMMAND "${CMAKE_C_COMPILER}" -dumpmachine OUTPUT_VARIABLE umf_jemalloc_host
            OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    endif()
    list(APPEND umf_jemalloc_options "--host=${umf_jemalloc_host}")
else()
    find_program(umf_jemalloc_cc NAMES cc gcc clang REQUIRED)
endif()
mark_as_advanced(umf_jemalloc_cc)
if(UMF_HARDENING) # with sanitizers, too: they share the archive
    umf_jemalloc_harden("${umf_jemalloc_cc}")
endif()

file(MAKE_DIRECTORY "${UMF_DEPS_DIR}")
file(LOCK "${UMF_DEPS_DIR}/lock" GUARD FILE TIMEOUT 900)
umf_jemalloc_find_source(umf_jemalloc_source)

# Patches for exactly this release.
file(GLOB umf_jemalloc_patches CONFIGURE_DEPENDS
    "${CMAKE_CURRENT_LIST_DIR}/jemalloc/${umf_jemalloc_source_version}/*.patch")
list(SORT umf_jemalloc_patches)
# One of them adds batches; without it the pool moves objects one by one.
string(COMPARE NOTEQUAL "${umf_jemalloc_patches}" "" UMF_JEMALLOC_HAS_BATCHES)

set(umf_jemalloc_key "${umf_jemalloc_options} ${umf_jemalloc_cflags} ${umf_jemalloc_cc}")
foreach(file IN LISTS umf_jemalloc_patches ITEMS "${umf_jemalloc_source}/VERSION")
    file(SHA256 "${file}" hash)
    string(APPEND umf_jemalloc_key " ${hash}")
endforeach()
string(SHA256 umf_jemalloc_key "${umf_jemalloc_key}")
string(SUBSTRING "${umf_jemalloc_key}" 0 12 umf_jemalloc_key)
set(umf_jemalloc_prefix "${UMF_DEPS_DIR}/jemalloc-${umf_jemalloc_key}")

file(LOCK "${UMF_DEPS_DIR}/lock" RELEASE)

foreach(tool IN ITEMS make patch)
    find_program(UMF_PROGRAM_${tool} ${tool})
    mark_as_advanced(UMF_PROGRAM_${tool})
    if(NOT UMF_PROGRAM_${tool} AND NOT EXISTS "${umf_jemalloc_prefix}/libumf_jemalloc.a")
        message(FATAL_ERROR "jemalloc is built with ${tool}, which is not here. Install it, or pass"
            " -DUMF_BUILD_LIBUMF_POOL_JEMALLOC=OFF to build without the jemalloc pool.")
    endif()
endforeach()

# The inputs of the script, and a reason to run it again when one of these changes.
set(umf_jemalloc_dir "${PROJECT_BINARY_DIR}/jemalloc")
set(umf_jemalloc_settings "")
foreach(name IN ITEMS UMF_DEPS_DIR UMF_PROGRAM_make UMF_PROGRAM_patch CMAKE_NM umf_jemalloc_source umf_jemalloc_prefix
        umf_jemalloc_dir umf_jemalloc_patches umf_jemalloc_options umf_jemalloc_cflags umf_jemalloc_cc)
    string(APPEND umf_jemalloc_settings "set(${name} [==[${${name}}]==])\n")
endforeach()
file(CONFIGURE OUTPUT "${umf_jemalloc_dir}/settings.cmake" CONTENT "${umf_jemalloc_settings}" @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${umf_jemalloc_patches})

set(umf_jemalloc_header "${umf_jemalloc_dir}/include/jemalloc/jemalloc.h")
# In a folder of its own: CMake lets all sources of a target wait for a command of theirs.
add_subdirectory("${CMAKE_CURRENT_LIST_DIR}/jemalloc" "${umf_jemalloc_dir}")

file(MAKE_DIRECTORY "${umf_jemalloc_dir}/include") # exists when targets are made
add_library(umf_jemalloc STATIC IMPORTED GLOBAL)
set_target_properties(umf_jemalloc PROPERTIES
    IMPORTED_LOCATION "${umf_jemalloc_dir}/libumf_jemalloc.a"
    INTERFACE_INCLUDE_DIRECTORIES "${umf_jemalloc_dir}/include"
    INTERFACE_LINK_LIBRARIES Threads::Threads)

# umf_wait_for_jemalloc(<source>...): those of the sources that include jemalloc.h are compiled when it is there. Ninja
# compiles all others meanwhile; other generators have an order of whole targets only.
if(NOT CMAKE_GENERATOR MATCHES "Ninja")
    add_dependencies(umf_jemalloc umf_jemalloc_build)
endif()
function(umf_wait_for_jemalloc)
    set(sources ${ARGN})
    list(FILTER sources INCLUDE REGEX "/src/pools/jemalloc/")
    if(CMAKE_GENERATOR MATCHES "Ninja")
        set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS "${umf_jemalloc_header}")
    endif()
endfunction()
