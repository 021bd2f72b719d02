#!/usr/bin/env bash
# Runs tests of the Python package: run.sh <python> <folder of the built package> package|torch|preload|process
#
# package has no PyTorch; the others run it on the software runtime in <folder>/../test/fakes, or on a GPU
# where UMF_TEST_GPU=real. The packages that they need are in build/deps (scripts/install-deps.sh fetches them) or
# anywhere that Python looks. Skips, with the reason, where they are not.
set -euo pipefail

python=$1
built=$(cd "$2" && pwd)
part=$3
tests=$(cd "$(dirname "$0")" && pwd)
deps=$tests/../../build/deps

skip() {
    echo "python.$part: skipped, $1"
    exit 77
}

export PYTHONPATH=$built:$deps/python:$deps/pyright PYTHONDONTWRITEBYTECODE=1
"$python" -c 'import pytest' 2>/dev/null ||
    skip "$python has no pytest (scripts/install-deps.sh fetches it into build/deps/python)"

# -X dev: the interpreter checks its own memory and reports files left open.
[ "$part" != package ] || exec "$python" -X dev -W error::ResourceWarning -m pytest -q -rs "$tests" --ignore="$tests/gpu"

export PYTHONPATH=$PYTHONPATH:$deps/torch
"$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' ||
    skip "$python has no PyTorch (scripts/install-deps.sh fetches it where there are 12 GB of room)"

if [ "${UMF_TEST_GPU:-}" != real ]; then
    fakes=$(cd "$built/../test/fakes" && pwd)
    [ -e "$fakes/libsoft_cudart.so" ] || skip "the headers of the CUDA runtime were not found"
    export LD_LIBRARY_PATH=$fakes${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    preload=$fakes/libsoft_cudart.so
    export OMP_NUM_THREADS=1 # kernels are the CPU's: more threads would spin while other tests have the processors
fi
export UMF_TEST_HOOK_MODE=$part
case $part in
torch)
    LD_PRELOAD=${preload:-} exec "$python" -m pytest -q "$tests/gpu"
    ;;
process)
    LD_PRELOAD=${preload:-} UMF_TEST_ARENA=no "$python" -m pytest -q "$tests/gpu/test_torch_process.py"
    LD_PRELOAD=${preload:-} exec "$python" -m pytest -q "$tests/gpu/test_torch_process.py"
    ;;
preload)
    hook=$built/umf/torch_memory_saver_hook_mode_preload.abi3.so
    LD_PRELOAD=$hook${preload:+:$preload} exec "$python" -m pytest -q "$tests/gpu/test_memory_saver.py"
    ;;
esac
