#!/usr/bin/env bash
# Checks what libumf exports: exports.sh <nm> <libumf.so> <include folder>
#
# Only functions that a public header declares, each under one of our version nodes.
set -euo pipefail

nm=$1 library=$2 include=$3

# Lines are "name type ..."; the nodes themselves are absolute symbols.
exported=$("$nm" -D --defined-only --with-symbol-versions -P "$library" | awk '$2 != "A" { print $1 }')
[ -n "$exported" ] || { echo "$library exports nothing"; exit 1; }

status=0
while read -r symbol; do
    name=${symbol%%@*}
    if ! [[ $symbol =~ ^umf[A-Z][A-Za-z0-9]*@@UMF_(1\.0|1\.1|1\.2|EXT_1)$ ]]; then
        echo "not a versioned umf function: $symbol"
        status=1
    elif ! grep -rqwF "$name" "$include"; then
        echo "exported but declared in no public header: $symbol"
        status=1
    fi
done <<<"$exported"

[ $status -ne 0 ] || echo "check_exports: $(wc -l <<<"$exported") functions, all declared and versioned"
exit $status
