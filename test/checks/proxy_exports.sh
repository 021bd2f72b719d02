#!/usr/bin/env bash
# Checks what libumf_proxy.so exports, needs and is called: proxy_exports.sh <readelf> <library>
set -euo pipefail

readelf=$1 library=$2
wanted="_ZdaPv _ZdaPvm _ZdlPv _ZdlPvm _Znam _Znwm aligned_alloc calloc dlopen free free_aligned_sized \
free_sized malloc malloc_usable_size memalign posix_memalign pvalloc realloc reallocarray valloc"
failed=0

# A versioned symbol would show as name@@version.
exported=$("$readelf" --dyn-syms -W "$library" |
    awk '$1 ~ /^[0-9]+:$/ && $5 != "LOCAL" && $7 != "UND" { print $8 }' | sort | xargs)
if [ "$exported" != "$wanted" ]; then
    echo "exports '$exported', wanted '$wanted'"
    failed=1
fi

dynamic=$("$readelf" -dW "$library")
grep -q 'SONAME.*\[libumf_proxy\.so\.1\]' <<<"$dynamic" || { echo "the soname is wrong"; failed=1; }
grep -q 'NEEDED.*\[libumf\.so\.1\]' <<<"$dynamic" || { echo "does not need libumf.so.1"; failed=1; }
# A thread-local variable of another model may be allocated at its first access: by us.
if "$readelf" -rW "$library" | grep -E 'R_.*(DTPMOD|TLSDESC)'; then
    echo "thread-local variables are not of the initial-exec model"
    failed=1
fi

[ $failed -ne 0 ] || echo "check_proxy_exports: $exported"
exit $failed
