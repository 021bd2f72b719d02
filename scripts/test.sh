#!/usr/bin/env bash
# Builds libumf and runs its tests. Installs what is missing first.
#
#   scripts/test.sh           three builds (release by gcc, address and undefined sanitizers by gcc,
#                             thread sanitizer by clang) and the fuzz targets, then one test run over
#                             all of them
#   scripts/test.sh --quick   the debug build and its tests, for the inner loop
set -euo pipefail

cd "$(dirname "$0")/.."

case ${1:-} in
"") presets=(release asan tsan fuzz) ;;
--quick) presets=(debug) ;;
*)
    echo "usage: scripts/test.sh [--quick]" >&2
    exit 2
    ;;
esac

if [ ${1:-full} = full ]; then
    scripts/install-deps.sh
else
    scripts/install-deps.sh --minimal
fi

for preset in "${presets[@]}"; do
    echo "== building $preset"
    cmake --preset "$preset" --log-level=WARNING
    cmake --build --preset "$preset"
done

# One ctest over all builds, so that its last lines are the result of everything.
mkdir -p build/all
for preset in "${presets[@]}"; do
    case $preset in
    fuzz) printf 'subdirs("%s")\n' "$PWD/build/fuzz/test/fuzz" ;; # nothing else of it is built
    *) printf 'subdirs("%s")\n' "$PWD/build/$preset" ;;
    esac
done >build/all/CTestTestfile.cmake

# Thread sanitizers of today's distributions cannot start when addresses are spread very widely.
wrapper=()
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ] &&
    setarch "$(uname -m)" -R true 2>/dev/null; then
    wrapper=(setarch "$(uname -m)" -R)
fi

echo "== testing ${presets[*]}"
exec ${wrapper[@]+"${wrapper[@]}"} ctest --test-dir build/all --output-on-failure \
    --no-tests=error --no-label-summary -j "$(nproc)"
