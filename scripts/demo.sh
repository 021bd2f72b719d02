#!/usr/bin/env bash
# Builds libumf in Release and shows its main job. Installs what is missing first.
#
# Ends with a summary; the exit status is 0 only if every step worked.
set -euo pipefail

cd "$(dirname "$0")/.."
bin=build/release/examples

done_steps=()
failed_steps=()

# step <what it shows> <command>...
step() {
    local title=$1
    shift
    printf '\n== %s\n' "$title"
    if "$@"; then
        done_steps+=("$title")
    else
        echo "   ... failed with status $?"
        failed_steps+=("$title")
    fi
}

scripts/install-deps.sh --minimal

echo "== building Release"
cmake --preset release --log-level=WARNING
cmake --build --preset release --target umf umf_examples umfctl

step "the providers and pools of this machine, and why others are missing" "$bin/umf_example_kinds"
step "what libumf finds on this machine, limits included" build/release/tools/umfctl info
step "memory from a provider, then from a pool, freed by its pointer alone" "$bin/umf_example_basic"
step "a provider written by the application" "$bin/umf_example_custom_provider"
step "a provider from a plugin, created from text" \
    "$bin/plugin/umf_example_plugin" "$bin/plugin/umf_example_file_plugin.so"
step "several pools side by side, every pointer finds its own" "$bin/umf_example_multi_pool"
step "two processes share the memory of a pool" \
    examples/run_ipc.sh "$bin/umf_example_ipc_producer" "$bin/umf_example_ipc_consumer"

# NumPy in two processes over one memory, and a pool that sleeps, from a wheel in an environment of its own.
python_demo() {
    "$1/bin/pip" wheel -q --no-deps --no-build-isolation -w "$1" . &&
        "$1/bin/pip" install -q "$1"/libumf-*.whl && "$1/bin/python" examples/python/demo.py
}
venv=$(mktemp -d)
if python3 -m venv "$venv" >/dev/null 2>&1 && "$venv/bin/pip" install -q scikit-build-core numpy >/dev/null 2>&1; then
    step "the Python package: NumPy over memory of two processes, a pool that sleeps" python_demo "$venv"
else
    printf '\n== the Python package: left out, as python3 has no venv (Debian: python3-venv) or no registry is in reach\n'
fi
rm -rf "$venv"

printf '\n== summary\n'
[ ${#done_steps[@]} -eq 0 ] || printf 'works:   %s\n' "${done_steps[@]}"
[ ${#failed_steps[@]} -eq 0 ] || printf 'FAILED:  %s\n' "${failed_steps[@]}"
if [ ${#failed_steps[@]} -gt 0 ]; then
    echo "${#failed_steps[@]} of $((${#done_steps[@]} + ${#failed_steps[@]})) steps failed; their output above says why."
    exit 1
fi
echo "All ${#done_steps[@]} steps worked. The library is build/release/libumf.so.1, the headers are include/."
