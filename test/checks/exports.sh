#!/usr/bin/env bash
# Checks what libumf exports: exports.sh <readelf> <libumf.so> <include folder>
#
# Every function of the UMF C API under its own version node (abi.txt beside this script); beyond them
# only functions of UMF_EXT_1 that a public header declares; the nodes in one chain.
set -euo pipefail

readelf=$1 library=$2 include=$3
abi=$(dirname "$0")/abi.txt

status=0
complain() {
    echo "$@"
    status=1
}

# "<n>: <value> <size> <type> <bind> <visibility> <section> <name>@@<node>"; the nodes themselves are
# absolute symbols.
exported=$("$readelf" --dyn-syms -W "$library" |
    awk '$1 ~ /^[0-9]+:$/ && $7 != "UND" && $7 != "ABS" && NF >= 8 { sub(/@@?/, " ", $8); print $8 }' |
    sort)
[ -n "$exported" ] || { echo "$library exports nothing"; exit 1; }

wanted=$(grep -v '^#' "$abi" | sort)
missing=$(comm -13 <(echo "$exported") <(echo "$wanted"))
[ -z "$missing" ] || complain "not exported, or under another node:"$'\n'"$missing"

ours=$(comm -23 <(echo "$exported") <(echo "$wanted"))
while read -r name node; do
    [[ $name =~ ^umf[A-Z][A-Za-z0-9]*$ ]] && [ "$node" = UMF_EXT_1 ] ||
        complain "neither of the UMF C API nor a function of ours under UMF_EXT_1: $name $node"
    grep -rqwF "$name" "$include" || complain "exported but declared in no public header: $name"
done <<<"$ours"

soname=$("$readelf" -d "$library" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/\1/p')
[ "$soname" = libumf.so.1 ] || complain "its soname is '$soname', not libumf.so.1"

# "Name: X" of a node is followed by "Parent 1: Y" of the one it inherits.
chain=$("$readelf" -VW "$library" | awk '
    /Name: / { sub(/.*Name: /, ""); name = $1 }
    /Parent 1: / { sub(/.*Parent 1: /, ""); print name "<" $1 }' | tr '\n' ' ')
[ "$chain" = "UMF_1.1<UMF_1.0 UMF_1.2<UMF_1.1 UMF_EXT_1<UMF_1.2 " ] ||
    complain "the version nodes are not the chain they should be: $chain"

[ $status -ne 0 ] || echo "check_exports: all $(wc -l <<<"$wanted") functions of the UMF C API" \
    "and $(wc -l <<<"$ours") of ours"
exit $status
