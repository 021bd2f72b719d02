#!/usr/bin/env bash
# Builds libumf and runs its tests. Installs what is missing first.
#
#   scripts/test.sh           three builds (release by gcc, address and undefined sanitizers by gcc,
#                             thread sanitizer by clang), the fuzz targets and, where its compiler and
#                             qemu-user are, a build for aarch64, then one test run over all of them;
#                             random tests make a tenth of their rounds: half an hour on two cores
#   scripts/test.sh --quick   the debug build with its unit and conformance tests and the checks, for
#                             the inner loop: 3 minutes
#   scripts/test.sh --long    as without an option, but all rounds, also under sanitizers; ten minutes
#                             for each fuzz target and each soak test: hours
#
# Prints how long each part took and the tests that took longest. Ends as ctest did, with one
# exception: if one or two of the tests failed, and each of these then passes three times with nothing
# beside it, the run has passed. Their names are printed last, and their first output stays in the
# log: such a failure is a fault to be found, in the test or in the library.
set -euo pipefail

cd "$(dirname "$0")/.."

long=OFF some=()
case ${1:-} in
"") presets=(release asan tsan fuzz) ;;
--long) presets=(release asan tsan fuzz) long=ON ;;
--quick) presets=(debug) some=(-L '^(unit|conformance|check)$') ;;
*)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac

times=()
# part <name> <command>...
part() {
    local start=$SECONDS status=0
    echo "== $1"
    "${@:2}" || status=$?
    times+=("$(printf '%6d s  %s' $((SECONDS - start)) "$1")")
    return $status
}

build() {
    local target=()
    [ "$1" != debug ] || target=(--target umf_quick)
    cmake --preset "$1" --log-level=WARNING -DUMF_TEST_LONG=$long &&
        cmake --build --preset "$1" ${target[@]+"${target[@]}"}
}

if [ "${1:-}" = --quick ]; then
    part "what is needed" scripts/install-deps.sh --minimal
else
    part "what is needed" scripts/install-deps.sh
fi

# Prints what a build for aarch64 and its tests need and is not here.
lacks_for_aarch64() {
    local tool
    for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64; do
        command -v "$tool" >/dev/null || printf ' %s' "$tool"
    done
    [ -e /usr/src/googletest/CMakeLists.txt ] || printf ' /usr/src/googletest'
}

if [ "${1:-}" != --quick ]; then
    missing=$(lacks_for_aarch64)
    if [ "$(uname -m)" = aarch64 ]; then
        echo "== aarch64: this machine is one, so no build for another"
    elif [ -n "$missing" ]; then
        echo "== aarch64: left out, as there is no$missing"
    else
        presets+=(aarch64)
    fi
fi
for preset in "${presets[@]}"; do
    part "building $preset" build "$preset"
done

# One ctest over all builds, so that there is one result of everything.
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

# Tests also wait, for each other's processes and for time to pass: half as many again keep all processors busy.
run_tests() {
    ${wrapper[@]+"${wrapper[@]}"} ctest --test-dir build/all --output-on-failure \
        --no-tests=error --no-label-summary ${some[@]+"${some[@]}"} -j $((($(nproc) * 3 + 1) / 2)) | tee build/all/log
}

# Runs the tests that failed again, alone.
rerun_tests() {
    cp build/all/Testing/Temporary/LastTest.log build/all/first.log
    ${wrapper[@]+"${wrapper[@]}"} ctest --test-dir build/all --output-on-failure --no-label-summary \
        --rerun-failed --repeat until-fail:3 -j 1
}

status=0 unsteady=()
failures=build/all/Testing/Temporary/LastTestsFailed.log
rm -f $failures
part "testing ${presets[*]}" run_tests || status=$?
if [ $status -ne 0 ] && [ -s $failures ]; then
    mapfile -t unsteady < <(sed 's/^[0-9]*://' $failures)
    if [ ${#unsteady[@]} -le 2 ] && part "once more: ${unsteady[*]}" rerun_tests; then
        status=0
    else
        unsteady=()
    fi
fi

# The core stands alone: without src/ext, the same conformance and unit tests.
test_core() {
    build core && ctest --preset core -L '^(unit|conformance)$' -j "$(nproc)"
}
[ $long = OFF ] || part "building and testing core" test_core || status=$?

echo "== the slowest tests"
sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9]+\.[0-9]+) sec.*/\2 s  \1/p' build/all/log |
    sort -rn | sed -n 1,15p # all is read: a pipe that breaks would end the script
echo "== times"
printf '%s\n' "${times[@]}"
if [ ${#unsteady[@]} -gt 0 ]; then
    echo "== failed once and passed three times alone: ${unsteady[*]} (build/all/first.log)"
fi
[ $status -eq 0 ] && echo "== passed" || echo "== FAILED: build/all/Testing/Temporary/LastTest.log"
exit $status
