#!/usr/bin/env bash
# Runs tests of the Python package: run.sh <python> <folder of the built package> package|torch
#
# The packages that they need are in build/deps (scripts/install-deps.sh fetches them) or anywhere that Python
# looks. Skips, with the reason, where they are not.
set -euo pipefail

python=$1
built=$2
part=$3
tests=$(cd "$(dirname "$0")" && pwd)
deps=$tests/../../build/deps

skip() {
    echo "python.$part: skipped, $1"
    exit 77
}

export PYTHONPATH=$built:$deps/python PYTHONDONTWRITEBYTECODE=1
"$python" -c 'import pytest' 2>/dev/null ||
    skip "$python has no pytest (scripts/install-deps.sh fetches it into build/deps/python)"

case $part in
package) exec "$python" -m pytest -q "$tests" --ignore="$tests/torch" ;;
esac
