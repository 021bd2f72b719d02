#!/usr/bin/env bash
# Makes the Debian packages, in two folders, looks into them, and builds programs with what is in them;
# then they are installed for real, used and removed.
. "$(dirname "$0")/common.sh" "$1" deb

for tool in dpkg-deb dpkg-shlibdeps file gzip; do
    command -v $tool >/dev/null || skip "$tool is not here (scripts/install-deps.sh installs it)"
done

configure_umf "$work/build" -DCMAKE_INSTALL_PREFIX=/usr
quietly cmake --build "$work/build"
(cd "$work/build" && quietly cpack -G DEB -B "$work/packages")

# The same bytes from sources and a build elsewhere, with another umask.
elsewhere="$work/a copy elsewhere"
mkdir -p "$elsewhere/source"
(cd "$source" && tar -c --exclude=./build --exclude=./.git --exclude=./out .) | tar -x -C "$elsewhere/source"
[ -n "$jemalloc_source" ] || jemalloc_source=$source/build/deps/jemalloc-source
(
    umask 077
    source=$elsewhere/source configure_umf "$elsewhere/build" -DCMAKE_INSTALL_PREFIX=/usr
    quietly cmake --build "$elsewhere/build"
    cd "$elsewhere/build" && quietly cpack -G DEB -B "$elsewhere/packages"
)
for package in "$work/packages"/*.deb; do
    cmp "$package" "$elsewhere/packages/${package##*/}" || fail "other bytes from another folder"
done
rm -rf "$elsewhere"
cd "$work/packages"
architecture=$(dpkg --print-architecture)
dpkg --compare-versions "$debian_version" le "$version" || fail "$debian_version would not give way to $version"
runtime=libumf1_${debian_version}_$architecture.deb
development=libumf-dev_${debian_version}_$architecture.deb
tools=umf-tools_${debian_version}_$architecture.deb
packages=("$runtime" "$development" "$tools")
umem=libumem0_${debian_version}_$architecture.deb
[ "$with_umem" != ON ] || packages+=("$umem")

expect_field() { # <package> <field> <pattern>
    local value
    value=$(dpkg-deb -f "$1" "$2")
    [[ $value =~ $3 ]] || fail "$1: the field $2 is '$value', expected '$3'"
}

for package in "${packages[@]}"; do
    name=${package%%_*}
    need_file "$package"
    expect_field "$package" Version "^${debian_version}$"
    expect_field "$package" Architecture "^$architecture$"
    expect_field "$package" Maintainer '^.+ <.+@.+>$'
    expect_field "$package" Description "^Memory pools over any kind of memory - .*
 .+"
    quietly dpkg-deb -x "$package" root
    quietly dpkg-deb -e "$package" "control.$name"
    (cd root && quietly md5sum --check "../control.$name/md5sums")
    need_file "root/usr/share/doc/$name/copyright"
    quietly gzip -t "root/usr/share/doc/$name/changelog.gz"
    dpkg-deb -c "$package" | grep -v '/$' | awk '{ print $6 }' >>listed
    ! dpkg-deb -c "$package" | grep -vE '^(d|-|l).* root/root ' || fail "$package: not owned by root"
    ! dpkg-deb -c "$package" | grep -vE '^l|^[d-]rwxr-xr-x |^-rw-r--r-- ' ||
        fail "$package: users cannot read what is above, or others can write it"
done
if command -v lintian >/dev/null; then
    quietly lintian --allow-root --fail-on error,warning "${packages[@]}"
else
    echo "install.deb: not checked by lintian, which is not here (scripts/install-deps.sh installs it)"
fi
twice=$(sort listed | uniq -d)
[ -z "$twice" ] || fail "in more than one package: $twice"

expect_field "$runtime" Depends '^libc6 \([^,]*\)$'
expect_field "$runtime" Recommends '^libhwloc15$'
expect_field "$runtime" Suggests '^libtbbmalloc2$'
expect_field "$runtime" Section '^libs$'
if [ "$with_umem" = ON ]; then
    expect_field "$umem" Depends "libumf1 \(= $debian_version\)"
    expect_field "$umem" Section '^libs$'
    expect_field "$development" Depends "libumem0 \(= $debian_version\)"
    grep -q "^libumem 0 libumem0 (>= $debian_version)$" control.libumem0/shlibs || fail "wrong shlibs of libumem"
fi
expect_field "$development" Depends "libumf1 \(= $debian_version\)"
expect_field "$development" Section '^libdevel$'
expect_field "$tools" Depends "^libumf1 \(= $debian_version\), libc6 "
grep -q "^libumf 1 libumf1 (>= $debian_version)$" control.libumf1/shlibs || fail "wrong shlibs"

triplet=$("$cc" -print-multiarch 2>/dev/null || gcc -print-multiarch)
lib=$work/packages/root/usr/lib/$triplet
check_tree root/usr "lib/$triplet"
need_file "$lib/libumf.so.$version"
file "$lib/libumf.so.$version" | grep -q ', stripped' || fail "the library is not stripped"
! "$readelf" -d "$lib/libumf.so" root/usr/bin/umfctl | grep -E 'RPATH|RUNPATH' ||
    fail "a search path in the files above: below /usr the system knows where libraries are"
! find root -path '*/man/*' -type f ! -name '*.gz' | grep . || fail "manual pages that are not compressed"
need_file root/usr/share/man/man1/umfctl.1.gz
need_file root/usr/lib/systemd/user/umfd.socket
need_file root/usr/lib/systemd/user/umfd.service

# apt tells whether this system could satisfy the dependencies. Nothing is installed.
if command -v apt-get >/dev/null && [ -n "$(apt-cache policy libc6 2>/dev/null)" ]; then
    quietly apt-get install --simulate "${packages[@]/#/./}"
fi

umem_libraries=$lib
use_by_cmake -DCMAKE_PREFIX_PATH="$work/packages/root/usr"
PKG_CONFIG_SYSROOT_DIR=$work/packages/root use_by_pkg_config "$lib/pkgconfig" "$lib"
use_by_hand root/usr "$lib" -lumf
quietly env LD_LIBRARY_PATH="$lib" root/usr/bin/umfctl --version

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
