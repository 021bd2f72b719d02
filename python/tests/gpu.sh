#!/usr/bin/env bash
# Tests and measures the Python package on a machine with GPUs, torch and, as it goes, no network.
#
#   python/tests/gpu.sh [folder of the built package] [python]
#
# The folder (default: build/release/python) comes from a build with UMF_BUILD_PYTHON=ON and tests; "-" takes an
# installed wheel. Python (default: python3) has torch; pytest is taken from build/deps/python or from it. Without
# pytest the tests are left out and the figures are still made. Ends with 0 if all that was run passed.
set -euo pipefail

cd "$(dirname "$0")/../.."
built=${1:-build/release/python}
python=${2:-python3}
[ "$built" = - ] || built=$(cd "$built" && pwd)

package=$("$python" -c 'import umf, os; print(os.path.dirname(umf.__file__))' 2>/dev/null || true)
if [ "$built" != - ]; then
    package=$built/umf
    export PYTHONPATH=$built${PYTHONPATH:+:$PYTHONPATH}
fi
[ -n "$package" ] || { echo "gpu.sh: umf is neither built nor installed"; exit 1; }
export PYTHONPATH=$PWD/build/deps/python${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 UMF_TEST_GPU=real

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
