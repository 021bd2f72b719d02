#!/usr/bin/env bash
# Builds a project that has the library as a part, with its optional parts off. With them it is only
# configured, for what they might leave behind in the parent.
. "$(dirname "$0")/common.sh" "$1" subproject

if [ "$with_jemalloc" = ON ]; then
    configure "$here/subproject" "$work/with_parts" -DUMF="$source" -DUMF_DEPS_DIR="$deps" \
        -DUMF_JEMALLOC_SOURCE_DIR="$jemalloc_source" -DUMF_BUILD_SHARED_LIBRARY=OFF
fi
configure "$here/subproject" "$work/build" -DUMF="$source" -DUMF_BUILD_LIBUMEM="$with_umem" \
    -DUMF_BUILD_LIBUMF_POOL_JEMALLOC=OFF -DUMF_BUILD_CUDA_PROVIDER=OFF \
    -DUMF_BUILD_LEVEL_ZERO_PROVIDER=OFF -DUMF_PART_OF_SOMETHING=1
! grep -A5 'CMake Warning' "$work/log" || fail "configuring gave the warning above"
quietly cmake --build "$work/build"
run_apps "$work/build" ""
if [ -x "$old_cmake" ]; then
    cmake=$old_cmake configure "$here/subproject" "$work/by_old_cmake" -DUMF="$source" -DUMF_BUILD_LIBUMEM="$with_umem" \
        -DUMF_BUILD_LIBUMF_POOL_JEMALLOC=OFF
    quietly "$old_cmake" --build "$work/by_old_cmake"
    run_apps "$work/by_old_cmake" ""
else
    echo "install.subproject: not tried with CMake 3.20, which is not here (scripts/install-deps.sh fetches it)"
fi
[ ! -e "$work/build/_deps/umf-build/deps" ] || fail "a part without jemalloc looked for it"
quietly cmake --install "$work/build" --prefix "$work/prefix"
check_tree "$work/prefix" lib
echo "install.subproject: built, run and installed as a part of another project"
