#!/usr/bin/env bash
# Runs programs of others with the preload library in front of them again and again, and prints a table. Takes long:
# for a release, not for every change.
#
#   test/preload/long.sh BUILD [--mimalloc-bench CLONE] [--times N] [--seconds N] [--limit N] [--pool KIND] [PROGRAM...]
#
# Under libumf_proxy.so and under its variant over each other pool (target umf-bench-proxies), or under that of KIND
# only ("default" or the name of a pool):
#   - the programs of a clone of mimalloc-bench, built as by scripts/bench.sh, N times (20) with two threads for each CPU;
#     a run must end with status 0 within --limit seconds (600)
#   - the programs of programs.sh, for N seconds (600) and at least once; each round compares what the program prints
#     with what it prints without the library; a step of a round has a sixth of the limit
# PROGRAM: only these. The limit is time on the clock: on a machine with other work it must be larger.
#
# Exit status: 0 if every run was right.
set -euo pipefail

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
build=
clone=
times=20
seconds=600
limit=600
pool=
only=" "
while [ $# -gt 0 ]; do
    case $1 in
    --mimalloc-bench) clone=$(cd "${2:?}" && pwd) && shift ;;
    --times) times=${2:?} && shift ;;
    --seconds) seconds=${2:?} && shift ;;
    --limit) limit=${2:?} && shift ;;
    --pool) pool=${2:?} && shift ;;
    -*) usage ;;
    *)
        if [ -z "$build" ]; then
            [ -d "$1" ] || usage
            build=$(cd "$1" && pwd)
        else
            only+="$1 "
        fi
        ;;
    esac
    shift
done
[ -n "$build" ] || usage

threads=$((2 * $(nproc)))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

is_wanted() {
    [ "$only" = " " ] || [[ $only == *" $1 "* ]]
}

row() { # <program> <pool> <good> <runs> <seconds of the longest>
    printf '%-16s %-10s %4d of %4d right, the longest took %4d s\n' "$@"
    [ "$3" -eq "$4" ] || failed=1
}

# repeat <program> <pool> <runs> <seconds> <command>...: as many runs, or so long.
repeat() {
    local program=$1 kind=$2 runs=$3 least=$4 good=0 made=0 longest=0 begin=$SECONDS start status
    shift 4
    while [ $made -lt "$runs" ] || { [ "$least" -gt 0 ] && [ $((SECONDS - begin)) -lt "$least" ]; }; do
        start=$SECONDS
        status=0
        "$@" >"$work/out" 2>&1 </dev/null || status=$?
        if [ $status -eq 0 ]; then
            good=$((good + 1))
        else
            echo "--- $program over $kind, run $((made + 1)): exit status $status" \
                "$([ $status -ne 124 ] || echo "(it was stopped after the limit)")"
            tail -n 5 "$work/out"
        fi
        made=$((made + 1))
        [ $((SECONDS - start)) -le $longest ] || longest=$((SECONDS - start))
    done
    row "$program" "$kind" "$good" "$made" "$longest"
}

in_front() { # <library> <program> <argument>...
    local library=$1
    shift
    (cd "$work" && LD_PRELOAD=$library timeout "$limit" "$@")
}

barnes() { # <library>
    (cd "$work" && LD_PRELOAD=$1 timeout "$limit" "$clone/out/bench/barnes" <"$clone/bench/barnes/input")
}

bench_program() { # <library> <pool> <program> <argument>...
    local library=$1 kind=$2 program=$3
    shift 3
    is_wanted "$program" || return 0
    if [ -x "$clone/out/bench/$program" ]; then
        repeat "$program" "$kind" "$times" 0 in_front "$library" "$clone/out/bench/$program" "$@"
    else
        echo "$program: not built in $clone/out/bench"
    fi
}

bench_programs() { # <library> <pool>
    local t=$threads
    bench_program "$@" cfrac 175451865205073170563711
    bench_program "$@" espresso "$clone/bench/espresso/largest.espresso"
    ! is_wanted barnes || repeat barnes "$2" "$times" 0 barnes "$1"
    bench_program "$@" glibc-simple
    bench_program "$@" glibc-thread "$t"
    bench_program "$@" alloc-test "$t"
    bench_program "$@" malloc-large
    bench_program "$@" larson 1 8 1000 5000 100 4141 "$t"
    bench_program "$@" larson-sized 1 8 1000 5000 100 4141 "$t"
    bench_program "$@" mstress "$t" 50 25
    bench_program "$@" xmalloc-test -w "$t" -t 1 -s 64
    bench_program "$@" rptest "$t" 0 1 2 500 1000 100 8 16000
    bench_program "$@" cache-scratch "$t" 1000 1 200000 "$t"
    bench_program "$@" cache-thrash "$t" 1000 1 200000 "$t"
    bench_program "$@" mleak 5
}

run_all() { # <library> <pool>
    local program
    [ -z "$pool" ] || [ "$pool" = "$2" ] || return 0
    [ -z "$clone" ] || bench_programs "$@"
    for program in bash git gcc python3 cmake perl ruby sqlite3 redis node; do
        if ! is_wanted "$program"; then
            continue
        elif [ "$program" != redis ] && ! command -v "$program" >/dev/null; then
            echo "$program: not installed"
        else
            repeat "$program" "$2" 1 "$seconds" bash "$here/programs.sh" "$1" "$program" $(((limit + 5) / 6))
        fi
    done
}

run_all "$build/lib/proxy/libumf_proxy.so" default
for library in "$build"/benchmark/libumf_proxy_*.so; do
    [ -e "$library" ] || continue
    kind=${library##*/libumf_proxy_}
    run_all "$library" "${kind%.so}"
done
exit $failed
