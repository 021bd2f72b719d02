#!/usr/bin/env bash
# Checks the size of the thread-local memory of libumf: tls.sh <readelf> <libumf.so>
#
# Variables of ours are reached by the fast (initial-exec) way. That puts all thread-local variables
# of the library into the small block that dlopen has to spare, so together they may take 128 bytes:
# beyond it dlopen fails with "cannot allocate memory in static TLS block" in programs with many libraries.
set -euo pipefail

limit=128
size=$("$1" -lW "$2" | awk '$1 == "TLS" { print $6 }')
size=$((${size:-0}))
if [ "$size" -gt $limit ]; then
    echo "thread-local variables take $size bytes, $limit is the limit; the larger ones:"
    "$1" -sW "$2" | awk '$4 == "TLS" { print "  " $3 " " $8 }' | sort -rn | head
    exit 1
fi
echo "check_tls: $size bytes of thread-local variables, $limit is the limit"
