#!/usr/bin/env bash
# Tests and measures the Python package on a machine with GPUs, torch and, as it goes, no network.
#
#   python/tests/gpu.sh <wheel | folder of the built package | -> [python] [part...]
#
# Parts, in this order, with the seconds that each may take: package 60, vllm 120, preload 60, process 60, torch 480,
# figures 300, table 560; default: all but table. UMF_TEST_SECONDS limits all of them together: the rest is the limit of the next.
# A wheel (pip wheel --no-deps -w build/wheel .) is unpacked for the run, "-" takes an installed one; a folder is that of
# a build with UMF_BUILD_PYTHON=ON on this machine, build/release/python. Python (default: python3) has torch, and CuPy,
# Numba and NumPy as it goes. pytest is its own, or lies in build/deps/pytest (pip install --target build/deps/pytest
# pytest), which is small enough to be carried. Without pytest the tests are left out and the figures are still made.
#
# Ends with a summary, a line for each part, and with 0 if all that was run passed. UMF_TEST_GPU=soft is for a run on the
# software runtime, which the caller preloads; UMF_TEST_GIB is how much sleeps in the figures.
set -euo pipefail

cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
built=$1
python=${2:-python3}
shift $(($# > 1 ? 2 : 1))
chosen=${*:-package vllm preload process torch figures}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
if [[ $built == *.whl ]]; then
    "$python" -m zipfile -e "$built" "$logs/wheel"
    built=$logs/wheel
fi
[ "$built" = - ] || export PYTHONPATH=$(cd "$built" && pwd)${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH=${PYTHONPATH:-}:$PWD/build/deps/pytest PYTHONDONTWRITEBYTECODE=1 UMF_TEST_GPU=${UMF_TEST_GPU:-real}
package=$("$python" -c 'import umf, os; print(os.path.dirname(umf.__file__))')
"$python" -c 'import torch; print("torch", torch.__version__, torch.version.cuda, torch.cuda.get_device_name())'

status=0
summary=()
# part <name> <seconds> <command>...
part() {
    local name=$1 limit=$2 result=0 log=$logs/$1 reason left=$((${UMF_TEST_SECONDS:-3600} - SECONDS))
    [[ " $chosen " == *" $name "* ]] || return 0
    echo "== $name"
    [ $limit -le $left ] || limit=$((left > 1 ? left : 1))
    timeout --kill-after=10 $limit "${@:3}" 2>&1 | tee "$log" || result=$?
    reason=$(grep -E '^(=+ )?[0-9]+ (passed|failed|skipped|error)|^figures: ' "$log" | tail -n 1) || true
    [ $result -ne 124 ] && [ $result -ne 137 ] || reason="not done after $limit s: $(tail -n 1 "$log" | cut -c 1-100)"
    [ $result -eq 0 ] && result=passed || { status=1 result=FAILED; }
    summary+=("$(printf '%-8s %-7s %s' "$name" "$result" "${reason:-no summary}")")
    summary+=("$(sed -nE 's/^(SKIPPED|FAILED|ERROR) /    &/p' "$log" | cut -c 1-200 | uniq)")
}

tests=("$python" -m pytest -q -rsfE --durations=5)
if "$python" -c 'import pytest' 2>/dev/null; then
    part package 60 "${tests[@]}" python/tests --ignore=python/tests/gpu
    gpu=python/tests/gpu
    part vllm 120 env UMF_TEST_HOOK_MODE=torch "${tests[@]}" $gpu/test_{captures,cumem_threads,cumem}.py
    part preload 60 env UMF_TEST_HOOK_MODE=preload \
        LD_PRELOAD="$package/torch_memory_saver_hook_mode_preload.abi3.so${LD_PRELOAD:+:$LD_PRELOAD}" \
        "${tests[@]}" $gpu/test_memory_saver.py
    part process 60 env UMF_TEST_HOOK_MODE=process "${tests[@]}" $gpu/test_torch_process.py
    part torch 480 env UMF_TEST_HOOK_MODE=torch "${tests[@]}" $gpu --ignore-glob='*test_c[au]*'
else
    summary+=("tests: left out, $python has no pytest: carry build/deps/pytest")
fi
part figures 300 "$python" python/benchmark/figures.py --seconds 230 --gib "${UMF_TEST_GIB:-32}"
part table 560 "$python" python/benchmark/figures.py --seconds 500 --gib "${UMF_TEST_GIB:-8,32}" table
echo "== summary"
printf '%s\n' "${summary[@]}" | sed '/^$/d'
exit $status
