#!/usr/bin/env bash
# Measures libumf beside other allocators and prints what was reached. Installs what is missing first.
#
#   scripts/bench.sh [--quick] [PART...]     all parts, or those that are named:
#
#   --time        times of single operations, beside the peers
#   --ir          instructions per operation
#   --lines       cache lines that travel between threads per operation
#   --memory      resident memory and metadata
#   --threads     1 to 16 threads, as far as there are cores
#   --programs    whole programs with the preload library
#   --grid        8 sizes by pair, batch, handover and churn by 1, 4 and 16 threads, about ten minutes
#   --mimalloc-bench FOLDER
#                 the programs of a clone of mimalloc-bench under the preload library over each pool, and under
#                 every other allocator that is there; five rounds take more than an hour (ROUNDS=1: a quarter)
#   --reference   the same operations with the published library of this API, as a binary
#   --plots       draws docs/benchmarks/*.svg from what was measured, now or before
#
# Without names --grid and --mimalloc-bench are left out. Results are left in build/bench, one JSON file for each part,
# and lines.txt. With --quick all takes ten minutes, else about half an hour.
set -euo pipefail

cd "$(dirname "$0")/.."
out=build/bench
bench=build/release/benchmark/umf-bench
reference=build/deps/reference
all_parts=(time ir lines memory threads programs reference plots)

parts=()
quick=()
folder=
while [ $# -gt 0 ]; do
    argument=$1
    shift
    case $argument in
    --quick) quick=(--quick) ;;
    --time | --ir | --lines | --memory | --threads | --programs | --grid | --reference | --plots)
        parts+=("${argument#--}")
        ;;
    --mimalloc-bench)
        [ -d "${1-}/bench" ] || { echo "bench: --mimalloc-bench needs the folder of a clone of it, with bench/ in it" >&2; exit 2; }
        folder=$(cd "$1" && pwd)
        parts+=(judge)
        shift
        ;;
    *)
        sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
        exit 2
        ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")

step() {
    printf '\n== %s\n' "$1"
}

# run <name of the result> <option>...
run() {
    local name=$1
    shift
    "$bench" ${quick[@]+"${quick[@]}"} "$@" --json "$out/$name.json"
}

# The published library is a wheel of the Python package "umf". Only its binary is kept.
fetch_reference() {
    [ ! -e "$reference/libumf.so.1" ] || return 0
    local work found
    work=$(mktemp -d)
    if python3 -m pip download --quiet --no-deps --dest "$work" umf &&
        python3 -m zipfile -e "$work"/umf-*.whl "$work/unpacked" &&
        found=$(find "$work/unpacked" -name libumf.so.1 -print -quit) && [ -n "$found" ]; then
        mkdir -p "$reference"
        cp "$found" "$reference/libumf.so.1"
    fi
    rm -rf "$work"
    [ -e "$reference/libumf.so.1" ]
}

# The peer "jemalloc inside a library": see benchmark/subjects.cpp.
build_jemalloc_inside() {
    local folder=$PWD/build/deps/jemalloc-inside work
    [ ! -e "$folder/libjemalloc_inside.so.2" ] || return 0
    work=$(mktemp -d)
    cp -r build/deps/jemalloc-source/. "$work"
    if (cd "$work" && { [ -x configure ] || autoconf; } && ./configure --with-jemalloc-prefix=je_ \
        --with-install-suffix=_inside --disable-initial-exec-tls --disable-cxx --disable-static \
        --disable-doc && make -j "$(nproc)" build_lib_shared) >"$work/log" 2>&1; then
        mkdir -p "$folder"
        cp "$work/lib/libjemalloc_inside.so.2" "$folder/"
    else
        echo "bench: jemalloc could not be built as a library would carry it, so it is left out:"
        tail -n 5 "$work/log"
    fi
    rm -rf "$work"
}

# with_reference <result> <option>...
with_reference() {
    local name=$1
    shift
    LD_LIBRARY_PATH=$reference${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$bench" "$@" \
        --json "$out/turn-reference-$name.json" >"$out/turn-reference-$name.txt" 2>&1
}

with_ours() {
    local name=$1
    shift
    "$bench" "$@" --json "$out/turn-ours-$name.json" >"$out/turn-ours-$name.txt" 2>&1
}

# The two libraries take turns, so that a drift of the machine meets both.
run_reference() {
    if ! fetch_reference; then
        echo "bench: the reference library cannot be had, so it is left out"
        return 0
    fi
    rm -f "$out"/turn-*
    local turn
    for turn in 1 2; do
        with_ours "$turn" --quick
        with_reference "$turn" --quick
    done
    with_ours ir --ir
    with_reference ir --ir
    with_reference pairs --filter pair/ # what the plot wants
    echo "bench: both libraries were measured twice, see the comparison at the end"
}

run_lines() {
    if ! cmake --build --preset release --target umf-bench-lines; then
        echo "bench: umf-bench-lines cannot be built here, so it is left out"
        return 0
    fi
    build/release/benchmark/umf-bench-lines ${quick[@]+"${quick[@]}"} | tee "$out/lines.txt"
}

# Its own script builds the programs, too, but installs and downloads others first. Those whose sources must be
# downloaded (shbench) are left out unless they are there.
build_judge() {
    [ ! -x "$folder/out/bench/larson" ] || return 0
    local sources=$PWD/build/mimalloc-bench
    rm -rf "$sources"
    cp -r "$folder/bench" "$sources"
    [ -e "$sources/shbench/sh6bench-new.c" ] ||
        sed -i '/^if(NOT APPLE)/,/^endif()/d' "$sources/CMakeLists.txt"
    cmake -S "$sources" -B "$folder/out/bench" -DCMAKE_BUILD_TYPE=Release --log-level=WARNING >/dev/null
    cmake --build "$folder/out/bench" -j "$(nproc)" >/dev/null
}

run_judge() {
    build_judge
    run judge --mimalloc-bench "$folder" --rounds "${ROUNDS:-5}"
}

run_part() {
    case $1 in
    time) run time ;;
    ir) run ir --ir ;;
    lines) run_lines ;;
    memory) run memory --memory ;;
    threads) run threads --threads 1,2,4,8,16 ;;
    programs) run programs --programs ;;
    grid) run grid --grid ;;
    judge) run_judge ;;
    reference) run_reference ;;
    plots) python3 benchmark/plot.py "$out" docs/benchmarks ;;
    esac
}

# What this run has measured; with the reference the comparison too.
print_summary() {
    local part files=() others=()
    for part in "${parts[@]}"; do
        case $part in
        reference) [ ! -e "$out/turn-reference-1.json" ] || others=("$out"/turn-reference-*.json) ;;
        lines | plots) ;;
        *) files+=("$out/$part.json") ;;
        esac
    done
    [ ${#others[@]} -eq 0 ] || files+=("$out"/turn-ours-*.json)
    [ ${#files[@]} -eq 0 ] || python3 benchmark/summary.py "${files[@]}" \
        ${others[@]+--reference "${others[@]}"}
}

step "setting up"
scripts/install-deps.sh --bench
cmake --preset release -DUMF_BUILD_BENCHMARKS=ON --log-level=WARNING
cmake --build --preset release --target umf-bench
build_jemalloc_inside
mkdir -p "$out"

for part in "${parts[@]}"; do
    step "$part"
    run_part "$part"
done

step "summary"
print_summary
