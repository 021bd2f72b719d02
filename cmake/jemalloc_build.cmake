# Builds the private jemalloc, and copies it into a build folder.
#
#   cmake -DSETTINGS=<file of jemalloc.cmake> -P jemalloc_build.cmake

cmake_minimum_required(VERSION 3.20)

include("${SETTINGS}")

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

function(umf_jemalloc_build source prefix)
    cmake_host_system_information(RESULT jobs QUERY NUMBER_OF_LOGICAL_CORES)

    set(work "${prefix}.work")
    file(REMOVE_RECURSE "${work}")
    file(COPY "${source}/" DESTINATION "${work}" PATTERN .git EXCLUDE)
    foreach(patch IN LISTS umf_jemalloc_patches)
        umf_jemalloc_run("${work}" "${UMF_PROGRAM_patch}" -p1 --forward -i "${patch}")
    endforeach()
    umf_jemalloc_run("${work}" ${CMAKE_COMMAND} -E env "CC=${umf_jemalloc_cc}" "CFLAGS=" "CPPFLAGS=" "LDFLAGS="
        "EXTRA_CFLAGS=${umf_jemalloc_cflags}" ./configure ${umf_jemalloc_options})
    umf_jemalloc_run("${work}" "${UMF_PROGRAM_make}" -j${jobs} build_lib_static)
    umf_jemalloc_check_symbols("${work}/lib/libjemalloc_pic.a")

    file(REMOVE_RECURSE "${prefix}")
    file(COPY "${work}/include/jemalloc/jemalloc.h" DESTINATION "${prefix}/include/jemalloc")
    file(COPY "${work}/COPYING" DESTINATION "${prefix}")
    # The archive comes last and by renaming: its presence says that the folder is complete.
    file(RENAME "${work}/lib/libjemalloc_pic.a" "${prefix}/libumf_jemalloc.a")
    file(REMOVE_RECURSE "${work}")
endfunction()

file(LOCK "${UMF_DEPS_DIR}/lock" GUARD PROCESS TIMEOUT 900)
if(NOT EXISTS "${umf_jemalloc_prefix}/libumf_jemalloc.a")
    umf_jemalloc_build("${umf_jemalloc_source}" "${umf_jemalloc_prefix}")
endif()
foreach(file IN ITEMS include/jemalloc/jemalloc.h libumf_jemalloc.a)
    get_filename_component(folder "${umf_jemalloc_dir}/${file}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    file(REMOVE "${umf_jemalloc_dir}/${file}")
    file(COPY "${umf_jemalloc_prefix}/${file}" DESTINATION "${folder}")
    file(TOUCH_NOCREATE "${umf_jemalloc_dir}/${file}") # newer than the settings
endforeach()
