#!/usr/bin/env bash
# Runs everything that tests and measures GPU memory on a machine with a GPU, and prints one summary:
#     test/gpu/run.sh <folder> [--sleep GIB[,GIB...]] [--folder PATH] [--software] [--tests] [--bench]
#
# <folder> is a build folder, or a bare one with copies of umf_gpu_*, umf_conformance_suspend*_test,
# umf-bench-gpu and libumf.so.1 side by side. --sleep is how many GiB sleep in the benchmark (8),
# --folder where content is kept in files there; --software runs all on the software driver
# (libcuda.so.1 in <folder> or <folder>/test/fakes), --tests only the tests, --bench only the
# benchmark. UMF_GPU_TIMEOUT is how many seconds each test may take (120), UMF_GPU_BENCH_TIMEOUT
# each part of the benchmark (300).
#
# PyTorch's part needs python3 with torch, and torch_peer.py and torch_record.py in <folder> or in
# benchmark/ of this tree. The sequences it records lie in UMF_GPU_TRACES afterwards, if that is set.
#
# Exit status: 0 passed, 1 something failed, 77 nothing could run. Targets that were missed are
# printed and are no failure.
set -euo pipefail

usage() {
    sed -n '3s/^# *//p' "$0" >&2
    exit 2
}

if [ $# -lt 1 ] || [ ! -d "$1" ]; then
    usage
fi
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
shift
sleep_gib=8
folder=/dev/shm
software=""
with_tests=yes
with_bench=yes
limit=${UMF_GPU_TIMEOUT:-120}
while [ $# -gt 0 ]; do
    case $1 in
    --sleep) sleep_gib=${2:?} && shift ;;
    --folder) folder=${2:?} && shift ;;
    --software) software=yes ;;
    --tests) with_bench="" ;;
    --bench) with_tests="" ;;
    *) usage ;;
    esac
    shift
done

export LD_LIBRARY_PATH="$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
shopt -s nullglob
driver=libcuda.so.1
if [ -n "$software" ]; then
    for driver in "$build/test/fakes/libcuda.so.1" "$build/libcuda.so.1"; do
        [ ! -e "$driver" ] || break
    done
else
    export UMF_TEST_GPU=real
fi

temporary=$(mktemp -d)
log=$temporary/log
trap 'rm -rf "$temporary"' EXIT
passed=0
failed=0
skipped=0
summary=""

# The number in GoogleTest's last line of that kind.
count() {
    sed -n "s/^\[ *$1 *\] \([0-9]*\) tests\?[.,].*/\1/p" "$log" | tail -1 | grep . || echo 0
}

run_test() {
    local name=${1##*/} status=0 start=$SECONDS
    timeout "$limit" "$1" >"$log" 2>&1 || status=$?
    local good bad left
    good=$(count PASSED)
    bad=$(count FAILED)
    left=$(count SKIPPED)
    if [ $status -ne 0 ] && [ "$bad" -eq 0 ]; then
        bad=1 # it did not reach its end
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + left))
    summary+=$(printf '%-36s %4d passed %3d failed %3d skipped %4d s' "$name" "$good" "$bad" \
        "$left" $((SECONDS - start)))$'\n'
    if [ $status -ne 0 ]; then
        echo "--- $name: exit status $status"
        grep -aE '^\[  FAILED|Failure|terminate|ERROR' "$log" | sort -u | head -40 || true
        tail -15 "$log"
    fi
}

tests=("$build"/test/umf_gpu_* "$build"/umf_gpu_* "$build"/test/umf_conformance_suspend*_test
    "$build"/umf_conformance_suspend*_test)
if [ -n "$with_tests" ]; then
    for test in "${tests[@]}"; do
        if [ -x "$test" ] && [ -f "$test" ]; then
            run_test "$test"
        fi
    done
fi

# A part of the benchmark: the first that fails gives the status.
bench_status=77
run_bench() {
    local status=0
    timeout "${UMF_GPU_BENCH_TIMEOUT:-300}" "$bench" --driver "$driver" "$@" || status=$?
    if [ $bench_status -eq 77 ] || [ $bench_status -eq 0 ]; then
        bench_status=$status
    fi
}

# torch <script> <argument>...: false if it did not run to its end.
torch() {
    local script status=0
    for script in "$build/$1" "$root/benchmark/$1"; do
        [ ! -f "$script" ] || break
    done
    shift
    timeout "${UMF_GPU_BENCH_TIMEOUT:-300}" python3 "$script" "$@" || status=$?
    if [ $status -ne 0 ]; then
        echo "${script##*/} did not run (status $status)"
        return 1
    fi
}

if [ -n "$with_bench" ]; then
    for bench in "$build/benchmark/umf-bench-gpu" "$build/umf-bench-gpu"; do
        [ ! -x "$bench" ] || break
    done
    traces=${UMF_GPU_TRACES:-$temporary}
    torch_times=()
    if [ -z "$software" ]; then
        ! torch torch_peer.py --out "$temporary/torch" || torch_times=(--torch "$temporary/torch")
        torch torch_record.py --out "$traces" || true
    fi
    if [ -x "$bench" ]; then
        run_bench --only pair "${torch_times[@]}"
        run_bench --only ipc
        for recorded in "$traces"/*.trace; do
            run_bench --replay "$recorded"
        done
        run_bench --only sleep --sleep "$sleep_gib" --folder "$folder"
    fi
fi

echo
printf '%s' "$summary"
echo "gpu: $passed passed, $failed failed, $skipped skipped; benchmark: status $bench_status"
if [ "$failed" -gt 0 ] || { [ $bench_status -ne 0 ] && [ $bench_status -ne 77 ]; }; then
    exit 1
fi
if [ -n "$with_tests" ] && [ "$passed" -eq 0 ]; then
    exit 77
fi
