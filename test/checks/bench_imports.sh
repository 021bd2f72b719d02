#!/usr/bin/env bash
# Checks that umf-bench starts over any libumf: bench_imports.sh <nm> <umf-bench>
#
# What only this libumf has it looks up by name (UMF_BENCH_OPTIONAL in benchmark/bench.h).
set -euo pipefail

imported=$("$1" -D --undefined-only --with-symbol-versions "$2" | grep -oE 'umf[A-Za-z]+@UMF_[A-Z0-9_.]+')
[ -n "$imported" ] || { echo "$2 imports nothing of libumf"; exit 1; }

if extra=$(grep -F '@UMF_EXT_' <<<"$imported"); then
    echo "umf-bench cannot start over a library without" $extra
    exit 1
fi
echo "check_bench_imports: $(wc -l <<<"$imported") symbols, all of the contract"
