# Some compilers call libatomic for atomic bytes (gcc for riscv64 before 14). Sets UMF_ATOMIC_LIBRARY to
# its name where it is needed, else to nothing.

include(CheckCSourceCompiles)
set(umf_atomic_source "
    #include <stdatomic.h>
    static _Atomic unsigned char a; static _Atomic unsigned long b;
    int main(void) { return atomic_exchange(&a, 1) + (int)atomic_fetch_add(&b, 1); }")
check_c_source_compiles("${umf_atomic_source}" UMF_ATOMICS_ARE_INLINE)
set(UMF_ATOMIC_LIBRARY "")
if(NOT UMF_ATOMICS_ARE_INLINE)
    set(UMF_ATOMIC_LIBRARY atomic)
endif()
