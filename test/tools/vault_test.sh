#!/usr/bin/env bash
# umfctl vault over a real service: vault_test.sh <umfctl> <umfd> <work folder> <folder of the units> <claim_sample>
set -euo pipefail

umfctl=$1
export UMF_UMFD=$2
work=$3
units=$4
claim_sample=$5
rm -rf "$work"
mkdir -p "$work"
place=$(mktemp -d /tmp/umf_vault_tool_XXXXXX)
export UMF_VAULT_DIR=$place
trap '"$umfctl" vault stop --drop >/dev/null 2>&1 || true; rm -rf "$place"' EXIT

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

expect_status 0 "$umfctl" vault --help
expect_status 2 "$umfctl" vault
expect_status 2 "$umfctl" vault fly
expect_status 2 "$umfctl" vault put model
expect_status 2 "$umfctl" vault ls --nothing

# A look starts nothing.
expect_status 0 "$umfctl" vault ls
expect_in out 'no service runs'
expect_status 1 "$umfctl" vault stat model
[ ! -e "$place/vault" ] || fail "a service was started"

printf 'one' >"$work/a.txt"
head -c 100000 /dev/zero >"$work/b.bin"
expect_status 0 "$umfctl" vault put model "$work/a.txt" "$work/b.bin"
expect_in out 'generation +1$'
expect_status 1 "$umfctl" vault put model "$work/missing"
expect_in err 'missing'
expect_status 0 "$umfctl" vault ls
expect_in out 'model +generation 1 of 1,'
[ "$(wc -L <"$work/out")" -le 80 ] || fail "ls is wider than 80 columns"
expect_status 0 "$umfctl" vault stat model
expect_in out '3 bytes +a.txt$'
expect_in out '97.7 KiB +b.bin$'

expect_status 0 "$umfctl" vault verify model
expect_in out 'entries +2$'
expect_in out 'wrong +0$'
expect_status 0 "$umfctl" vault verify model@1
expect_status 1 "$umfctl" vault verify model@999
expect_in err 'no such generation'
expect_status 2 "$umfctl" vault verify

# Memory of the host is not evicted.
expect_status 0 "$umfctl" vault snapshot model@1
expect_status 1 "$umfctl" vault evict model
expect_in err 'no memory of a device has a copy'
expect_status 0 "$umfctl" vault snapshot model@1 "$work/snapshot"
expect_status 0 "$umfctl" vault verify "file:$work/snapshot"
expect_in out 'entries +2$'
expect_status 1 "$umfctl" vault snapshot model@1 "$work/a.txt"
expect_status 1 "$umfctl" vault evict model@999
expect_in err 'no such generation'

# A folder needs no service.
expect_status 0 env UMF_UMFD=/missing UMF_VAULT_DIR="$work/missing" "$umfctl" vault put "file:$work/folder" "$work/a.txt"
expect_in out 'generation +1$'
expect_status 0 "$umfctl" vault stat "file:$work/folder"
expect_in out '3 bytes +a.txt$'
expect_status 0 "$umfctl" vault verify "file:$work/folder@1"
expect_in out 'entries +1$'
expect_status 0 "$umfctl" vault put "file:$work/folder" "$work/a.txt"
[ -e "$work/folder/1.vault" ] && [ -e "$work/folder/2.vault" ] || fail "put has dropped a generation that was not named"
expect_status 0 "$umfctl" vault drop "file:$work/folder@1"
[ ! -e "$work/folder/1.vault" ] || fail "the generation is still there"
expect_status 1 "$umfctl" vault drop "file:$work/folder" --draft
expect_in err 'ends with its process'

# A generation is stored in a folder, and comes back.
expect_status 0 "$umfctl" vault copy model "file:$work/stored"
expect_in out 'generation +1$'
expect_status 0 "$umfctl" vault copy "file:$work/stored@1" again
expect_status 0 "$umfctl" vault verify again
expect_in out 'entries +2$'
expect_status 0 "$umfctl" vault drop again
expect_status 1 "$umfctl" vault copy nothing "file:$work/stored"
expect_in err 'no such generation'
expect_status 2 "$umfctl" vault copy model

# Names of others do not reach the terminal as they are.
expect_status 0 "$umfctl" vault put "$(printf 'evil\033[31m\n')" "$work/a.txt"
expect_status 0 "$umfctl" vault ls
! grep -q "$(printf '\033')" "$work/out" || fail "a name controls the terminal"
if command -v python3 >/dev/null; then
    expect_status 0 "$umfctl" vault stat model --json
    python3 - "$work/out" <<'END' || fail "JSON is not as it should be"
import json, sys
report = json.load(open(sys.argv[1]))
assert [entry for entry in report["entries"] if entry["key"] == "a.txt" and entry["bytes"] > 0], report
assert [vault["name"] for vault in report["vaults"]] == ["model"], report
END
fi

# Claims are listed without a holder, too.
expect_status 0 "$claim_sample" model kv
expect_status 0 "$claim_sample" model kv
expect_status 0 "$umfctl" vault ls
expect_in out '1 claim$'
expect_status 0 "$umfctl" vault stat model
expect_in out 'KiB  epoch 2, not held  kv$'
expect_status 0 "$umfctl" vault stat --json model
expect_in out '"epoch": 2'

# An event ends the watch.
"$umfctl" vault watch model -n 1 >"$work/watched" 2>&1 &
watcher=$!
for _ in $(seq 1 200); do
    expect_status 0 "$umfctl" vault put model "$work/b.bin"
    if ! kill -0 $watcher 2>/dev/null; then break; fi
done
wait $watcher
grep -qE '^(committed|dropped|reader_ended|unclaimed) generation [0-9]+$' "$work/watched" || fail "watch saw $(cat "$work/watched")"

expect_status 1 "$umfctl" vault drop model@999
expect_in err 'no such generation'
expect_status 0 "$umfctl" vault drop model --draft
expect_status 1 "$umfctl" vault stop
expect_status 0 "$umfctl" vault drop model
expect_status 0 "$umfctl" vault ls
! grep -q model "$work/out" || fail "model is still there"
expect_status 0 "$umfctl" vault stop --drop
for _ in $(seq 1 1200); do
    [ -e "$place/vault" ] || break
    sleep 0.05
done
[ ! -e "$place/vault" ] || fail "the service did not end"

# The units of systemd.
if command -v systemd-analyze >/dev/null; then
    mkdir -p "$work/units" "$work/run"
    sed "s,@CMAKE_INSTALL_FULL_BINDIR@,$(dirname "$UMF_UMFD"),g" "$units/umfd.service.in" >"$work/units/umfd.service"
    cp "$units/umfd.socket" "$work/units"
    expect_status 0 env XDG_RUNTIME_DIR="$work/run" systemd-analyze verify --user --man=no \
        "$work/units/umfd.service" "$work/units/umfd.socket"
    ! grep -q umfd "$work/err" || fail "systemd-analyze has remarks about the units"
else
    echo "no systemd-analyze: the units are not verified"
fi
echo "umfctl vault works"
