#!/usr/bin/env bash
# The headers of the C++ interface: each alone, all in every version of C++ from 17 on, with and without
# exceptions, by every compiler that is here, with warnings that programs may have on, and in several files of
# one program. umf/cuda_resource.hpp, which needs the headers of CUDA, has a test of its own: gpu.cuda_resource.
#
#   cpp_headers.sh <source folder> <C++ compiler>
set -euo pipefail

root=$1
cxx=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror"
failed=0

compile() { # <what> <file> <compiler and options>...
    "${@:3}" $warnings "-I$root/include" -c "$2" -o "$2.o" 2>"$work/log" || {
        head -n 20 "$work/log" >&2
        echo "$1 does not compile with: ${*:3}" >&2
        failed=1
    }
}

headers=$(cd "$root/include" && echo umf/umf.hpp umf/fwd.hpp umf/cpp/*.hpp)
for header in $headers; do
    printf '#include <%s>\n#include <%s>\nextern int alone;\n' "$header" "$header" >"$work/alone.cpp"
    compile "$header" "$work/alone.cpp" "$cxx" -std=c++17 -fsyntax-only
    guard=$(tr a-z/. A-Z__ <<<"$header")
    grep -qx "#ifndef $guard" "$root/include/$header" || {
        echo "$header has not the guard $guard" >&2
        failed=1
    }
    [ "$header" = umf/umf.hpp ] || grep -qx "#include <$header>" "$root/include/umf/umf.hpp" || {
        echo "umf/umf.hpp does not include $header" >&2
        failed=1
    }
done

# Code of the examples and of a test.
compilers=
for compiler in "$cxx" $(for other in g++ clang++; do command -v $other || true; done); do
    case "$compilers " in *" $(readlink -f "$(command -v "$compiler")") "*) continue ;; esac
    compilers+=" $(readlink -f "$(command -v "$compiler")")"
    for standard in c++17 c++20 c++2b; do
        for file in cpp_pool cpp_pmr; do
            compile "examples/$file.cpp" "$root/examples/$file.cpp" "$compiler" -std=$standard -fsyntax-only
        done
        compile "test/cpp/no_exceptions.cpp" "$root/test/cpp/no_exceptions.cpp" "$compiler" -std=$standard \
            -fsyntax-only -fno-exceptions -fno-rtti "-I$root/test"
    done
done

# Several files of one program, some without exceptions: everything is inline, and nothing is defined twice.
for file in one other third; do
    printf '#include <umf/umf.hpp>\numf_memory_pool_handle_t %s() { return umf::pool("proxy over os").release(); }\n' \
        $file | sed '1a umf_memory_pool_handle_t '$file'();' >"$work/$file.cpp"
    compile "one of several files" "$work/$file.cpp" "$cxx" -std=c++17 $([ $file != third ] || echo -fno-exceptions)
done
"$cxx" -r "$work"/{one,other,third}.cpp.o -o "$work/all.o" || {
    echo "files of one program define the same" >&2
    failed=1
}

[ $failed -ne 0 ] || echo "check_cpp_headers: alone, in each version of C++ by:$compilers"
exit $failed
