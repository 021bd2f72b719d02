# Headers of the C library. A compiler of musl on a system of glibc has its own; a folder such as /usr/include would
# bring those of glibc before them.
#
# Sets UMF_LIBC_IS_GLIBC. umf_check_libc(<variable> <advice>...) ends the configuration if the folder in the variable has
# headers of another C library than the compiler's.

include(CheckCSourceCompiles)

check_c_source_compiles("#include <stdlib.h>
    #ifndef __GLIBC__
    #error another one
    #endif
    int main(void) { return 0; }" UMF_LIBC_IS_GLIBC)

function(umf_check_libc variable)
    if(UMF_LIBC_IS_GLIBC)
        return()
    endif()
    string(JOIN "" advice ${ARGN})
    set(CMAKE_REQUIRED_INCLUDES "${${variable}}")
    string(SHA256 folder "${${variable}}")
    string(SUBSTRING "${folder}" 0 8 folder)
    check_c_source_compiles("#include <limits.h>
        #include <stdint.h>
        #include <stdlib.h>
        #ifdef __GLIBC__
        #error headers of glibc
        #endif
        int main(void) { return 0; }" UMF_LIBC_IS_KEPT_BESIDE_${folder})
    if(NOT UMF_LIBC_IS_KEPT_BESIDE_${folder})
        unset(UMF_LIBC_IS_KEPT_BESIDE_${folder} CACHE) # checked again after the cure
        message(FATAL_ERROR "${variable} is ${${variable}}, a folder with headers of another C library than that of"
            " ${CMAKE_C_COMPILER}. ${advice}")
    endif()
endfunction()

if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT UMF_LIBC_IS_GLIBC)
    check_c_source_compiles("#include <linux/falloc.h>
        #include <linux/futex.h>
        #include <linux/mempolicy.h>
        int main(void) { return 0; }" UMF_HAVE_KERNEL_HEADERS)
    if(NOT UMF_HAVE_KERNEL_HEADERS)
        unset(UMF_HAVE_KERNEL_HEADERS CACHE)
        message(FATAL_ERROR "${CMAKE_C_COMPILER} does not find the headers of the kernel (linux/futex.h). Make a folder"
            " with links to these three folders of the system, without its other headers, and name it:\n"
            "  mkdir kernel && ln -s /usr/include/linux /usr/include/asm-generic /usr/include/$(uname -m)-linux-gnu/asm kernel\n"
            "  cmake ... -DCMAKE_C_FLAGS=\"-isystem $PWD/kernel\"")
    endif()
endif()
