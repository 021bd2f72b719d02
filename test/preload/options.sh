#!/usr/bin/env bash
# What UMF_PROXY does to a whole process: options.sh <libumf_proxy.so>
set -euo pipefail

library=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/umf-options.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "UMF_PROXY=\"$1\": $2"
    failed=1
}

# The exit status of a process with the library; its stderr is in $work/err.
with() { # <UMF_PROXY> <command...>
    local options=$1
    shift
    UMF_PROXY=$options LD_PRELOAD=$library "$@" 2>"$work/err"
}

for options in size.threshold=x size.threshold= "page.disposition=shared-fd;size.threshold=-1" \
    '"size.threshold= 12"'; do
    ! with "$options" /bin/true || fail "$options" "is no number, but the process went on"
    grep -q 'size.threshold needs a number' "$work/err" || fail "$options" "gave no message"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$options" "gave more than one line"
done

for options in "" ";" '"size.threshold=64"' "size.threshold=64kilobytes" \
    "size.threshold=99999999999999999999999999" "$(printf 'size.threshold=1;%.0s' $(seq 1 2000))" \
    "page.disposition=shared-fd;size.threshold=10"; do
    with "$options" /bin/true || fail "$options" "ended the process"
    [ ! -s "$work/err" ] || fail "$options" "said something about settings that are known"
done

# What a person typed is not ignored in silence, whatever the log.
for options in "size.treshold=64" "page.disposition=private;what;ever" "$(printf 'x%.0s' $(seq 1 20000))" \
    $'\x01\xff\n%s%n'; do
    with "$options" /bin/true || fail "$options" "ended the process"
    grep -q '^umf_proxy: UMF_PROXY: ignored ".*known are page.disposition=shared-fd' "$work/err" ||
        fail "$options" "gave no message: $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$options" "gave more than one line"
done

# One warning line for all that is unknown.
UMF_LOG="output:stderr;level:warning;pid:yes;timestamp:yes" with "foo;bar;size.threshold=5" /bin/true
grep -qE '^\[[-0-9]{10}T[:0-9]{8} PID:[0-9]+ +TID:[0-9]+ +WARN  UMF\] umf_proxy: .*"foo" and more' \
    "$work/err" || fail "foo;bar" "was not reported: $(cat "$work/err")"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "foo;bar" "gave more than one line"
UMF_LOG="output:stderr" with "foo" /bin/true
grep -q '^umf_proxy: UMF_PROXY: ignored "foo"' "$work/err" ||
    fail "foo" "was not reported: $(cat "$work/err")"

# Names go with their process, those of killed ones with the next that comes.
with page.disposition=shared-shm sh -c 'echo $$; exec ls /dev/shm' >"$work/out"
pid=$(head -n 1 "$work/out")
grep -qx "umf_proxy_lib_shm_pid_$pid" "$work/out" ||
    fail "page.disposition=shared-shm" "there is no object of that name"
[ ! -e "/dev/shm/umf_proxy_lib_shm_pid_$pid" ] || fail "page.disposition=shared-shm" "left its name"
# Any other process that makes named memory at this moment may sweep it too: then once more.
for _ in $(seq 1 20); do
    pid=$(with page.disposition=shared-shm sh -c 'echo $$; kill -9 $$') || true
    left=/dev/shm/umf_proxy_lib_shm_pid_$pid
    [ ! -e "$left" ] || break
done
[ -e "$left" ] || fail "page.disposition=shared-shm" "no name is left"
# Its lock goes with the last trace of the process, which a process that reads /proc can keep a while.
for _ in $(seq 1 100); do
    with page.disposition=shared-shm /bin/true
    [ -e "$left" ] || break
    sleep 0.05
done
[ ! -e "$left" ] || fail "page.disposition=shared-shm" "swept nothing"

# However little address space there is, the program runs, if need be without our heap, or with the
# C library's beside it. What fits differs from run to run.
for kib in 36000 38000 38000 40000 40000 40000 40000 42000 42000 42000 45000 50000 60000 80000 \
    100000 130000 200000 400000 1000000 5000000; do
    (
        ulimit -v $kib
        with "page.disposition=shared-fd" /bin/ls / >/dev/null
    ) || fail "page.disposition=shared-fd" "a process with $kib KiB of addresses failed: $(cat "$work/err")"
done

exit $failed
