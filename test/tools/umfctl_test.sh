#!/usr/bin/env bash
# Tests umfctl: umfctl_test.sh <umfctl> <folder to work in> <recorded machines> [<a library
# with a defect in it>]
set -euo pipefail

umfctl=$1 work=$2 topologies=$3 broken=${4:-}
completion=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../tools/completion" && pwd)
rm -rf "$work"
mkdir -p "$work/tmp"
export TMPDIR=$work/tmp LC_ALL=C
unset UMF_LOG UMF_CONF UMF_CONF_FILE NO_COLOR

fail() {
    printf 'umfctl_test: %s\n' "$*" >&2
    exit 1
}

note() {
    printf 'umfctl_test: %s\n' "$*"
}

# expect_status <status> <command>...: output is in $work/out and $work/err.
expect_status() {
    local status=0
    "${@:2}" >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq "$1" ] || {
        cat "$work/out" "$work/err" >&2
        fail "status $status, expected $1: ${*:2}"
    }
}

expect_in() { # <file> <pattern>
    grep -Eq -e "$2" "$work/$1" || {
        cat "$work/$1" >&2
        fail "no '$2' in the output above"
    }
}

nothing_is_left() {
    local rest
    rest=$(find "$work/tmp" -mindepth 1)
    [ -z "$rest" ] || fail "left behind: $rest"
}

# --- the command line ---

expect_status 0 "$umfctl" --help
expect_in out '^usage: umfctl'
expect_status 0 "$umfctl" info --help
expect_status 0 "$umfctl" --version
expect_in out '^umfctl [0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9]+)?$'

# --- help of each command, and what shells complete: both know the same options ---

expect_status 2 "$umfctl" help leeks
expect_in err "^The nearest is 'leaks'"
expect_status 2 "$umfctl" info --size 4M
expect_in err "not an option of this command: '--size'"
expect_status 0 "$umfctl" --list
mapfile -t commands <"$work/out"
[ ${#commands[@]} -gt 10 ] || fail "--list has ${#commands[@]} commands"
for command in "${commands[@]}"; do
    case $command in help | --*) continue ;; esac
    expect_status 0 "$umfctl" --list "$command"
    sort -u "$work/out" >"$work/listed"
    expect_status 0 "$umfctl" help "$command"
    cp "$work/out" "$work/help"
    expect_in help "^usage: umfctl $command "
    expect_status 0 "$umfctl" "$command" --help
    cmp -s "$work/out" "$work/help" || fail "'$command --help' and 'help $command' differ"
    while read -r word; do
        [ "$word" = --help ] || expect_in help "(^|[^a-z-])$word([^a-z-]|\$)"
    done <"$work/listed"
    # Words of examples are behind a --, or are those of trace.
    sed '/^Example/,$d' "$work/help" | grep -oE '(^|[ [])--?[a-z]+(-[a-z]+)*' | grep -oE -e '-.*' | sort -u |
        comm -13 "$work/listed" - >"$work/missing"
    [ ! -s "$work/missing" ] || fail "--list $command lacks $(tr '\n' ' ' <"$work/missing")"
done
expect_status 0 "$umfctl" --list nonsense
[ ! -s "$work/out" ] || fail "a command that is not there has words"

completed() { # <words of the command line>...: what bash offers for the last one
    PATH="$(dirname "$umfctl"):$PATH" bash -c '
        . "$1"
        shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _umfctl
        printf "%s\n" "${COMPREPLY[@]}" | sort -u | tr "\n" " "' bash "$completion/umfctl.bash" "$@"
}
[ "$(completed umfctl re)" = "reap record remote " ] || fail "completion of commands: $(completed umfctl re)"
[ "$(completed umfctl help to)" = "top " ] || fail "completion after help"
[ "$(completed umfctl record --s)" = "--seconds --size --stacks " ] || fail "completion of options"
[ "$(completed umfctl vault ver)" = "verify " ] || fail "completion of actions"
[ "$(completed umfctl record --size '')" = " " ] || fail "a number is completed"
[ "$(completed umfctl trace --html "$completion/umfctl.b")" = "$completion/umfctl.bash " ] || fail "completion of files"
[[ " $(completed umfctl top -- bas)" == *" bash "* ]] || fail "completion of programs"
[[ " $(completed umfctl leaks $$)" == *" $$ "* ]] || ! command -v ps >/dev/null || fail "completion of processes"
for shell in zsh:_umfctl fish:umfctl.fish; do
    if command -v ${shell%:*} >/dev/null; then
        ${shell%:*} -n "$completion/${shell#*:}" || fail "${shell#*:} is not understood"
    else
        note "${shell%:*} is not here: its completion is not read"
    fi
done

for line in '' 'nonsense' '--json' 'info --jsn' 'info check' 'check --json extra' '-x info'; do
    # shellcheck disable=SC2086
    expect_status 2 "$umfctl" $line
    expect_in err "^umfctl: "
    expect_in err "umfctl --help"
    [ ! -s "$work/out" ] || fail "'$line' wrote to stdout"
done

# --- settings ---

expect_status 0 "$umfctl" settings
expect_in out '^os$'
expect_in out "^ +visibility +'private'"
expect_in out '^disjoint$'
expect_in out '^ +capacity +4$'
if grep -q '^fixed' "$work/out"; then fail "fixed cannot be made from text"; fi
[ "$(wc -L <"$work/out")" -le 80 ] || fail "settings are wider than 80 columns"
expect_status 0 "$umfctl" settings --json
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; assert "64K" in str(json.load(open(sys.argv[1])))' "$work/out" ||
        fail "settings in JSON are not as they should be"
fi

# --- reap ---

# An object as a process before the last start of the machine would have left it, and a file of
# another program.
if [ -w /dev/shm ]; then
    orphan=/dev/shm/umfctl_test_$$_orphan theirs=/dev/shm/umfctl_test_$$_theirs
    trap 'rm -f "$orphan" "$theirs"' EXIT
    echo theirs >"$theirs"
    # Any other process that makes named memory at this moment may sweep it too: then once more.
    for _ in $(seq 1 20); do
        printf 'MFRHARE2\001\0\0\0\0\0\0\0\001\0\0\0\0\0\0\0\001\0\0\0\001\0\0\0' >"$orphan"
        truncate -s 65536 "$orphan"
        expect_status 0 "$umfctl" reap
        ! grep -qE 'removed +[1-9]' "$work/out" || break
    done
    expect_in out 'removed +[1-9]'
    [ ! -e "$orphan" ] || fail "the orphan is still there"
    [ -e "$theirs" ] || fail "a file of another program is gone"
    expect_status 0 "$umfctl" reap --json
    expect_in out '"removed": ."value": [0-9]'
else
    note "/dev/shm cannot be written: reap is not tested"
fi

# --- bandwidth ---

for line in '--size' '--size 5' '--size 1K' '--size 4X' '--size 0M' '--size 9999999G'; do
    # shellcheck disable=SC2086
    expect_status 2 "$umfctl" bandwidth $line
    expect_in err "^umfctl: --size"
done
expect_status 0 "$umfctl" bandwidth --size 1M
expect_in out '^    one copy +1 MiB$'
expect_in out '^ +pageable'
expect_in out '^  pageable( +[0-9.]+ [cdsh])+$'
expect_in out '^  c  the CPU$'
nothing_is_left
if [ -n "${UMF_TEST_DRIVERS:-}" ]; then
    LD_LIBRARY_PATH=$UMF_TEST_DRIVERS expect_status 0 "$umfctl" bandwidth --size 1M
    expect_in out '^ +pageable +file +pinned +gpu 0 +gpu 1'
    expect_in out '^  pinned +[0-9.]+ c +[0-9.]+ c +[0-9.]+ c +[0-9.]+ d +[0-9.]+ d'
    expect_in out '^  gpu 1 +[0-9.]+ s +[0-9.]+ s +[0-9.]+ s +[0-9.]+ d +[0-9.]+ d'
    # The paths above the table are as long as they are.
    [ "$(sed -n '/^GB/,$p' "$work/out" | wc -L)" -le 80 ] ||
        fail "the table is wider than 80 columns"
    LD_LIBRARY_PATH=$UMF_TEST_DRIVERS expect_status 0 "$umfctl" bandwidth --size 1M --json
    expect_in out '"gpu 0": ."state": "ok", "value": [1-9][0-9]*, "unit": "bytes/s", "note": "destination"'
    if command -v python3 >/dev/null; then
        python3 -c 'import json, sys; d = json.load(open(sys.argv[1]))
assert d["from gpu 1"]["pageable"]["note"] == "source" and d["from file"]["pinned"]["value"] > 0' \
            "$work/out" || fail "bandwidth in JSON is not as it should be"
    fi
    nothing_is_left
fi

# --- output that cannot be written ---

expect_status 1 bash -c "exec '$umfctl' info >/dev/full"
expect_in err 'could not be written'
expect_status 1 bash -c "exec '$umfctl' check >/dev/full"
expect_status 1 bash -c "exec '$umfctl' info >&-"
expect_in err 'no standard output'
expect_status 0 bash -c "exec '$umfctl' info <&- 2>&-"

# --- text ---

expect_status 0 "$umfctl" info
for heading in Library Machine Providers Pools NUMA Graphics Libraries Limits; do
    expect_in out "^$heading"
done
expect_in out '^  \+ os$'
expect_in out '^    locked memory|^  ! locked memory'
! LC_ALL=C grep -n '[^ -~]' "$work/out" || fail "the lines above are not plain ASCII"
# A path cannot be folded.
! grep -nE '^.{81}' "$work/out" | grep -v / || fail "the lines above are longer than 80 columns"
if locale -a | grep -qix 'C.utf-\?8'; then
    LC_ALL=C.UTF-8 expect_status 0 "$umfctl" info
    expect_in out '^  ✓ os$'
else
    note "skipped: UTF-8 marks, the locale C.UTF-8 is not here"
fi

# --- colour ---

escape=$(printf '\033')
if command -v script >/dev/null; then
    TERM=xterm script -qec "'$umfctl' info" /dev/null >"$work/terminal" </dev/null
    grep -q "$escape" "$work/terminal" || fail "no colour on a terminal"
    NO_COLOR=1 script -qec "'$umfctl' info" /dev/null >"$work/terminal" </dev/null
    ! grep -q "$escape" "$work/terminal" || fail "colour in spite of NO_COLOR"
else
    note "skipped: colour on a terminal, the program script is not here"
fi
expect_status 0 "$umfctl" info
! grep -q "$escape" "$work/out" || fail "colour without a terminal"

# --- JSON ---

# Prints "section/row/state" of a JSON document, or fails if it is none.
flatten='
import json, sys
document = json.load(sys.stdin)
assert document["tool"] == "umfctl" and document["command"] == sys.argv[1]
for section, rows in document.items():
    if isinstance(rows, dict):
        for name, row in rows.items():
            assert not set(row) - {"state", "value", "unit", "note"}, row
            print(section, name, row.get("state"), sep="/")
'
read_json() {
    if command -v python3 >/dev/null; then
        python3 -c "$flatten" "$1"
    else
        jq -r 'to_entries[] | .key as $s | select(.value | type == "object") | .value | to_entries[]
            | "\($s)/\(.key)/\(.value.state)"'
    fi
}
if command -v python3 >/dev/null || command -v jq >/dev/null; then
    expect_status 0 "$umfctl" info --json
    read_json info <"$work/out" >"$work/rows" || fail "info --json is not what it should be"
    expect_in rows '^providers/os/ok$'
    expect_in rows '^pools/disjoint/ok$'
    expect_in rows '^limits/locked memory/'
    expect_status 0 "$umfctl" --json check
    read_json check <"$work/out" >"$work/rows" || fail "check --json is not what it should be"
    expect_in rows '^pools/disjoint over os/ok$'
    expect_in rows '^suspend/disjoint over linux_vmm/ok$'
    expect_in rows '^summary/failed/'
    # With a driver in reach, a software one.
    if [ -n "${UMF_TEST_DRIVERS:-}" ]; then
        LD_LIBRARY_PATH=$UMF_TEST_DRIVERS expect_status 0 "$umfctl" --json check
        read_json check <"$work/out" >"$work/rows" || fail "check --json with a CUDA driver"
        expect_in rows '^providers/cuda/ok$'
        expect_in rows '^providers/cuda_vmm/ok$'
        expect_in rows '^suspend/disjoint over cuda_vmm/ok$'
        # A driver that keeps released memory fails the check.
        UMF_FAKE_CUDA_KEEPS_MEMORY=1 LD_LIBRARY_PATH=$UMF_TEST_DRIVERS \
            expect_status 1 "$umfctl" --json check
        read_json check <"$work/out" >"$work/rows" || fail "check --json with a driver that keeps"
        expect_in rows '^suspend/disjoint over cuda_vmm/failed$'
    fi
    if [ -n "${UMF_TEST_ZE_DRIVER:-}" ]; then
        ZE_ENABLE_ALT_DRIVERS=$UMF_TEST_ZE_DRIVER expect_status 0 "$umfctl" --json check
        read_json check <"$work/out" >"$work/rows" || fail "check --json with a Level Zero driver"
        expect_in rows '^providers/level_zero/ok$'
    fi
    # Hostile text stays text.
    LD_PRELOAD=$(printf 'no"such\\thing\n\377\033') expect_status 0 "$umfctl" info --json
    read_json info <"$work/out" >"$work/rows" || fail "hostile text breaks the JSON document"
else
    note "skipped: JSON, neither python3 nor jq is here"
fi
LD_PRELOAD=$(printf 'no\033[31msuch') expect_status 0 "$umfctl" info
! grep -q "$escape" "$work/out" || fail "an escape sequence from the environment reached the output"

# --- check ---

expect_status 0 "$umfctl" check
expect_in out '^  \+ disjoint over os$'
expect_in out '^All is well$'
expect_in out '^    failed +0$'
! grep -E '^  x ' "$work/out" || fail "steps failed"
nothing_is_left

# --- sharing, where no memory can have a name ---

# The producer has the cause, not the consumer that waits.
if unshare -rm mount -t tmpfs -o ro none /dev/shm 2>/dev/null; then
    expect_status 1 unshare -rm bash -c \
        "mount -t tmpfs -o ro none /dev/shm && exec '$umfctl' check"
    expect_in out '^  x named memory +the producer: [a-z_]+: '
    ! grep -q 'sent no handle' "$work/out" || fail "what follows from the cause hides it"
else
    note "skipped: sharing without /dev/shm, mounts are not allowed here"
fi

# --- NUMA nodes, of a recorded machine ---

expect_status 0 "$umfctl" info
if grep -q 'built without hwloc\|hwloc is not here' "$work/out"; then
    note "skipped: NUMA nodes, hwloc is not here or was not when the library was built"
else
    HWLOC_XMLFILE=$topologies/hbm_flat.xml expect_status 0 "$umfctl" info
    expect_in out '^    node 3 +[0-9.]+ GiB$'
    expect_in out '^    highest bandwidth +node 2, 3$'
    expect_in out '^    lowest latency +node 0, 1$'
    HWLOC_XMLFILE=$topologies/two_sockets.xml expect_status 0 "$umfctl" info
    expect_in out '^  - highest bandwidth +not reported by the firmware$'
    HWLOC_XMLFILE=$topologies/broken.xml expect_status 0 "$umfctl" info
    expect_in out '^  - nodes '
fi

# --- devices, of a made-up machine ---

pci=$work/pci
mkdir -p "$pci/0000:81:00.0" "$pci/0000:00:1f.0" "$work/bus/drivers/nvidia"
echo 0x030200 >"$pci/0000:81:00.0/class"
echo 0x10de >"$pci/0000:81:00.0/vendor"
echo 0x2335 >"$pci/0000:81:00.0/device"
ln -s ../../bus/drivers/nvidia "$pci/0000:81:00.0/driver"
echo 0x060100 >"$pci/0000:00:1f.0/class"
if [ -d /sys/bus/pci/devices ] && unshare -rm mount --bind "$pci" /sys/bus/pci/devices 2>/dev/null; then
    expect_status 0 unshare -rm bash -c \
        "mount --bind '$pci' /sys/bus/pci/devices && exec '$umfctl' info"
    expect_in out '^    0000:81:00.0  NVIDIA.*, id 10de:2335, driver nvidia$'
    ! grep -q '0000:00:1f' "$work/out" || fail "a bridge was taken for a graphics device"
else
    note "skipped: a made-up graphics device, mounts are not allowed here"
fi

# --- a library with a defect ---

if [ -z "$broken" ]; then
    note "skipped: crashes, hangs and interruption, they need a shared library without a sanitizer"
    exit 0
fi
export BROKEN_ONCE=$work/once

BROKEN=crash LD_PRELOAD=$broken expect_status 1 "$umfctl" check
expect_in out '^  x proxy +it crashed: Aborted'
expect_in out '^There are problems$'
expect_in out '^    passed +[1-9]'
nothing_is_left

rm -f "$BROKEN_ONCE"
BROKEN=hang LD_PRELOAD=$broken expect_status 1 "$umfctl" check
expect_in out '^  x proxy +not done after 10 seconds'
nothing_is_left

rm -f "$BROKEN_ONCE"
BROKEN=hang LD_PRELOAD=$broken "$umfctl" check >"$work/out" &
pid=$!
for _ in $(seq 1200); do
    [ ! -e "$BROKEN_ONCE" ] || break
    sleep 0.05
done
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status -eq 143 ] || fail "status $status after SIGTERM, expected 143"
expect_in out 'interrupted$'
nothing_is_left
[ ! -e "/dev/shm/umfctl-$pid" ] || fail "left behind: /dev/shm/umfctl-$pid"
note "everything as it should be"
