#!/usr/bin/env bash
# Runs the two IPC examples against each other: run_ipc.sh <producer> <consumer>
#
# The producer listens on a Unix socket; the consumer connects to it and reads the shared memory.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$1" "$folder/socket" &
producer=$!
for _ in $(seq 1200); do
    [ ! -S "$folder/socket" ] || break
    sleep 0.05
done

status=0
"$2" "$folder/socket" || status=$?
[ $status -eq 0 ] || kill "$producer" 2>/dev/null || true
wait "$producer" || status=1
exit $status
