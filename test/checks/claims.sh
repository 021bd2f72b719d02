#!/usr/bin/env bash
# Checks that every test that docs/ipc-security.md and docs/guide/abi.md name is there: claims.sh <project root>
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

# The last column of the first table of the page about the ABI names tests of CTest.
page=docs/guide/abi.md
names=$(sed -nE 's/^\| .* \| `([a-z_.]+)`[^|]*\|$/\1/p' "$page")
for name in $names; do
    case $name in
    unit.*) [ -e "test/unit/${name#unit.}_test.cpp" ] ;;
    check_*) grep -q "umf_add_test($name " test/CMakeLists.txt ;;
    *) false ;;
    esac || {
        echo "$page names the test $name, which is not there"
        exit 1
    }
done
[ -n "$names" ] || {
    echo "$page names no tests: did the form of its table change?"
    exit 1
}
echo "check_claims: $(grep -c . <<<"$tests") tests, those named are there"
