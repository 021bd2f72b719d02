#!/usr/bin/env bash
# Runs everything that tests and measures GPU memory on a machine with a GPU, and prints one summary:
#     test/gpu/run.sh <folder> [--sleep GIB[,GIB...]] [--folder PATH] [--software] [--tests] [--bench]
#
# <folder> is a build folder, or a bare one with copies of umf_gpu_*, umf_conformance_suspend*_test,
# umf-bench-gpu and libumf.so.1 side by side. --sleep is how many GiB sleep in the benchmark (8),
# --folder where content is kept in files there; --software runs all on the software driver
# (libcuda.so.1 in <folder> or <folder>/test/fakes), --tests only the tests, --bench only the
# benchmark. UMF_GPU_TIMEOUT is how many seconds each program may take (120).
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

log=$(mktemp)
trap 'rm -f "$log"' EXIT
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

bench_status=0
if [ -n "$with_bench" ]; then
    bench_status=77
    for bench in "$build/benchmark/umf-bench-gpu" "$build/umf-bench-gpu"; do
        [ -x "$bench" ] || continue
        bench_status=0
        timeout 240 "$bench" --driver "$driver" --sleep "$sleep_gib" --folder "$folder" ||
            bench_status=$?
        break
    done
    if [ -z "$software" ]; then
        python3 "$root/benchmark/torch_peer.py" ||
            echo "PyTorch's allocator was not measured (status $?)"
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
