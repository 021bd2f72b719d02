#!/usr/bin/env bash
# Checks that every test that docs/ipc-security.md names is there: claims.sh <project root>
#
# A name is `suite.Test` in code quotes; a test is TEST, TEST_F or TEST_P of these two in test/.
set -euo pipefail

cd "$1"
page=docs/ipc-security.md
names=$(grep -o '`[A-Za-z_]*\.[A-Za-z][A-Za-z_]*`' "$page" | tr -d '`' | sort -u)
tests=$(grep -rhoE --include='*.cpp' '^TEST(_F|_P)?\([A-Za-z_]+, *[A-Za-z_]+\)' test |
    sed -E 's/^TEST(_F|_P)?\(([A-Za-z_]+), *([A-Za-z_]+)\)/\2.\3/' | sort -u)

missing=$(comm -23 <(echo "$names") <(echo "$tests"))
if [ -z "$names" ] || [ -n "$missing" ]; then
    echo "$page names tests that are not there:"
    echo "$missing"
    exit 1
fi
echo "check_claims: $(wc -l <<<"$names") tests are there"
