#!/usr/bin/env bash
# Builds, installs, uses and uninstalls a static library, in folders of other names than usual.
. "$(dirname "$0")/common.sh" "$1" static

prefix=$work/prefix
lib=$prefix/lib64/here

# Every name that the contract lists, and an unknown one, must be taken without a warning.
options=(-DUMF_UNKNOWN_OPTION=1)
for name in LINK_HWLOC_STATICALLY BUILD_GPU_TESTS BUILD_BENCHMARKS BUILD_BENCHMARKS_MT \
    BUILD_GPU_EXAMPLES BUILD_FUZZTESTS DEVELOPER_MODE USE_ASAN USE_UBSAN USE_TSAN USE_MSAN \
    USE_VALGRIND USE_COVERAGE; do
    options+=("-DUMF_$name=OFF")
done
[ "$with_cuda" = 1 ] && cuda=ON || cuda=OFF # ON needs the headers
[ "$with_level_zero" = 1 ] && level_zero=ON || level_zero=OFF
configure_umf "$work/build" "${options[@]}" -DUMF_BUILD_SHARED_LIBRARY=OFF \
    -DUMF_BUILD_LEVEL_ZERO_PROVIDER=$level_zero -DUMF_BUILD_CUDA_PROVIDER=$cuda \
    -DUMF_HWLOC_NAME=hwloc -DUMF_INSTALL_RPATH=/opt/other -DUMF_PROXY_LIB_BASED_ON_POOL=JEMALLOC \
    -DUMF_LEVEL_ZERO_INCLUDE_DIR="$level_zero_include" -DUMF_CUDA_INCLUDE_DIR="$cuda_include" \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib64/here
quietly cmake --build "$work/build"
mkdir -p "$prefix/share/doc/other"
touch "$prefix/share/doc/other/kept"
quietly cmake --install "$work/build"
check_tree "$prefix" lib64/here

archives=("$lib"/libumf*.a)
# A program may have a jemalloc of its own, or any names but ours.
foreign=$("$nm" -gP --defined-only "${archives[@]}" | awk '$2 ~ /^[A-Z]$/ && $1 !~ /^umf/ { print $1 }')
[ -z "$foreign" ] || fail "global names that are not ours: $foreign"

libraries=(-Wl,-u,umfInit -lumf)
[ "$with_jemalloc" != ON ] || libraries+=(-lumf_jemalloc)
use_by_cmake -DCMAKE_PREFIX_PATH="$lib/cmake/umf"
use_by_pkg_config "$lib/pkgconfig" "" --static
by_hand_umem=(-lumem "${libraries[@]}" -pthread -ldl)
use_by_hand "$prefix" "$lib" "${libraries[@]}" -pthread -ldl
! "$readelf" -d "$work"/by_*/app_*c | grep -i 'libumf' || fail "a program was linked with a shared libumf"
"$readelf" -d "$prefix/bin/umfctl" | grep -q '/opt/other' || fail "UMF_INSTALL_RPATH was not honoured"

quietly cmake --build "$work/build" --target uninstall
rest=$(find "$prefix" ! -type d -o -name umf -o -name umem)
[ "$rest" = "$prefix/share/doc/other/kept" ] || fail "left by uninstall: $rest"
echo "install.static: ${archives[*]##*/}, used in three ways, uninstalled"
