#!/usr/bin/env bash
# Checks that files written by hand name the version of the project first:
# version.sh <project root> <version> <version of the packages> <version for Python>
set -euo pipefail

cd "$1"
failed=0

expect() { # <file> <what it should say> <what it says>
    [ "$2" = "$3" ] || {
        echo "$1 says '$3', the version is '$2'"
        failed=1
    }
}

expect CHANGELOG.md "$2" "$(sed -nE 's/^## \[([^]]+)\].*/\1/p' CHANGELOG.md | head -n 1)"
for page in umfctl umfd umf-remote; do
    expect docs/man/$page.1 "$2" "$(sed -nE '1s/.*"libumf ([^"]+)".*/\1/p' docs/man/$page.1)"
done
expect debian/changelog "$3" "$(sed -nE '1s/^umf \(([^)]+)-[0-9]+\).*/\1/p' debian/changelog)"
recipe=packaging/conda/recipe.yaml
expect $recipe "$4" "$(sed -nE 's/^  version: ([0-9].*)/\1/p' $recipe)"
jemalloc=$(sed -nE 's/^set\(umf_jemalloc_(version|sha256) (.*)\)/\2/p' cmake/jemalloc.cmake | xargs)
[ "$jemalloc" = "$(sed -nE 's:.*/([0-9.]+)/jemalloc-\1\.tar\.bz2$:\1:p; s/^ *sha256: //p' $recipe | xargs)" ] || {
    echo "$recipe has another jemalloc than cmake/jemalloc.cmake: $jemalloc"
    failed=1
}

expect packaging/conan/conanfile.py "$2" "$(sed -nE 's/^    version = "(.*)"/\1/p' packaging/conan/conanfile.py)"
expect packaging/spack/package.py "$2" "$(sed -nE 's/^    version\("(.*)"\)/\1/p' packaging/spack/package.py)"
expect packaging/vcpkg/vcpkg.json "$2" "$(sed -nE 's/^  "version-string": "(.*)",/\1/p' packaging/vcpkg/vcpkg.json)"
spec=packaging/rpm/libumf.spec
expect $spec "$3" "$(sed -nE 's/^Version: +(.*)/\1/p' $spec)"
if ! command -v rpmspec >/dev/null; then
    echo "check_version: $spec is not read by rpmspec, which is not here (package rpm)"
elif ! rpmspec -P $spec >/dev/null; then
    echo "$spec is not understood by rpmspec"
    failed=1
fi
# Options of CMake that a recipe sets exist.
known=$(cat CMakeLists.txt cmake/*.cmake | grep -oE '^ *(option|set)\(UMF_[A-Z_]+|find_path\(UMF_[A-Z_]+' | grep -oE 'UMF_[A-Z_]+' | sort -u)
unknown=$(comm -23 <(cat packaging/{conan/conanfile.py,spack/package.py,vcpkg/portfile.cmake,rpm/libumf.spec} debian/rules |
    grep -oE 'UMF_[A-Z_]+' | sort -u) <(echo "$known"))
[ -z "$unknown" ] || {
    echo "recipes set options that do not exist:" $unknown
    failed=1
}

[ $failed -ne 0 ] || echo "check_version: $2, $3 for packages"
exit $failed
