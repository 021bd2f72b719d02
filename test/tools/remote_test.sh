#!/usr/bin/env bash
# umfctl remote: remote_test.sh <umfctl> <sample> <work folder>
set -euo pipefail

umfctl=$1
sample=$2
work=$3
rm -rf "$work"
mkdir -p "$work"

fail() {
    echo "FAILED: $*"
    cat "$work/out" "$work/err"
    exit 1
}
expect_status() {
    local wanted=$1 status=0
    shift
    "$@" >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq "$wanted" ] || fail "$* ended with $status, not $wanted"
}
expect_in() {
    grep -qE -- "$2" "$work/$1" || fail "no '$2' in $1"
}

expect_status 0 "$umfctl" remote --help
expect_status 2 "$umfctl" remote
expect_status 2 "$umfctl" remote fly
expect_status 2 "$umfctl" remote ls more
expect_status 2 "$umfctl" remote ls --devices lo
expect_status 2 "$umfctl" remote probe --devices

mkdir "$work/broken"
: >"$work/broken/libucp.so.0"
expect_status 1 env LD_LIBRARY_PATH="$work/broken" "$umfctl" remote probe
expect_in out 'ucx.*(UCX is not here|without remote memory)'

# It answers in both cases: where UCX is, and where it is not.
status=0
"$umfctl" remote probe >"$work/out" 2>"$work/err" || status=$?
expect_in out 'ucx.*UCX'
if [ $status -ne 0 ]; then
    expect_in out 'install libucx0|without remote memory'
    echo "tools.remote: skipped, $(grep ucx "$work/out")"
    exit 77
fi
expect_in out 'context .*loopback device'
expect_status 1 "$umfctl" remote probe --devices eth0
expect_in out 'key_file'
head -c 32 /dev/urandom >"$work/key"
chmod 644 "$work/key"
expect_status 1 "$umfctl" remote probe --key-file "$work/key"

coproc owner { exec "$sample"; }
pid=$owner_PID
trap 'kill $pid 2>/dev/null || true' EXIT
read -r -u "${owner[0]}" line child
[ "$line" = ready ] || fail "the owner says $line"
expect_status 0 "$umfctl" remote ls
expect_in out "^  $pid +[^ ]+ +lo: 2 ranges, 3 MiB, 1 peers$"
! grep -q "^  $child " "$work/out" || fail "a child has the context of its parent"
expect_in out 'range [0-9]+ +1 MiB  get$'
expect_in out 'range [0-9]+ +2 MiB  get put$'
[ "$(wc -L <"$work/out")" -le 80 ] || fail "ls is wider than 80 columns"
if command -v python3 >/dev/null; then
    expect_status 0 "$umfctl" remote ls --json
    python3 - "$work/out" "$pid" <<'END' || fail "JSON is not as it should be"
import json, sys
report = json.load(open(sys.argv[1]))
(mine,) = [one for one in report["contexts"] if one["process"] == int(sys.argv[2])]
assert mine["bytes"] == 3 << 20 and mine["ranges"] == 2 and mine["peers"] == 1, mine
assert sorted(mine["listed"]) == ["1048576 get", "2097152 get put"], mine
END
fi

printf 'w' >&"${owner[1]}"
read -r -u "${owner[0]}" line
expect_status 0 "$umfctl" remote ls
expect_in out "^  $pid +[^ ]+ +lo: 1 ranges, 1 MiB, 1 peers$"
printf 'x' >&"${owner[1]}"
wait $pid
expect_status 0 "$umfctl" remote ls
! grep -q "^  $pid " "$work/out" || fail "a process that has ended is listed"

# Another process may send anything: entries that are no page are left out, and nothing reaches the terminal.
if command -v python3 >/dev/null; then
    coproc liar { exec python3 -c '
import os, sys
for text in (b"umf-remote 1\nprocess %d\ndevices \33[31m\nkey no\npeers 1\nmore 0\nend\n" % os.getpid(), b"umf-remote 1\nend\n", b"\n" * 4096,
             b"umf-remote 1\nprocess 1\nrange 1 1\n", b"x" * 4096, b"", b"umf-remote 1\n" + b"range 1 18446744073709551615 9\n" * 131):
    fd = os.memfd_create("umf-remote", 0)
    os.write(fd, text[:4096].ljust(4096 if text else 0, b"\0"))
fd = os.memfd_create("umf-remote", 0)
many = b"umf-remote 1\nprocess %d\ndevices many\nkey no\npeers 1\n" % os.getpid() + b"range 1 1 1\n" * 320 + b"end\n"
os.write(fd, many.ljust(4096, b"\0"))
print("ready", flush=True)
sys.stdin.read(1)'; }
    read -r -u "${liar[0]}" line
    expect_status 0 "$umfctl" remote ls
    expect_in out 'many: 320 ranges'
    expect_in out '31m: 0 ranges'
    ! grep -q "$(printf '\033')" "$work/out" || fail "a page controls the terminal"
    expect_status 0 "$umfctl" remote ls --json
    python3 -m json.tool <"$work/out" >/dev/null || fail "no JSON"
    printf 'x' >&"${liar[1]}"
fi
