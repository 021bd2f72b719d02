#!/usr/bin/env bash
# Checks that the README or a page of the guide mentions every public function: functions.sh <project root>
#
# test/unit/headers_functions.def lists them; umf_conformance_headers_test compares it with the headers.
set -euo pipefail

cd "$1"
functions=$(sed -nE 's/^FUNCTION\([^,]*, *(umf[A-Za-z0-9]+),.*/\1/p' test/unit/headers_functions.def | sort -u)
mentioned=$(grep -hoE '\bumf[A-Z][A-Za-z0-9]+' README.md docs/guide.md docs/guide/*.md | sort -u)
missing=$(comm -23 <(echo "$functions") <(echo "$mentioned"))

if [ -z "$functions" ] || [ -n "$missing" ]; then
    echo "neither README.md nor a page of docs/guide says what these functions are for:"
    echo "$missing"
    exit 1
fi
echo "check_functions: the guide mentions all $(wc -l <<<"$functions") functions"
