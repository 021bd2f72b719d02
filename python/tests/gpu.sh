#!/usr/bin/env bash
# Tests and measures the Python package on a machine with GPUs, torch and, as it goes, no network.
#
#   python/tests/gpu.sh <wheel | folder of the built package | -> [python]
#
# A wheel (pip wheel --no-deps -w build/wheel .) is unpacked for the run, "-" takes an installed one; a folder is that of
# a build with UMF_BUILD_PYTHON=ON on this machine, build/release/python. Python (default: python3) has torch. pytest is
# its own, or lies in build/deps/pytest (pip install --target build/deps/pytest pytest), which is small enough to be
# carried. Without pytest the tests are left out and the figures are still made. Ends with 0 if all that was run passed.
set -euo pipefail

cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
built=$1
python=${2:-python3}
if [[ $built == *.whl ]]; then
    unpacked=$(mktemp -d)
    trap 'rm -rf "$unpacked"' EXIT
    "$python" -m zipfile -e "$built" "$unpacked"
    built=$unpacked
fi
[ "$built" = - ] || export PYTHONPATH=$(cd "$built" && pwd)${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH=${PYTHONPATH:-}:$PWD/build/deps/pytest PYTHONDONTWRITEBYTECODE=1 UMF_TEST_GPU=real
package=$("$python" -c 'import umf, os; print(os.path.dirname(umf.__file__))')

status=0
run() {
    echo "== $1"
    "${@:2}" || status=1
}

"$python" -c 'import torch; print("torch", torch.__version__, torch.version.cuda, torch.cuda.get_device_name())'
if "$python" -c 'import pytest' 2>/dev/null; then
    run "package" "$python" -m pytest -q python/tests --ignore=python/tests/gpu
    UMF_TEST_HOOK_MODE=torch run "hook mode torch, umf.torch, umf.vllm" "$python" -m pytest -q python/tests/gpu
    UMF_TEST_HOOK_MODE=preload LD_PRELOAD=$package/torch_memory_saver_hook_mode_preload.abi3.so \
        run "hook mode preload" "$python" -m pytest -q python/tests/gpu/test_memory_saver.py
else
    echo "gpu.sh: $python has no pytest, so the tests are left out"
fi
run "figures" "$python" python/tests/figures.py
exit $status
