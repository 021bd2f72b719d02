#!/usr/bin/env bash
# Checks that test/unit/headers_functions.def, by which unit.headers freezes their signatures, lists every public
# function, and that the README or a page of the guide mentions each: functions.sh <project root>
set -euo pipefail

cd "$1"
functions=$(sed -nE 's/^FUNCTION\([^,]*, *(umf[A-Za-z0-9]+),.*/\1/p' test/unit/headers_functions.def | sort -u)
declared=$(grep -rhvE '^ ?\*|^ *//' include | grep -oE '\bumf[A-Z][A-Za-z0-9]*\(' | tr -d '(' | sort -u)
if ! diff <(echo "$declared") <(echo "$functions"); then
    echo "include/ declares (<) other functions than test/unit/headers_functions.def lists (>)"
    exit 1
fi
mentioned=$(grep -hoE '\bumf[A-Z][A-Za-z0-9]+' README.md docs/guide.md docs/guide/*.md | sort -u)
missing=$(comm -23 <(echo "$functions") <(echo "$mentioned"))

if [ -z "$functions" ] || [ -n "$missing" ]; then
    echo "neither README.md nor a page of docs/guide says what these functions are for:"
    echo "$missing"
    exit 1
fi
echo "check_functions: the guide mentions all $(wc -l <<<"$functions") functions"
