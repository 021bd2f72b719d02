#!/usr/bin/env bash
# Checks that what is installed is hardened: hardening.sh <readelf> <file>...
# Of a static library all objects together must be, and have the marks of branch protection that the compiler knows.
set -euo pipefail

readelf=$1
shift
status=0
fail() {
    echo "$*"
    status=1
}

archive() {
    local symbols objects marks
    symbols=$("$readelf" -sW "$1")
    grep -q ' __stack_chk_fail' <<<"$symbols" || fail "$1: no stack protector"
    grep -Eq ' __[a-z]*_chk' <<<"$symbols" || fail "$1: no checked string functions"
    [ "$(uname -m)" = x86_64 ] || return 0
    objects=$(ar t "$1" | wc -l)
    marks=$("$readelf" -nW "$1" | grep -c 'x86 feature:.*SHSTK' || true)
    [ "$objects" -eq "$marks" ] || fail "$1: $marks of $objects objects have branch protection"
}

for file in "$@"; do
    if [ "${file##*.}" = a ]; then
        archive "$file"
        continue
    fi
    dynamic=$("$readelf" -dW "$file") segments=$("$readelf" -lW "$file") symbols=$("$readelf" --dyn-syms -W "$file")
    grep -Eq 'FLAGS_1.* NOW|BIND_NOW' <<<"$dynamic" || fail "$file: functions are bound at their first call (-z now)"
    grep -q GNU_RELRO <<<"$segments" || fail "$file: tables of addresses stay writable (-z relro)"
    ! grep -E 'GNU_STACK.* RWE' <<<"$segments" || fail "$file: the stack is executable"
    ! grep -q TEXTREL <<<"$dynamic" || fail "$file: code is relocated"
    grep -q ' __stack_chk_fail' <<<"$symbols" || fail "$file: no stack protector"
    grep -Eq ' __[a-z]*printf_chk| __mem[a-z]*_chk| __str[a-z]*_chk' <<<"$symbols" || fail "$file: no checked string functions"
done
[ $status -ne 0 ] || echo "check_hardening: $# files"
exit $status
