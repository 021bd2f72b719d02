#!/usr/bin/env bash
# Checks what libumf exports: exports.sh <readelf> <libumf.so> <include folder>
#
# Every function of a released version under its own version node (abi.txt beside this script), and no other there;
# beyond them only functions of the node of the next version that a public header declares; the nodes in one chain.
set -euo pipefail

readelf=$1 library=$2 include=$3
abi=$(dirname "$0")/abi.txt
next=UMF_EXT_1.3 # of the version that is developed; a release moves its functions to abi.txt, and has a sum below

# Released nodes, and the sum of their sorted functions: they are closed, the list cannot change with the library.
released="UMF_1.0 a8dfc9b25ea6edb1
UMF_1.1 8ec6f2f0f3d43895
UMF_1.2 e505d9add68c6c18
UMF_EXT_1 07842e03551a93e2"

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

while read -r node sum; do
    [ "$(sed -n "s/ $node\$//p" "$abi" | LC_ALL=C sort | sha256sum | cut -c1-16)" = "$sum" ] ||
        complain "abi.txt has other functions of $node than the release"
done <<<"$released"
[ "$(grep -v '^#' "$abi" | cut -d' ' -f2 | sort -u)" = "$(cut -d' ' -f1 <<<"$released" | sort -u)" ] ||
    complain "abi.txt has other nodes than the releases"

ours=$(comm -23 <(echo "$exported") <(echo "$wanted"))
while read -r name node; do
    [[ $name =~ ^umf[A-Z][A-Za-z0-9]*$ ]] && [ "$node" = $next ] ||
        complain "neither released nor a new function under $next (marker UMF_API_$(tr . _ <<<"${next#UMF_}")): $name $node"
    grep -rqwF "$name" "$include" || complain "exported but declared in no public header: $name"
done <<<"$ours"

soname=$("$readelf" -d "$library" | sed -nE 's/.*\(SONAME\).*\[(.*)\]/\1/p')
[ "$soname" = libumf.so.1 ] || complain "its soname is '$soname', not libumf.so.1"

# "Name: X" of a node is followed by "Parent 1: Y" of the one it inherits.
chain=$("$readelf" -VW "$library" | awk '
    /Name: / { sub(/.*Name: /, ""); name = $1 }
    /Parent 1: / { sub(/.*Parent 1: /, ""); print name "<" $1 }' | tr '\n' ' ')
[ "$chain" = "UMF_1.1<UMF_1.0 UMF_1.2<UMF_1.1 UMF_EXT_1<UMF_1.2 $next<UMF_EXT_1 " ] ||
    complain "the version nodes are not the chain they should be: $chain"

[ $status -ne 0 ] || echo "check_exports: all $(wc -l <<<"$wanted") released functions" \
    "and $(wc -l <<<"$ours") of ours"
exit $status
