#!/usr/bin/env bash
# Checks that what a person writes by hand names the version of the project first:
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
expect docs/man/umfctl.1 "$2" "$(sed -nE '1s/.*"libumf ([^"]+)".*/\1/p' docs/man/umfctl.1)"
expect packaging/debian/changelog "$3" "$(sed -nE '1s/^umf \(([^)]+)\).*/\1/p' packaging/debian/changelog)"
expect packaging/conda/meta.yaml "$4" "$(sed -nE 's/^\{% set version = "([^"]+)" %\}/\1/p' packaging/conda/meta.yaml)"

[ $failed -ne 0 ] || echo "check_version: $2, $3 for packages"
exit $failed
