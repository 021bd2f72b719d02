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

printf '\n== summary\n'
[ ${#done_steps[@]} -eq 0 ] || printf 'works:   %s\n' "${done_steps[@]}"
[ ${#failed_steps[@]} -eq 0 ] || printf 'FAILED:  %s\n' "${failed_steps[@]}"
if [ ${#failed_steps[@]} -gt 0 ]; then
    echo "${#failed_steps[@]} of $((${#done_steps[@]} + ${#failed_steps[@]})) steps failed; their output above says why."
    exit 1
fi
echo "All ${#done_steps[@]} steps worked. The library is build/release/libumf.so.1, the headers are include/."
