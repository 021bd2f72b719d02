# The flags of our own code: target umf_build_flags, and UMF_SANITIZED when a sanitizer is on.

add_library(umf_build_flags INTERFACE)

target_compile_options(umf_build_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    # Part of -Wconversion for clang, but for gcc only in C.
    $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-sign-conversion>
    $<$<BOOL:${UMF_DEVELOPER_MODE}>:-Werror>)

set(umf_sanitizers)
if(UMF_USE_ASAN)
    list(APPEND umf_sanitizers address)
endif()
if(UMF_USE_UBSAN)
    list(APPEND umf_sanitizers undefined)
endif()
if(UMF_USE_TSAN)
    list(APPEND umf_sanitizers thread)
endif()
if(UMF_USE_TSAN AND UMF_USE_ASAN)
    message(FATAL_ERROR "UMF_USE_TSAN and UMF_USE_ASAN exclude each other: use two build folders.")
endif()

set(UMF_SANITIZED OFF)
if(umf_sanitizers)
    set(UMF_SANITIZED ON)
    list(JOIN umf_sanitizers "," umf_sanitizers)
    target_compile_options(umf_build_flags INTERFACE
        -fsanitize=${umf_sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer
        # The library is C. C++ is tests, and takes twice as long to compile with it.
        $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${UMF_USE_UBSAN}>>:-fno-sanitize=undefined>
        # gcc's checks inlined into the code mislead its own warning about string bounds.
        $<$<C_COMPILER_ID:GNU>:-Wno-stringop-overread>)
    target_link_options(umf_build_flags INTERFACE -fsanitize=${umf_sanitizers})
endif()

if(UMF_USE_COVERAGE)
    # Atomic counters: the tests of a threaded library count from many threads.
    target_compile_options(umf_build_flags INTERFACE --coverage -fprofile-update=atomic)
    target_link_options(umf_build_flags INTERFACE --coverage)
endif()

if(UMF_BUILD_FUZZTESTS)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "UMF_BUILD_FUZZTESTS needs clang: libFuzzer is part of it.")
    endif()
    target_compile_options(umf_build_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
