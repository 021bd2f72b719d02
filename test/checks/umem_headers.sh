#!/usr/bin/env bash
# The headers of libumem: each alone and twice, in every version of C and C++ that the compilers have, in
# several files of one program, with each kind of context left out, and which macros they define.
#
#   umem_headers.sh <source folder> <C compiler> <C++ compiler>
set -euo pipefail

include=$1/include/umem
cc=$2
cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I$include"
failed=0

fail() {
    echo "$*" >&2
    failed=1
}

supports() { # <compiler> <standard>
    echo 'extern int a;' | "$1" "-std=$2" -x "$3" -fsyntax-only - 2>/dev/null
}

compile() { # <what> <file> <compiler and options>...
    "${@:3}" $warnings -c "$2" -o "$2.o" 2>"$work/log" || {
        head -n 20 "$work/log" >&2
        fail "$1 does not compile with: ${*:3}"
    }
}

for header in umem.h umem_utils.h umem_config.h rmm.h umem.hpp; do
    printf '#include <%s>\n#include <%s>\nextern int alone;\n' "$header" "$header" >"$work/alone.c"
    cp "$work/alone.c" "$work/alone.cpp"
    for standard in c11 gnu11 c17 c2x; do
        [ "$header" = umem.hpp ] || ! supports "$cc" $standard c || compile $header "$work/alone.c" "$cc" -std=$standard
    done
    for standard in c++11 c++14 c++17 c++20 c++2b; do
        ! supports "$cxx" $standard c++ || compile $header "$work/alone.cpp" "$cxx" -std=$standard
    done
done

for standard in c++11 c++14 c++17 c++20 c++2b; do
    ! supports "$cxx" $standard c++ ||
        "$cxx" -std=$standard -Wall -Wextra -Werror "-I$include" -fsyntax-only "$1/test/checks/umem_use.cpp" ||
        fail "umem.hpp cannot be used in $standard"
done

# Each in an order of its own, and by way of the folder above.
printf '#include <umem.hpp>\n#include <rmm.h>\n#include <umem.h>\n#include <umem/umem.h>\nextern int alone;\n' >"$work/order.cpp"
compile "any order" "$work/order.cpp" "$cxx" -std=c++11 "-I$1/include"

# Several files of one program: everything in the C++ header is inline.
for language in c cpp; do
    for file in one other; do
        printf '#include <umem.h>\n#include <rmm.h>\n%s int %s(void) { return umem_ispowerof2(3); }\n' \
            "$([ $language = c ] || echo 'extern "C" int '$file'(void); extern "C"')" $file >"$work/$file.$language"
    done
done
sed -i '1i int one(void);' "$work/one.c"
sed -i '1i int other(void);' "$work/other.c"
compile "one of two files" "$work/one.c" "$cc" -std=c11
compile "one of two files" "$work/other.c" "$cc" -std=c11
"$cc" -r "$work/one.c.o" "$work/other.c.o" -o "$work/both.o" || fail "two files in C define the same"
compile "one of two files" "$work/one.cpp" "$cxx" -std=c++11
compile "one of two files" "$work/other.cpp" "$cxx" -std=c++11
"$cxx" -r "$work/one.cpp.o" "$work/other.cpp.o" -o "$work/both.o" || fail "two files in C++ define the same"

# Without one kind of context nothing else is missing.
for kind in FILE MMAP CUDA CUDA_HOST CUDA_MANAGED RMM; do
    printf '#define HAVE_%s_CONTEXT 0\n#include <umem.h>\nextern int alone;\n' $kind >"$work/without.c"
    cp "$work/without.c" "$work/without.cpp"
    compile "without $kind" "$work/without.c" "$cc" -std=c11
    compile "without $kind" "$work/without.cpp" "$cxx" -std=c++11
done

macros() { # <language> <header>...
    local header
    for header in "${@:2}"; do echo "#include <$header>"; done |
        "$cc" -x "$1" "-I$include" -dM -E - | sed -nE 's/^#define ([A-Za-z0-9_]+).*/\1/p' | sort -u
}
system='stdint.h stdlib.h stdio.h stdbool.h inttypes.h stddef.h stdalign.h'
expected='HAVE_CUDA_CONTEXT HAVE_CUDA_HOST_CONTEXT HAVE_CUDA_MANAGED_CONTEXT HAVE_FILE_CONTEXT HAVE_MALLOC_H
    HAVE_MMAP_CONTEXT HAVE_RMM_CONTEXT TRY_RETURN UMEM_CLOSE_EXTERN_C UMEM_CONFIG_H UMEM_EXPORT UMEM_EXTERN
    UMEM_FUNDAMENTAL_CUDA_ALIGN UMEM_FUNDAMENTAL_FILE_ALIGN UMEM_FUNDAMENTAL_HOST_ALIGN UMEM_H
    UMEM_START_EXTERN_C UMEM_UTILS_H UMEM_VERSION_MAJOR UMEM_VERSION_MICRO UMEM_VERSION_MINOR'
found=$(comm -13 <(macros c $system) <(macros c $system umem.h) | xargs)
[ "$found" = "$(echo $expected)" ] || fail "umem.h defines the macros $found"
found=$(comm -13 <(macros c stdbool.h stddef.h) <(macros c stdbool.h stddef.h rmm.h) | xargs)
[ "$found" = "RMM_ALLOC RMM_FREE RMM_REALLOC UMEM_RMM_H" ] || fail "rmm.h defines the macros $found"

[ $failed -ne 0 ] || echo "check_umem_headers: alone, together and in every version of C and C++"
exit $failed
