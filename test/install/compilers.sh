#!/usr/bin/env bash
# The library, its tools and the examples by other compilers than those of the presets, with warnings as errors; the library
# is then tried by umfctl. Long runs only: each compiler takes minutes.
. "$(dirname "$0")/common.sh" "$1" compilers

tried=0
try() { # <C compiler> <C++ compiler>
    if ! command -v "$1" >/dev/null || ! command -v "$2" >/dev/null; then
        echo "install.compilers: not tried with $1, which is not here (a package of this name)"
        return
    fi
    cc=$1 cxx=$2 configure_umf "$work/$1" -DUMF_DEVELOPER_MODE=ON -DCMAKE_BUILD_TYPE=Release -DUMF_BUILD_EXAMPLES=ON
    quietly cmake --build "$work/$1"
    quietly "$work/$1/tools/umfctl" check
    rm -rf "${work:?}/$1"
    echo "install.compilers: built and tried with $1"
    tried=$((tried + 1))
}

try gcc-11 g++-11
try clang-19 clang++-19
[ $tried -gt 0 ] || skip "there is no other compiler"
