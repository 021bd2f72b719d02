#!/usr/bin/env bash
# Checks the formatting of all our C and C++ files: format.sh <project root>
set -euo pipefail

# The format differs between releases of clang-format; ours is the one of Debian 12.
wanted=14

skip() {
    echo "check_format: skipped, $1"
    exit 77
}

tool=$(command -v clang-format-$wanted || command -v clang-format || true)
[ -n "$tool" ] || skip "clang-format is not here (scripts/install-deps.sh installs it)"
version=$("$tool" --version | sed -E 's/.*version ([0-9]+).*/\1/')
[ "$version" = $wanted ] || skip "clang-format $version is here, $wanted decides"

cd "$1"
find include src lib tools umfd umf-remote test examples benchmark python \( -name '*.[ch]' -o -name '*.[ch]pp' \) -print0 |
    xargs -0 -r "$tool" --dry-run -Werror
echo "check_format: every file is formatted"
