#!/usr/bin/env bash
# Runs a program that must print nothing on stderr: silent.sh <program> [<argument>...]
set -euo pipefail

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

status=0
"$@" 2>"$errors" || status=$?
if [ -s "$errors" ]; then
    echo "silent: it printed on stderr:"
    cat "$errors"
    [ $status -ne 0 ] || status=1
fi
exit $status
