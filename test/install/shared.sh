#!/usr/bin/env bash
# Installs the library of this build, moves the tree elsewhere and builds programs with it.
. "$(dirname "$0")/common.sh" "$1" shared

# Who installed from this build folder still wants to uninstall.
manifest=$build/install_manifest.txt
[ ! -e "$manifest" ] || cp -p "$manifest" "$work/manifest"
restore_manifest() {
    if [ -e "$work/manifest" ]; then cp -p "$work/manifest" "$manifest"; else rm -f "$manifest"; fi
}
trap restore_manifest EXIT

quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/moved"
prefix=$work/moved
lib=$prefix/$libdir

check_tree "$prefix" "$libdir"
need_file "$lib/libumf.so.$version"
! command -v python3 >/dev/null || python3 - "$prefix/share/doc/umf/licensing/umf.spdx.json" "$version" "$with_jemalloc" <<'EOF' || fail "wrong bill of materials"
import json, sys
bill = json.load(open(sys.argv[1]))
packages = {package["name"]: package["versionInfo"] for package in bill["packages"]}
assert packages.pop("libumf").split("-")[0] == sys.argv[2], packages
assert list(packages) == (["jemalloc"] if sys.argv[3] == "ON" else []), packages
ids = {package["SPDXID"] for package in bill["packages"]} | {"SPDXRef-DOCUMENT"}
for relation in bill["relationships"]:
    assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= ids, relation
EOF
[ "$(readlink "$lib/libumf.so.1")" = "libumf.so.$version" ] || fail "libumf.so.1 is not that link"
[ "$(readlink "$lib/libumf.so")" = libumf.so.1 ] || fail "libumf.so is not that link"
"$readelf" -d "$lib/libumf.so" | grep -q 'SONAME.*\[libumf.so.1\]' || fail "wrong soname"
if [ "$with_umem" = ON ]; then
    [ "$(readlink "$lib/libumem.so.0")" = libumem.so.0.1.0 ] || fail "libumem.so.0 is not that link"
    "$readelf" -d "$lib/libumem.so" | grep -qF '[$ORIGIN]' || fail "libumem does not look for libumf beside itself"
fi
! grep -rlF -e "$build" -e "$source" "$lib/cmake" "$lib/pkgconfig" || fail "paths of the build in the files above"

use_by_cmake -DCMAKE_PREFIX_PATH="$prefix" -DWITH_PROXY="$with_proxy"
use_by_pkg_config "$lib/pkgconfig" "$lib"
use_by_hand "$prefix" "$lib" -lumf

# Code of the guide, with its prefix replaced.
guide() { # <language>: the last block of it in the page
    awk -v fence="\`\`\`$1" '$0 == fence { text = ""; inside = 1; next } /^```/ { inside = 0 } inside { text = text $0 "\n" }
        END { printf "%s", text }' "$source/docs/guide/building.md" | sed "s:/opt/umf/lib\\b:$lib:g; s:/opt/umf:$prefix:g"
}
mkdir "$work/guide"
cp "$here/app/app.c" "$work/guide"
{
    printf 'cmake_minimum_required(VERSION 3.20)\nproject(guide C)\nadd_executable(app app.c)\n'
    guide cmake
} >"$work/guide/CMakeLists.txt"
configure "$work/guide" "$work/guide/build" -DCMAKE_PREFIX_PATH="$prefix"
quietly cmake --build "$work/guide/build"
quietly "$work/guide/build/app"
grep -q pkg-config <<<"$(guide sh)" || fail "the guide has no commands of a compiler alone"
(cd "$work/guide" && quietly bash -euc "$(guide sh)")

# It finds the library beside it.
[ "$with_proxy" != ON ] || quietly env LD_PRELOAD="$lib/libumf_proxy.so.1" "$work/by_cmake/app_c"

configure "$prefix/share/doc/umf/examples" "$work/examples" -DCMAKE_PREFIX_PATH="$prefix"
quietly cmake --build "$work/examples"
quietly "$work/examples/umf_example_basic"
[ ! -e "$build/tools/umfctl" ] || quietly "$prefix/bin/umfctl" --version

# Libraries opened at run time are searched next to it first.
"$readelf" -d "$lib/libumf.so" | grep -qF '[$ORIGIN]' || fail "the library does not look beside itself"
if [ -e "$prefix/bin/umfctl" ]; then
    for file in bash-completion/completions/umfctl zsh/site-functions/_umfctl fish/vendor_completions.d/umfctl.fish; do
        [ -s "$prefix/share/$file" ] || fail "no completion of umfctl in share/$file"
    done
    env LD_DEBUG=libs "$prefix/bin/umfctl" info >"$work/log" 2>&1
    for name in libhwloc.so.15 libtbbmalloc.so.2; do
        ! grep -q "find library=$name" "$work/log" || grep -q "trying file=$prefix/.*lib.*/$name" "$work/log" ||
            fail "$name is not looked for beside the library"
    done
fi
echo "install.shared: $(find "$prefix" ! -type d | wc -l) files, used in three ways after a move"
