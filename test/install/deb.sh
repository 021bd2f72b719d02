#!/usr/bin/env bash
# Makes a Debian source package, and packages from it in two folders, looks into them, and builds programs with what
# is in them; then they are installed for real, used and removed.
. "$(dirname "$0")/common.sh" "$1" deb

for tool in dpkg-buildpackage dh dh_python3 file gzip; do
    command -v $tool >/dev/null || skip "$tool is not here (scripts/install-deps.sh installs it)"
done
[ "$with_jemalloc$with_umem" = ONON ] || skip "the packages have the jemalloc pool and libumem"
make_source_package

# Packages of it from a clean folder, not optimised and without debug information, with the same jemalloc.
build_packages() { # <folder>
    mkdir -p "$1"
    cd "$1"
    quietly dpkg-source -x "$work/source/umf_$package_version.dsc" tree
    cd tree
    quietly env UMF_DEPS_DIR="$deps" ${c_launcher:+CMAKE_C_COMPILER_LAUNCHER="$c_launcher"} \
        ${cxx_launcher:+CMAKE_CXX_COMPILER_LAUNCHER="$cxx_launcher"} \
        DEB_CFLAGS_STRIP=-g DEB_CXXFLAGS_STRIP=-g DEB_BUILD_OPTIONS="noopt noautodbgsym parallel=$(nproc)" dpkg-buildpackage -us -uc -B
}
build_packages "$work/packages"

# The same bytes from a folder elsewhere, with another umask.
(umask 077 && build_packages "$work/a/copy/elsewhere")
for package in "$work/a/copy/elsewhere"/*.deb; do
    cmp "$package" "$work/packages/${package##*/}" || fail "other bytes from another folder"
done
rm -rf "$work/a"
cd "$work/packages"
architecture=$(dpkg --print-architecture)
dpkg --compare-versions "$package_version" le "$version" || fail "$package_version would not give way to $version"
runtime=libumf1_${package_version}_$architecture.deb
umem=libumem0_${package_version}_$architecture.deb
development=libumf-dev_${package_version}_$architecture.deb
tools=umf-tools_${package_version}_$architecture.deb
python=python3-umf_${package_version}_$architecture.deb
packages=("$runtime" "$umem" "$development" "$tools" "$python")

expect_field() { # <package> <field> <pattern>
    local value
    value=$(dpkg-deb -f "$1" "$2")
    [[ $value =~ $3 ]] || fail "$1: the field $2 is '$value', expected '$3'"
}

for package in "${packages[@]}"; do
    name=${package%%_*}
    need_file "$package"
    expect_field "$package" Version "^${package_version}$"
    expect_field "$package" Architecture "^$architecture$"
    expect_field "$package" Maintainer '^.+ <.+@.+>$'
    expect_field "$package" Description "^Memory pools over any kind of memory - .*
 .+"
    quietly dpkg-deb -x "$package" root
    quietly dpkg-deb -e "$package" "control.$name"
    (cd root && quietly md5sum --check "../control.$name/md5sums")
    need_file "root/usr/share/doc/$name/copyright"
    quietly gzip -t "root/usr/share/doc/$name/changelog.gz" "root/usr/share/doc/$name/changelog.Debian.gz"
    dpkg-deb -c "$package" | grep -v '/$' | awk '{ print $6 }' >>listed
    ! dpkg-deb -c "$package" | grep -vE '^(d|-|l).* root/root ' || fail "$package: not owned by root"
    ! dpkg-deb -c "$package" | grep -vE '^l|^[d-]rwxr-xr-x |^-rw-r--r-- ' ||
        fail "$package: users cannot read what is above, or others can write it"
done
if command -v lintian >/dev/null; then
    quietly lintian --allow-root --fail-on error,warning "${packages[@]}" "$work/source/umf_$package_version.dsc"
else
    echo "install.deb: not checked by lintian, which is not here (scripts/install-deps.sh installs it)"
fi
twice=$(sort listed | uniq -d)
[ -z "$twice" ] || fail "in more than one package: $twice"

expect_field "$runtime" Depends '^libc6 \([^,]*\)$'
expect_field "$runtime" Recommends '^libhwloc15$'
expect_field "$runtime" Suggests '^libtbbmalloc2$'
expect_field "$runtime" Section '^libs$'
expect_field "$umem" Depends "libumf1 \(= $package_version\)"
expect_field "$umem" Section '^libs$'
expect_field "$development" Depends "^libumem0 \(= $package_version\), libumf1 \(= $package_version\)$"
expect_field "$development" Section '^libdevel$'
expect_field "$tools" Depends "^libumf1 \(= $package_version\), libc6 "
expect_field "$python" Depends "^libumf1 \(= $package_version\), python3 "
# A program needs the version that its functions came with.
grep -qx ' umfPoolCreate@UMF_1.0 1.2.0' control.libumf1/symbols || fail "wrong symbols of UMF_1.0"
grep -qx ' umfPoolCreateFromText@UMF_EXT_1 1.2.0' control.libumf1/symbols || fail "wrong symbols of UMF_EXT_1"
grep -qx ' umfLastErrorText@UMF_EXT_1.3 1.3.0~' control.libumf1/symbols || fail "wrong symbols of UMF_EXT_1.3"
grep -q "^libumem 0 libumem0 (>= $debian_version" control.libumem0/shlibs || fail "wrong shlibs of libumem"

triplet=$("$cc" -print-multiarch 2>/dev/null || gcc -print-multiarch)
lib=$work/packages/root/usr/lib/$triplet
check_tree root/usr "lib/$triplet"
need_file "$lib/libumf.so.$version"
file "$lib/libumf.so.$version" | grep -q ', stripped' || fail "the library is not stripped"
! "$readelf" -d "$lib/libumf.so" root/usr/bin/umfctl | grep -E 'RPATH|RUNPATH' ||
    fail "a search path in the files above: below /usr the system knows where libraries are"
! find root -path '*/man/*' -type f ! -name '*.gz' | grep . || fail "manual pages that are not compressed"
! find root/usr/share/doc/umf/examples -name '*.gz' | grep . || fail "examples above that no compiler can read"
need_file root/usr/share/man/man1/umfctl.1.gz
need_file root/usr/bin/umf-remote
need_file root/usr/share/man/man1/umf-remote.1.gz
need_file root/usr/share/bash-completion/completions/umfctl
need_file root/usr/share/zsh/vendor-completions/_umfctl
need_file root/usr/share/fish/vendor_completions.d/umfctl.fish
need_file root/usr/lib/systemd/user/umfd.socket
need_file root/usr/lib/systemd/user/umfd.service

# apt tells whether this system could satisfy the dependencies. Nothing is installed.
if command -v apt-get >/dev/null && [ -n "$(apt-cache policy libc6 2>/dev/null)" ]; then
    quietly apt-get install --simulate "${packages[@]/#/./}"
fi

umem_libraries=$lib
use_by_cmake -DCMAKE_PREFIX_PATH="$work/packages/root/usr" -DWITH_STATIC=ON
PKG_CONFIG_SYSROOT_DIR=$work/packages/root use_by_pkg_config "$lib/pkgconfig" "$lib"
use_by_hand root/usr "$lib" -lumf
quietly env LD_LIBRARY_PATH="$lib" root/usr/bin/umfctl --version

# libumf-dev has the static library, too.
libs=$(PKG_CONFIG_SYSROOT_DIR=$work/packages/root PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --static --libs umf)
quietly "$cc" -Iroot/usr/include "$here/app/app.c" -o app_static ${libs/-lumf/-l:libumf.a}
for program in ./app_static "$work/by_cmake/app_static"; do
    quietly "$program"
    ! "$readelf" -d "$program" | grep libumf || fail "$program was linked with the shared library above"
done

mkdir "$work/clean" "$work/three"
cp "${packages[@]}" "$work/three"
if [ "$(id -u)" -ne 0 ]; then
    echo "install.deb: not installed for real: that needs root"
else
    result=0
    unshare -m bash "$here/clean_root.sh" "$work/clean" "$work/three" "$here/app" >"$work/log" 2>&1 || result=$?
    case $result in
    0) echo "install.deb: installed for real, used and removed without trace" ;;
    77) echo "install.deb: not installed for real: no overlay can be mounted here" ;;
    *)
        tail -n 40 "$work/log" >&2
        fail "installing for real"
        ;;
    esac
fi
echo "install.deb: ${packages[*]}"
