#!/usr/bin/env bash
# What configuring says of options that do not exist, values that cannot be, and targets it cannot serve.
. "$(dirname "$0")/common.sh" "$1" options

try() { # <option>...: configures; what it said is in $work/said
    cmake -S "$source" -B "$work/build" -G "$generator" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_CXX_COMPILER="$cxx" -DUMF_BUILD_TESTS=OFF -DUMF_BUILD_EXAMPLES=OFF \
        -DUMF_BUILD_LIBUMF_POOL_JEMALLOC=OFF "$@" >"$work/said" 2>&1
}

said() {
    grep -qF -- "$1" <<<"$(tr -s ' \n' ' ' <"$work/said")" || {
        cat "$work/said" >&2
        fail "configuring did not say: $1"
    }
}

try -DUMF_BUILD_TSTS=OFF -DUMF_USE_VALGRIND=ON -DUMF_BUILD_GPU_TESTS=OFF || fail "other options are no error"
said "UMF_BUILD_TSTS is not an option of libumf"
said "UMF_USE_VALGRIND has no effect"
! grep -q 'CMake Warning\|UMF_BUILD_GPU_TESTS' "$work/said" || fail "a warning, or words about what is off anyway"
try || fail "configuring again"
! grep -q 'UMF_BUILD_TSTS\|UMF_USE_VALGRIND' "$work/said" || fail "it is said again"

! try -DUMF_BUILD_CUDA_PROVIDER=perhaps || fail "a value that cannot be was taken"
said "UMF_BUILD_CUDA_PROVIDER is 'perhaps'; it can be AUTO, ON or OFF."
! try -DUMF_BUILD_CUDA_PROVIDER=OFF -DUMF_BUILD_TESTS=maybe || fail "a value that cannot be was taken"
said "UMF_BUILD_TESTS is 'maybe'; it can be ON or OFF."

# The folder of ze_api.h itself, as UMF's own build has it.
if [ "$with_level_zero" = 1 ]; then
    try -DUMF_BUILD_LEVEL_ZERO_PROVIDER=ON -DUMF_LEVEL_ZERO_INCLUDE_DIR="$level_zero_include/level_zero" || {
        cat "$work/said" >&2
        fail "the folder of ze_api.h was not taken"
    }
    quietly cmake --build "$work/build" --target umf
fi

# Configuring builds no jemalloc, and needs no network where its source is.
if [ -n "$jemalloc_source" ] || [ -e "$source/build/deps/jemalloc-source/configure" ]; then
    try -DUMF_BUILD_LIBUMF_POOL_JEMALLOC=ON -DUMF_DEPS_DIR="$work/deps" -DUMF_JEMALLOC_SOURCE_DIR="$jemalloc_source" ||
        fail "configuring with jemalloc"
    [ -z "$(find "$work/deps" -name '*.a')" ] || fail "configuring built jemalloc"
    cmake --build "$work/build" --target help | grep -q umf_jemalloc_build || fail "the build has no jemalloc"
fi

rm -rf "$work/build"
if echo 'int a[sizeof(void *) == 4 ? 1 : -1];' | "$cc" -m32 -x c -c -o "$work/32.o" - 2>/dev/null; then
    ! try -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY -DCMAKE_C_FLAGS=-m32 -DCMAKE_CXX_FLAGS=-m32 ||
        fail "a target with 32-bit pointers was taken"
    said "libumf needs a target with 64-bit pointers"
fi

# A compiler with its own C library on a system of glibc.
if command -v musl-gcc >/dev/null && [ -e /usr/include/linux/futex.h ]; then
    musl=(-DCMAKE_C_COMPILER=musl-gcc -DUMF_BUILD_TOOLS=OFF -DUMF_BUILD_CUDA_PROVIDER=OFF)
    rm -rf "$work/build"
    ! try "${musl[@]}" || fail "the headers of the kernel were not missed"
    said "does not find the headers of the kernel"
    mkdir "$work/kernel" "$work/mixed"
    ln -s /usr/include/linux /usr/include/asm-generic "/usr/include/$("$cc" -print-multiarch)/asm" "$work/kernel"
    musl+=(-DCMAKE_C_FLAGS="-isystem $work/kernel" -DUMF_BUILD_CUDA_PROVIDER=ON)
    ln -s /usr/include/* "$work/mixed"
    touch "$work/cuda.h" "$work/cudaTypedefs.h"
    ln -sf "$work/cuda.h" "$work/cudaTypedefs.h" "$work/mixed"
    ! try "${musl[@]}" -DUMF_CUDA_INCLUDE_DIR="$work/mixed" ||
        fail "headers of another C library were taken"
    said "a folder with headers of another C library"
    try "${musl[@]}" -DUMF_CUDA_INCLUDE_DIR="$work" || fail "a clean folder was refused"
    ! grep -q 'is not an option' "$work/said" || fail "UMF_CUDA_INCLUDE_DIR is an option"
else
    echo "install.options: not tried with musl-gcc, which is not here (package musl-tools)"
fi
echo "install.options: named misspelt options, refused impossible ones"
