# Hardening of installed files: umf_harden(<target>...). The library and its tools parse files and messages of
# other processes. A sanitizer checks more, and its checks conflict with those of the C library. Of branch protection x86-64
# has the shadow stack alone: Linux offers programs no tracking of indirect branches, whose marks cost an instruction for each call.

option(UMF_HARDENING "Build with stack protection, checked string functions, branch protection and early binding" ON)

set(umf_hardening_candidates -fstack-protector-strong -fstack-clash-protection -fcf-protection=return -mbranch-protection=standard)
set(umf_hardening_flags)
if(UMF_HARDENING AND NOT UMF_SANITIZED AND NOT UMF_USE_COVERAGE AND NOT UMF_BUILD_FUZZTESTS)
    include(CheckCCompilerFlag)
    foreach(flag IN LISTS umf_hardening_candidates)
        string(MAKE_C_IDENTIFIER "UMF_HAVE${flag}" have)
        check_c_compiler_flag("-Werror ${flag}" ${have})
        if(${have})
            list(APPEND umf_hardening_flags ${flag})
        endif()
    endforeach()
    # Without optimization glibc refuses it with a warning.
    list(APPEND umf_hardening_flags "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
endif()

function(umf_harden)
    foreach(target IN LISTS ARGN)
        target_compile_options(${target} PRIVATE ${umf_hardening_flags})
        get_target_property(type ${target} TYPE)
        if(umf_hardening_flags AND type MATCHES "SHARED_LIBRARY|MODULE_LIBRARY|EXECUTABLE")
            target_link_options(${target} PRIVATE -Wl,-z,relro -Wl,-z,now)
        endif()
    endforeach()
endfunction()
