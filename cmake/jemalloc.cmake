# The private jemalloc behind the jemalloc pool: target umf_jemalloc.
#
# A distribution's libjemalloc is no choice: it replaces malloc in the whole program, and its
# initial-exec TLS makes libumf.so fail to load late ("cannot allocate memory in static TLS block").
# So this is a static, position-independent build in which every global symbol carries our prefix.
#
# It is built once, at configure time, and shared by all build folders: UMF_DEPS_DIR holds one folder
# for each set of options, patches and compiler. Sanitizer builds use the same, uninstrumented archive.
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

function(umf_jemalloc_run dir)
    execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${dir}" RESULT_VARIABLE failed
        OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(failed)
        file(WRITE "${dir}/umf-failed.log" "${output}")
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "jemalloc: '${command}' failed (${failed}); its output is in ${dir}/umf-failed.log")
    endif()
endfunction()

# Every global symbol must be ours: a malloc that leaked out would replace the program's own.
function(umf_jemalloc_check_symbols archive)
    execute_process(COMMAND "${CMAKE_NM}" -g --defined-only -P "${archive}"
        OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "(^|\n)[^ \n]+ [A-Z]" symbols "${symbols}")
    list(FILTER symbols EXCLUDE REGEX "^\n?umf_je_")
    if(symbols)
        message(FATAL_ERROR "jemalloc: global symbols without the prefix umf_je_: ${symbols}")
    endif()
endfunction()

function(umf_jemalloc_build source prefix cc)
    cmake_host_system_information(RESULT jobs QUERY NUMBER_OF_LOGICAL_CORES)

    message(STATUS "jemalloc: building ${prefix} (once)")
    set(work "${prefix}.work")
    file(REMOVE_RECURSE "${work}")
    file(COPY "${source}/" DESTINATION "${work}" PATTERN .git EXCLUDE)
    foreach(patch IN LISTS umf_jemalloc_patches)
        umf_jemalloc_run("${work}" patch -p1 --forward -i "${patch}")
    endforeach()
    umf_jemalloc_run("${work}" ${CMAKE_COMMAND} -E env "CC=${cc}" "CFLAGS=" "CPPFLAGS=" "LDFLAGS="
        "EXTRA_CFLAGS=${umf_jemalloc_cflags}" ./configure ${umf_jemalloc_options})
    umf_jemalloc_run("${work}" make -j${jobs} build_lib_static)
    umf_jemalloc_check_symbols("${work}/lib/libjemalloc_pic.a")

    file(REMOVE_RECURSE "${prefix}")
    file(COPY "${work}/include/jemalloc/jemalloc.h" DESTINATION "${prefix}/include/jemalloc")
    file(COPY "${work}/COPYING" DESTINATION "${prefix}")
    # The archive comes last and by renaming: its presence says that the folder is complete.
    file(RENAME "${work}/lib/libjemalloc_pic.a" "${prefix}/libumf_jemalloc.a")
    file(REMOVE_RECURSE "${work}")
endfunction()

# All build folders share one archive, so the host's plain compiler makes it, whatever the preset uses. A compiler with
# another C library makes its own.
if(NOT CMAKE_CROSSCOMPILING AND NOT UMF_LIBC_IS_GLIBC)
    set(umf_jemalloc_cc "${CMAKE_C_COMPILER}")
elseif(CMAKE_CROSSCOMPILING)
    set(umf_jemalloc_cc "${CMAKE_C_COMPILER}")
    set(umf_jemalloc_host "${CMAKE_C_COMPILER_TARGET}")
    if(NOT umf_jemalloc_host) # gcc has one compiler for each target, which knows it
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

if(NOT EXISTS "${umf_jemalloc_prefix}/libumf_jemalloc.a")
    umf_jemalloc_build("${umf_jemalloc_source}" "${umf_jemalloc_prefix}" "${umf_jemalloc_cc}")
endif()
file(LOCK "${UMF_DEPS_DIR}/lock" RELEASE)

add_library(umf_jemalloc STATIC IMPORTED GLOBAL)
set_target_properties(umf_jemalloc PROPERTIES
    IMPORTED_LOCATION "${umf_jemalloc_prefix}/libumf_jemalloc.a"
    INTERFACE_INCLUDE_DIRECTORIES "${umf_jemalloc_prefix}/include"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
