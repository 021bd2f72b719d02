#!/usr/bin/env bash
# Runs everything that tests and measures GPU memory on a machine with a GPU, and prints one summary:
#     test/gpu/run.sh <folder> [--tests] [--sanitize] [--bench] [--python] [--sleep GIB[,GIB...]] [--folder PATH] [--software] [--pack FOLDER]
#
# <folder> is a build folder, or a bare one with copies of umf_gpu_*, umf_conformance_suspend*_test,
# umf_umem_*_test, umfd, umf-bench-gpu and the libraries side by side: --pack makes such a one out of a build folder, stripped
# and with this script, and runs nothing. With a Python package in the build folder that goes along, into python.
#
# The parts, all but --sanitize and --python if none is named: --tests; --sanitize, compute-sanitizer's memcheck
# over gpu.arena, gpu.two_devices, gpu.cuda_vmm, gpu.pools, gpu.graph, gpu.copy, gpu.queue, gpu.random and umem.cuda, and its
# racecheck over the first two; --bench;
# --python, python/tests/gpu.sh of this tree over the Python package: the names of vLLM, with captures of two threads, those
# of torch_memory_saver in two modes, the allocator of the process, the rest with PyTorch. --sleep is how many GiB sleep in the benchmark
# (8), --folder where content is kept in files there; --software runs all on the software driver
# (libcuda.so.1 in test/fakes or software of <folder>).
#
# UMF_GPU_SANITIZE names some of these programs, as "gpu_arena umem_cuda". Each has a limit of its own, in seconds: UMF_GPU_TIMEOUT for a test (120), UMF_GPU_SANITIZE_TIMEOUT
# for one under compute-sanitizer (300), UMF_GPU_BENCH_TIMEOUT for a part of the benchmark (300), to
# which 20 s are added for each GiB that sleeps.
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
with_tests=""
with_sanitize=""
with_bench=""
with_python=""
pack=""
limit=${UMF_GPU_TIMEOUT:-120}
while [ $# -gt 0 ]; do
    case $1 in
    --sleep) sleep_gib=${2:?} && shift ;;
    --folder) folder=${2:?} && shift ;;
    --software) software=yes ;;
    --tests) with_tests=yes ;;
    --sanitize) with_sanitize=yes ;;
    --bench) with_bench=yes ;;
    --python) with_python=yes ;;
    --pack) pack=${2:?} && shift ;;
    *) usage ;;
    esac
    shift
done

if [ -z "$with_tests$with_sanitize$with_bench$with_python" ]; then
    with_tests=yes
    with_bench=yes
fi

shopt -s nullglob
if [ -n "$pack" ]; then
    mkdir -p "$pack/software"
    cp -L "$build"/test/umf_gpu_*_test "$build"/test/umf_conformance_suspend*_test \
        "$build/libumf.so.1" "$0" "$root"/benchmark/torch_*.py "$pack"
    [ ! -e "$build/lib/umem/libumem.so.0" ] ||
        cp -L "$build"/test/umf_umem_*_test "$build/lib/umem/libumem.so.0" "$pack"
    [ ! -x "$build/benchmark/umf-bench-gpu" ] || cp "$build/benchmark/umf-bench-gpu" "$pack"
    [ ! -x "$build/umfd/umfd" ] || cp "$build/umfd/umfd" "$pack"
    [ ! -x "$build/benchmark/umf-bench-vault" ] || cp "$build/benchmark/umf-bench-vault" "$pack"
    cp -L "$build/test/fakes/libcuda.so.1" "$pack/software"
    if [ -d "$build/python/umf" ]; then
        mkdir -p "$pack/python"
        cp -rL "$build/python/umf" "$pack/python"
        cp -L "$build/test/fakes/libsoft_cudart.so" "$pack/software"
    fi
    if [ -x "$build/tools/umfctl" ]; then # a machine with a GPU may lack its ncurses
        mkdir -p "$pack/tools"
        cp "$build/tools/umfctl" "$pack/tools"
        ldd "$build/tools/umfctl" | awk '/ncurses|tinfo/ { print $3 }' | xargs -r cp -Lt "$pack"
    fi
    strip "$pack"/umf* "$pack"/lib*.so.* "$pack/software/libcuda.so.1"
    du -sh "$pack"
    exit
fi

if [ -x "$build/umfd" ] && [ -f "$build/umfd" ]; then
    export UMF_TEST_UMFD=$build/umfd
fi
export LD_LIBRARY_PATH="$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
driver=libcuda.so.1
if [ -n "$software" ]; then
    for driver in "$build/test/fakes/libcuda.so.1" "$build/software/libcuda.so.1"; do
        [ ! -e "$driver" ] || break
    done
    export UMF_TEST_FAKE_CUDA=$driver
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
    "$build"/umf_conformance_suspend*_test "$build"/{test/,}umf_umem_{cuda,rmm}_test)
if [ -n "$with_tests" ]; then
    for test in "${tests[@]}"; do
        if [ -x "$test" ] && [ -f "$test" ]; then
            run_test "$test"
        fi
    done
fi

# compute-sanitizer does not work on every machine with a GPU: then the part is skipped, with its
# words. Calls of the driver that tests expect to fail are no errors.
sanitized=""
sanitize_test() { # <tool> <program>
    local name=${2##*/} status=0 start=$SECONDS word options=()
    [ "$1" != memcheck ] || options=(--report-api-errors no)
    timeout "${UMF_GPU_SANITIZE_TIMEOUT:-300}" compute-sanitizer --tool "$1" "${options[@]}" \
        --error-exitcode 99 "$2" >"$log" 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        word=clean
    elif grep -q 'Device not supported' "$log"; then
        word="skipped: $(grep -m1 'Device not supported' "$log")"
    else
        word="FAILED, status $status"
        failed=$((failed + 1))
        grep -aE '^=========' "$log" | head -40 || true
        tail -15 "$log"
    fi
    sanitized+=$(printf '%-9s %-27s %s, %d s' "$1" "$name" "$word" $((SECONDS - start)))$'\n'
}

if [ -n "$with_sanitize" ]; then
    if [ -n "$software" ] || ! command -v compute-sanitizer >/dev/null; then
        sanitized="memcheck: skipped, it needs a GPU and compute-sanitizer"$'\n'
    else
        names=(gpu_{arena,two_devices,cuda_vmm,pools,graph,copy,queue,random} umem_cuda)
        for name in ${UMF_GPU_SANITIZE:-${names[*]}}; do
            for test in "$build/test/umf_${name}_test" "$build/umf_${name}_test"; do
                if [ -x "$test" ]; then
                    sanitize_test memcheck "$test"
                    case $name in gpu_arena | gpu_two_devices) sanitize_test racecheck "$test" ;; esac
                fi
            done
        done
    fi
fi

# A part of the benchmark: the first that fails gives the status.
bench_status=77
run_bench() { # <seconds more> <argument>...
    local status=0 more=$1
    shift
    timeout "$((${UMF_GPU_BENCH_TIMEOUT:-300} + more))" "$bench" --driver "$driver" "$@" || status=$?
    if [ $bench_status -eq 77 ] || [ $bench_status -eq 0 ]; then
        bench_status=$status
    fi
}

# Bars that were missed are printed, and are no failure.
vaults() {
    local program service
    for program in "$build"/{benchmark/,}umf-bench-vault; do
        [ ! -x "$program" ] || break
    done
    for service in "$build/umfd/umfd" "$build/umfd"; do
        [ ! -f "$service" ] || break
    done
    [ ! -x "$program" ] || timeout "${UMF_GPU_BENCH_TIMEOUT:-300}" "$program" "$service" || true
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
        run_bench 0 --only pair "${torch_times[@]}"
        run_bench 0 --only queue "${torch_times[@]}"
        run_bench 0 --only copy --folder "$folder"
        run_bench 0 --only ipc
        vaults
        for recorded in "$traces"/*.trace; do
            run_bench 0 --replay "$recorded"
        done
        run_bench $((20 * (${sleep_gib//,/+}))) --only sleep --sleep "$sleep_gib" --folder "$folder"
    fi
fi

python_status=77
if [ -n "$with_python" ]; then
    python_environment=()
    if [ -n "$software" ]; then
        fakes=${driver%/*}
        python_environment=(UMF_TEST_GPU=soft LD_LIBRARY_PATH="$fakes:$LD_LIBRARY_PATH" LD_PRELOAD="$fakes/libsoft_cudart.so")
    fi
    python_status=0
    env "${python_environment[@]}" bash "$root/python/tests/gpu.sh" "$build/python" python3 vllm preload process torch ||
        python_status=$?
fi

echo
printf '%s%s' "$summary" "$sanitized"
echo "gpu: $passed passed, $failed failed, $skipped skipped; benchmark: status $bench_status; Python: status $python_status"
if [ "$failed" -gt 0 ] || { [ $python_status -ne 0 ] && [ $python_status -ne 77 ]; } ||
    { [ $bench_status -ne 0 ] && [ $bench_status -ne 77 ]; }; then
    exit 1
fi
if [ -n "$with_tests" ] && [ "$passed" -eq 0 ]; then
    exit 77
fi
