#!/usr/bin/env bash
# Checks what libumem exports: umem_exports.sh <readelf> <libumem.so> <folder of its headers>
#
# The functions that its headers declare as exported, under one version node, and nothing else; its soname;
# that it needs libumf and no library of a GPU.
set -euo pipefail

readelf=$1 library=$2 include=$3

status=0
complain() {
    echo "$@"
    status=1
}

exported=$("$readelf" --dyn-syms -W "$library" |
    awk '$1 ~ /^[0-9]+:$/ && $7 != "UND" && $7 != "ABS" && NF >= 8 { sub(/@@?/, " ", $8); print $8 }' | sort)
declared=$(grep -hv '^#' "$include"/*.h | tr '\n' ' ' |
    grep -oE '(UMEM_EXTERN|visibility\("default"\)\)\)) [^;()]*\(' | grep -oE '[A-Za-z_]+\($' | tr -d '(' |
    sed 's/$/ UMEM_0/' | sort)
[ -n "$declared" ] || complain "no function found in $include: is the pattern still right?"
[ "$exported" = "$declared" ] || complain "exported (<) are not the functions of the headers (>):
$(diff <(echo "$exported") <(echo "$declared") || true)"

soname=$("$readelf" -d "$library" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/\1/p')
[ "$soname" = libumem.so.0 ] || complain "its soname is '$soname', not libumem.so.0"
needed=$("$readelf" -d "$library" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p')
grep -q '^libumf\.so\.1$' <<<"$needed" || complain "it does not need libumf.so.1"
! grep -iE 'cuda|ze_loader|nvidia' <<<"$needed" || complain "it needs the libraries above"
! "$readelf" --dyn-syms -W "$library" | grep -E ' UND .*dlopen| UND .*dlsym' || complain "it loads libraries"

[ $status -ne 0 ] || echo "check_umem_exports: the $(wc -l <<<"$declared") functions of the headers"
exit $status
