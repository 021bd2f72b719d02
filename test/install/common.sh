# Shared by the install tests: source common.sh <settings.sh> <name of the test>
set -euo pipefail

. "$1"
test_name=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$work/$test_name
rm -rf "$work"
mkdir -p "$work"
export LC_ALL=C
unset DESTDIR CMAKE_PREFIX_PATH PKG_CONFIG_PATH LD_LIBRARY_PATH

fail() {
    printf 'install.%s: %s\n' "$test_name" "$*" >&2
    exit 1
}

skip() {
    printf 'install.%s: skipped, %s\n' "$test_name" "$*"
    exit 77
}

# Runs a command and shows its output only when it fails.
quietly() {
    "$@" >"$work/log" 2>&1 || {
        tail -n 40 "$work/log" >&2
        fail "failed: $*"
    }
}

need_file() {
    [ -e "$1" ] || fail "$1 is not there"
}

# configure <source> <build folder> <option>...: with the compilers of the build we belong to.
configure() {
    quietly "${cmake:-cmake}" -S "$1" -B "$2" -G "$generator" -DCMAKE_BUILD_TYPE= \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" \
        ${c_launcher:+-DCMAKE_C_COMPILER_LAUNCHER="$c_launcher"} \
        ${cxx_launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER="$cxx_launcher"} "${@:3}"
}

# configure_umf <build folder> <option>...: the library again, not optimised, with the same jemalloc.
configure_umf() {
    configure "$source" "$1" -DUMF_BUILD_TESTS=OFF -DUMF_BUILD_EXAMPLES=OFF \
        -DUMF_BUILD_LIBUMF_POOL_JEMALLOC="$with_jemalloc" -DUMF_BUILD_LIBUMEM="$with_umem" -DUMF_DEPS_DIR="$deps" \
        -DUMF_JEMALLOC_SOURCE_DIR="$jemalloc_source" "${@:2}"
    ! grep -A5 'CMake Warning' "$work/log" || fail "configuring gave the warning above"
}

# Where libumem finds libumf, if not beside itself.
umem_libraries=

# All programs must run, and find the library without help if `$2` is empty. Of libumem there are two, where it
# was built.
run_apps() { # <folder of the programs> <folder of the library>
    local name
    for name in app_c app_cpp; do
        quietly env ${2:+LD_LIBRARY_PATH="$2"} "$1/$name"
    done
    [ "$with_umem" = ON ] || return 0
    set -- "$1" "${2:-$umem_libraries}"
    for name in app_umem_c app_umem_cpp; do
        quietly env ${2:+LD_LIBRARY_PATH="$2"} "$1/$name"
    done
}

use_by_cmake() { # <option>...: where the package is, what it has
    configure "$here/app" "$work/by_cmake" -DWITH_UMEM="$with_umem" "$@"
    quietly cmake --build "$work/by_cmake"
    run_apps "$work/by_cmake" ""
}

# The programs of libumem. The folder of the sources is where the flags of the linker begin.
use_umem() { # <output folder> <flag>... <folder of the programs> <flag for the linker>...
    local out=$1 flags=()
    shift
    while [ "$1" != "$here/app" ]; do
        flags+=("$1")
        shift
    done
    shift
    set -- "$@" ${umem_libraries:+-Wl,-rpath-link,"$umem_libraries"}
    quietly "$cc" -std=c11 -Wall -Werror "${flags[@]}" "-DTMPDIR=\"$work/\"" "$here/app/umem.c" -o "$out/app_umem_c" "$@"
    quietly "$cxx" -std=c++11 -Wall -Werror "${flags[@]}" "$here/app/umem.cpp" -o "$out/app_umem_cpp" "$@"
}

use_by_pkg_config() { # <folder of the .pc file> <folder of the library> <option of pkg-config>...
    local out=$work/by_pkg_config cflags libs
    command -v pkg-config >/dev/null || fail "pkg-config is not here (scripts/install-deps.sh installs it)"
    mkdir -p "$out"
    cflags=$(PKG_CONFIG_PATH=$1 pkg-config --cflags umf)
    libs=$(PKG_CONFIG_PATH=$1 pkg-config --libs "${@:3}" umf)
    [ "$(PKG_CONFIG_PATH=$1 pkg-config --modversion umf)" = "$version" ] || fail "wrong version in umf.pc"
    quietly "$cc" $cflags "$here/app/app.c" -o "$out/app_c" $libs
    quietly "$cxx" $cflags "$here/app/app.cpp" -o "$out/app_cpp" $libs
    if [ "$with_umem" = ON ]; then
        cflags=$(PKG_CONFIG_PATH=$1 pkg-config --cflags libumem)
        libs=$(PKG_CONFIG_PATH=$1 pkg-config --libs "${@:3}" libumem)
        [ "$(PKG_CONFIG_PATH=$1 pkg-config --modversion libumem)" = 0.1.0 ] || fail "wrong version in libumem.pc"
        use_umem "$out" $cflags "$here/app" $libs
    fi
    run_apps "$out" "$2"
}

# Arguments of the linker for libumem: nothing else where it is shared.
by_hand_umem=(-lumem)

use_by_hand() { # <prefix> <folder of the library> <flags for the linker>...
    local out=$work/by_hand
    mkdir -p "$out"
    quietly "$cc" -I"$1/include" "$here/app/app.c" -o "$out/app_c" -L"$2" "${@:3}"
    quietly "$cxx" -I"$1/include" "$here/app/app.cpp" -o "$out/app_cpp" -L"$2" "${@:3}"
    [ "$with_umem" != ON ] || use_umem "$out" -I"$1/include/umem" "$here/app" -L"$2" "${by_hand_umem[@]}"
    run_apps "$out" "$2"
}

check_tree() { # <prefix> <libdir>
    local file
    (cd "$source/include" && find . -name '*.h' -o -name '*.hpp') | while read -r file; do
        if [[ $file == ./umem/* && $with_umem != ON ]]; then
            [ ! -e "$1/include/$file" ] || fail "$file is there without its library"
        else
            need_file "$1/include/$file"
        fi
    done
    [ "$with_umem" != ON ] || need_file "$1/$2/pkgconfig/libumem.pc"
    for file in umf-config umf-config-version umf-targets; do
        need_file "$1/$2/cmake/umf/$file.cmake"
    done
    need_file "$1/$2/pkgconfig/umf.pc"
    for file in LICENSE.TXT licensing/third-party-programs.txt examples/basic.c \
        examples/CMakeLists.txt; do
        need_file "$1/share/doc/umf/$file"
    done
}

# The sources as an archive has them, in $work/source/umf-<version>, and beside them those of jemalloc: $jemalloc.
copy_sources() {
    local folder
    for folder in "$jemalloc_source" "$source/build/deps/jemalloc-source" "$deps"/jemalloc-[0-9]*.[0-9]*/; do
        [ ! -e "$folder/configure" ] || jemalloc=$folder
    done
    [ -n "${jemalloc-}" ] || skip "the source of jemalloc is not here"
    tree=$work/source/umf-$debian_version
    mkdir -p "$tree"
    (cd "$source" && tar -c --exclude=./build --exclude=./.git --exclude=./out --exclude=./debian .) | tar -x -C "$tree"
}

# A Debian source package in $work/source, with the version $package_version: the source, jemalloc, debian/.
make_source_package() {
    package_version=$(dpkg-parsechangelog -l "$source/debian/changelog" -S Version)
    [ "${package_version%-*}" = "$debian_version" ] || fail "debian/changelog has the version $package_version"
    copy_sources
    cd "$work/source"
    tar -czf "umf_$debian_version.orig.tar.gz" "${tree##*/}"
    cp -r "$jemalloc" "$tree/jemalloc"
    tar -C "$tree" -czf "umf_$debian_version.orig-jemalloc.tar.gz" jemalloc
    mkdir "$tree/debian" # without what a build in the source tree leaves there
    find "$source/debian" -maxdepth 1 -type f ! -name '*debhelper*' ! -name '*.substvars' ! -name files \
        -exec cp -t "$tree/debian" {} +
    cp -r "$source/debian/source" "$source/debian/tests" "$tree/debian"
    quietly dpkg-source -b "$tree"
}
