#!/usr/bin/env bash
# Lets a fuzz target search: search.sh <program> <corpus> <work folder> <seconds>
#
# What it finds to be new goes into the work folder, not into the sources. An input that fails is
# printed, so that it can be taken from the log of a test run into the corpus.
set -uo pipefail

program=$1 corpus=$2 work=$3 seconds=$4
name=$(basename "$corpus")
dictionary=$(dirname "$corpus")/../$name.dict

rm -rf "$work"
mkdir -p "$work/corpus" "$work/failures"
export TMPDIR=$work
cp "$corpus"/* "$work/corpus/" || exit 1

options=(-max_total_time="$seconds" -max_len=4096 -timeout=120 -rss_limit_mb=2048
    -artifact_prefix="$work/failures/" -print_final_stats=1
    -close_fd_mask=3) # the log is long, and matters only for an input that fails
[ ! -e "$dictionary" ] || options+=(-dict="$dictionary")

"$program" "${options[@]}" "$work/corpus" >"$work/log" 2>&1
status=$?
rmdir "$work"/umf_fuzz_* 2>/dev/null
grep -aE '^(#[0-9]+.*(INITED|DONE)|Done|stat::)' "$work/log"
[ $status -ne 0 ] || exit 0

tail -n 100 "$work/log"
for input in "$work"/failures/*; do
    [ -e "$input" ] || continue
    echo "--- $input"
    od -An -c "$input" | head -n 100
    echo "--- run alone"
    "$program" "$input" 2>&1 | tail -n 100
done
exit 1 # not $status: that of libFuzzer is 77, which means a skipped test to ctest
