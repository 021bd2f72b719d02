#!/usr/bin/env bash
# Tests what umfctl makes of recordings: record_test.sh <umfctl> <record_sample> <folder to work in>
# [<torch/cuda/_memory_viz.py> [<record_sample with lines> [<folder of the package perfetto> [<of flamegraph-textual>
# [<preloaded clock>]]]]]
set -euo pipefail

umfctl=$1 sample=$2 work=$3 viewer=${4:-} lines=${5:-} perfetto=${6:-} flamegraph=${7:-} clock=${8:-}
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work"
mkdir -p "$work"
cd "$work"
export LC_ALL=C
unset NO_COLOR
python=$(command -v python3 || true)

fail() {
    printf 'record_test: %s\n' "$*" >&2
    exit 1
}

# expect_status <status> <command>...: output is in out and err.
expect_status() {
    local status=0
    "${@:2}" >out 2>err || status=$?
    [ $status -eq "$1" ] || {
        cat out err >&2
        fail "status $status, expected $1: ${*:2}"
    }
    [ "$(wc -L <out)" -le 80 ] || [[ " $* " = *" --json "* ]] || fail "wider than 80 columns: ${*:2}"
}

expect_in() { # <file> <pattern>
    grep -Eq -e "$2" "$1" || {
        cat "$1" >&2
        fail "no '$2' in the output above"
    }
}

expect_not_in() { # <file> <pattern>
    if grep -Eq -e "$2" "$1"; then
        cat "$1" >&2
        fail "'$2' is in the output above"
    fi
}

expect_json() { # <expression about the document d>
    [ -n "$python" ] || return 0
    "$python" -c 'import json, sys; d = json.load(open("out")); assert eval(sys.argv[1]), d' "$1" ||
        fail "not in the JSON: $1"
}

for what in demo clean destroyed destroyed_lost overwritten died tiny arena snapshot grown named bare; do
    "$sample" $what.umfrec $what
done

# --- the command line ---

expect_status 2 "$umfctl" leks demo.umfrec
expect_in err "The nearest is 'leaks'"
expect_status 2 "$umfctl" tr demo.umfrec
expect_in err "The nearest is 'trace'"
expect_status 2 "$umfctl" leaks --lagest demo.umfrec
expect_in err "The nearest is '--largest'"
expect_status 2 "$umfctl" nothing
expect_not_in err 'nearest'
"$umfctl" help >out
expect_in out '^usage: umfctl'
expect_status 2 "$umfctl" trace
expect_in err 'trace needs a recording'
expect_status 2 "$umfctl" diff demo.umfrec
expect_in err 'diff needs another'
expect_status 2 "$umfctl" leaks demo.umfrec clean.umfrec
expect_in err 'one word too many'
expect_status 2 "$umfctl" trace demo.umfrec --largest
expect_in err 'not an option of this command'
expect_status 2 "$umfctl" trace demo.umfrec --chrome
expect_in err 'a word is missing'

# --- names of a stripped program are in the file that it names ---

if command -v objcopy >/dev/null && readelf -n "$sample" | grep -q 'Build ID'; then
    mkdir -p stripped/.debug
    objcopy --only-keep-debug "$sample" stripped/.debug/names.debug
    (cd stripped/.debug && objcopy --strip-all --add-gnu-debuglink=names.debug "$sample" ../program)
    stripped/program stripped.umfrec demo
    expect_status 0 "$umfctl" trace stripped.umfrec
    expect_in out '^ +forward_pass(\+0x1| at record_sample\.c:[0-9]+) \(program\)$'
    objcopy --only-keep-debug "$umfctl" stripped/.debug/names.debug # of another build
    expect_status 0 "$umfctl" trace stripped.umfrec
    expect_not_in out forward_pass
    expect_in out '^ +program\+0x'
else
    echo "record_test: no objcopy or no build id: names of stripped programs are not tested"
fi

# --- source lines and inlined functions ---

# expect_lines <file>: the places of the program with debug information.
expect_lines() {
    expect_in "$1" "^ +fill_rows at record_sample\\.c:$inlined_line \\(.*, inlined\\)\$"
    expect_in "$1" "^ +keep_batch at record_sample\\.c:$keep_line \\("
}

if [ -z "$lines" ] || ! "$lines" lines.umfrec demo; then
    echo "record_test: no program with debug information: source lines are not tested"
elif expect_status 0 "$umfctl" leaks lines.umfrec && grep -q 'libdw.so.1 is not installed' err; then
    echo "record_test: no libdw: source lines are not tested"
else
    source=$here/record_sample.c
    inlined_line=$(grep -n 'fill_rows is here' "$source" | cut -d: -f1)
    keep_line=$(grep -n '^PLACE(keep_batch)' "$source" | cut -d: -f1)
    expect_lines out
    [ ! -s err ] || fail "there is a message although libdw is there: $(cat err)"
    expect_status 0 "$umfctl" trace lines.umfrec --pytorch lines.pickle --html lines.html
    grep -aq 'record_sample.c' lines.pickle || fail "PyTorch's snapshot has no source files"
    expect_in lines.html "record_sample\.c:$keep_line"
    expect_status 0 "$umfctl" names lines.umfrec
    [ "$(awk '$1 == "lines" { print $2 }' out)" -ge 6 ] || fail "names adds no lines"

    # Lines differ between two versions of a program, and places are compared without them.
    "$lines" old.umfrec snapshot
    "$lines" new.umfrec grown
    expect_status 0 "$umfctl" diff old.umfrec new.umfrec
    expect_in out '^ +grow_cache \(umf_test_record_lines\)$'
    expect_in out '^ +fill_rows \(umf_test_record_lines, inlined\)$'

    mkdir broken
    touch broken/libdw.so.1 # which is no library
    "$lines" nolib.umfrec demo
    expect_status 0 env LD_LIBRARY_PATH="$PWD/broken" "$umfctl" diff nolib.umfrec clean.umfrec
    expect_in out 'keep_batch'
    [ "$(grep -c 'libdw.so.1 is not installed' err)" -eq 1 ] || fail "it is not said once that there are no lines"
    expect_status 0 env LD_LIBRARY_PATH="$PWD/broken" "$umfctl" leaks lines.umfrec # has them itself
    expect_lines out
    [ ! -s err ] || fail "there is a message although the file has its lines: $(cat err)"

    if command -v objcopy >/dev/null && readelf -n "$lines" | grep -q 'Build ID'; then
        mkdir -p split/.debug
        objcopy --only-keep-debug "$lines" split/.debug/names.debug
        (cd split/.debug && objcopy --strip-all --add-gnu-debuglink=names.debug "$lines" ../program)
        split/program split.umfrec demo
        expect_status 0 "$umfctl" leaks split.umfrec
        expect_lines out
        # Some compilers write no table of the addresses of units.
        objcopy --remove-section .debug_aranges "$lines" split/bare
        split/bare bare_table.umfrec demo
        expect_status 0 "$umfctl" leaks bare_table.umfrec
        expect_lines out

        # Names of a file without code are in use while lines are looked for.
        if [ -n "$python" ]; then
            cp split/.debug/names.debug whole.debug
            "$python" - split/.debug/names.debug <<'end'
import struct, sys
with open(sys.argv[1], "r+b") as file:
    head = file.read(64)
    start, (size, count) = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<HH", head, 54)
    for at in range(start, start + size * count, size):
        file.seek(at)
        if file.read(4) == b"\1\0\0\0":  # PT_LOAD
            file.seek(at)
            file.write(bytes(4))
end
            expect_status 0 "$umfctl" leaks split.umfrec
            expect_in out '^ +keep_batch\+0x'
            mv whole.debug split/.debug/names.debug
        fi

        # From a server, if that is asked.
        id=$(readelf -n "$lines" | awk '/Build ID/ { print $3 }')
        mkdir -p "served/buildid/$id"
        mv split/.debug/names.debug "served/buildid/$id/debuginfo"
        if [ -n "$python" ] && "$python" -c 'import ctypes; ctypes.CDLL("libdebuginfod.so.1")' 2>/dev/null; then
            "$python" -u -m http.server --bind 127.0.0.1 --directory served 0 >served.log 2>&1 &
            server=$!
            trap 'kill $server 2>/dev/null || true' EXIT
            until port=$(grep -o 'port [0-9]*' served.log); do
                kill -0 $server 2>/dev/null || fail "no server: $(cat served.log)"
            done
            export DEBUGINFOD_URLS="http://127.0.0.1:${port#port }" DEBUGINFOD_CACHE_PATH="$PWD/cache"
            expect_status 0 "$umfctl" leaks split.umfrec
            expect_not_in out 'fill_rows'
            expect_not_in served.log 'GET'
            expect_status 0 "$umfctl" leaks split.umfrec --debuginfod
            expect_lines out
            expect_in served.log 'GET'
            unset DEBUGINFOD_URLS
            expect_status 0 "$umfctl" leaks split.umfrec --debuginfod
            expect_in err 'no server is named; set DEBUGINFOD_URLS'
            kill $server
        else
            echo "record_test: no libdebuginfod: servers of debug information are not tested"
        fi
    fi
fi

# --- names in the file: it is read without the program ---

expect_status 0 "$umfctl" leaks named.umfrec
expect_in out '^ +fill at fill\.h:12 \(umf_test_record_sample, inlined\)$'
expect_in out '^ +evaluate at model\.cpp:34 \(umf_test_record_sample\)$'
expect_in out '^ +grow_cache(\+0x1| at record_sample\.c:[0-9]+) \(umf_test_record_sample\)$' # is not among them
printf 'leak:^model.cpp$\n' >known
expect_status 0 "$umfctl" leaks named.umfrec --suppressions known
expect_not_in out 'fill at'
expect_status 0 "$umfctl" trace named.umfrec --collapsed named.folded
expect_in named.folded ';evaluate \(umf_test_record_sample\);fill \(umf_test_record_sample\) [0-9]+$'

mkdir -p gone
cp "$sample" gone/program
gone/program gone/run.umfrec demo
cp gone/run.umfrec gone/bare.umfrec
expect_status 0 "$umfctl" names gone/run.umfrec
expect_in out '^    addresses +11$'
expect_in out '^    functions +6$'
expect_in out '^  ! no name +5$'
bytes=$(stat -c %s gone/run.umfrec)
rm gone/program
expect_status 0 "$umfctl" names gone/run.umfrec # keeps those that are not found any more
expect_in out '^    functions +6$'
[ "$(stat -c %s gone/run.umfrec)" -eq "$bytes" ] || fail "the names were added twice"
expect_status 0 "$umfctl" trace gone/run.umfrec
expect_in out '^ +forward_pass.* \(program\)$'
expect_status 0 "$umfctl" trace gone/bare.umfrec
expect_not_in out 'forward_pass'
for what in run bare; do # the rest is as it was
    cp gone/$what.umfrec gone/same.umfrec
    expect_status 0 "$umfctl" trace gone/same.umfrec --chrome gone/$what.json
done
cmp gone/run.json gone/bare.json || fail "names changed the events"
expect_status 1 "$umfctl" names tiny.umfrec
expect_in err 'the file is cut off, so nothing is added'
expect_status 1 "$umfctl" names nothing
expect_in err 'nothing: No such file'
expect_status 0 "$umfctl" names bare.umfrec
# Damaged names are left out.
names=$(od -An -t u8 -j 136 -N 8 named.umfrec | tr -d ' ')
cp named.umfrec damaged.umfrec
printf '\377\377\377\377\377' | dd of=damaged.umfrec bs=1 seek="$names" conv=notrunc status=none
expect_status 0 "$umfctl" leaks damaged.umfrec
expect_in out 'are damaged or cut off'
expect_not_in out 'evaluate'
cp named.umfrec damaged.umfrec
printf '\377\377' | dd of=damaged.umfrec bs=1 seek=$((names + 32 + 6)) conv=notrunc status=none
expect_status 0 "$umfctl" leaks damaged.umfrec
expect_in out 'do not ascend by address'

# --- trace: each planted fault is found ---

expect_status 0 "$umfctl" trace demo.umfrec
expect_in out 'weights #3 +113 MiB +13 MiB +128 MiB +52 +208 +156$'
expect_in out '^The highest point: 113 MiB at 2\.543 ms$'
expect_in out '^ +forward_pass(\+0x1| at record_sample\.c:[0-9]+) \(umf_test_record_sample\)$'
expect_in out '^Out of memory$'
tr -s ' \n' ' ' <out >sentence
expect_in sentence 'thread 4321 requested 512 MiB from weights #3 and got none\. The pool held 128 MiB, of which 113 MiB were in use\. Just before, its provider cuda_vmm #1 had refused 512 MiB\. The most, 100 MiB in 1 allocation of weights #3, was from forward_pass'
expect_in out '^  x refused +1$'
expect_in out '^ +2\.543 ms +13 MiB  evaluation$'
expect_not_in out $'\033'
expect_not_in out 'lost events'
expect_status 0 "$umfctl" trace demo.umfrec --json
expect_json '[(p["name"], p["number"], p["peak"]) for p in d["pools"]][0] == ("weights", 3, 118489088)'
expect_json '{p["label"]: p["allocs"] for p in d["pools"]}["kv \"cache\" #5"] == 6160'
expect_json 'd["refusal"]["size"] == 512 << 20 and d["refusal"]["stack"][0].startswith("backward_pass")'
expect_json 'd["peak"][0]["bytes"] == 100 << 20 and len(d["marks"]) == 41'
expect_json 'd["file"]["last event"]["unit"] == "ns" and 2500000 < d["file"]["last event"]["value"] < 2600000 and d["file"]["began"]["value"] == 1767225600 * 10**9'

expect_status 0 "$umfctl" trace clean.umfrec
expect_not_in out 'Out of memory|^Frees|lost'
expect_status 0 "$umfctl" trace overwritten.umfrec
expect_in out '^  ! lost events +12460$'
expect_status 0 "$umfctl" trace died.umfrec
expect_in out '^    ended +no: the process still records, or died$'
expect_status 0 "$umfctl" trace tiny.umfrec
expect_in out 'the file is cut off'
expect_status 0 "$umfctl" trace snapshot.umfrec
expect_in out '^    activations #4 +896 KiB +64 KiB +896 KiB +1 +20 +19$'

expect_status 0 "$umfctl" trace tiny.umfrec --events
expect_in out '^ +51\.978 us +4321 out of memory +512 MiB'
expect_in out ' free refused '
expect_in out ' suspend +0 activations #4$'
[ "$(wc -l <out)" -eq 19 ] || fail "18 events and a heading were expected"
expect_status 0 "$umfctl" trace tiny.umfrec --events --json
expect_json 'len(d["events"]) == 18 and d["events"][1]["stack"][0].startswith("keep_batch")'

# Colours on a terminal only.
if command -v script >/dev/null; then
    TERM=xterm script -qec "'$umfctl' trace demo.umfrec" /dev/null >out </dev/null
    expect_in out $'\033\\[1m'
fi

# Long work shows how far it is, on a terminal.
if command -v script >/dev/null && [ -n "$clock" ]; then
    "$sample" long.umfrec demo 200000
    script -qec "LD_PRELOAD='$clock' '$umfctl' trace long.umfrec --chrome long.json" /dev/null >out </dev/null
    expect_in out $'\r\\[#+\\.+\\] +[1-9][0-9]? %'
    expect_in out $'\r\033\\[K' # and takes the bar away
    script -qec "LD_PRELOAD='$clock' '$umfctl' trace long.umfrec --chrome long.json 2>err" /dev/null >out </dev/null
    [ ! -s err ] && ! grep -q '\]  *[0-9]* %' out || fail "a file has a progress bar"
    script -qec "'$umfctl' trace demo.umfrec" /dev/null >out </dev/null
    expect_not_in out ' %'
else
    echo "record_test: no script, or no clock to preload: the progress bar is not tested"
fi

# --- leaks ---

expect_status 0 "$umfctl" leaks demo.umfrec
expect_in out '^  ! lives +13 MiB$'
expect_in out '^ +13 MiB  52 allocations, weights #3, 2\.523 ms to 1\.069 us old$'
expect_in out '^ +keep_batch(\+0x1| at )'
expect_in out 'the live table'
expect_not_in out 'forward_pass'
expect_status 1 "$umfctl" leaks demo.umfrec --fail
expect_status 0 "$umfctl" leaks clean.umfrec --fail
expect_in out '^  \+ lives +0 bytes$'
expect_status 0 "$umfctl" leaks overwritten.umfrec
expect_in out '^ +13 MiB  52 allocations'
expect_status 1 "$umfctl" leaks died.umfrec --fail
expect_in out 'some of it may be freed yet'
expect_in out '^    source +the events$'
expect_in out '^ +13 MiB  52 allocations'
expect_status 0 "$umfctl" leaks demo.umfrec --json
expect_json 'd["leaks"][0]["count"] == 52 and d["leaks"][0]["pool"] == "weights #3"'
expect_status 0 "$umfctl" leaks snapshot.umfrec --largest
[ "$(grep -o '#[345]' out | tr -d '\n')" = '#3#4#5' ] || fail "the largest do not come first"

# What lived when its pool was destroyed was not freed either.
expect_status 1 "$umfctl" leaks destroyed.umfrec --fail
expect_in out '^  \+ lives +0 bytes$'
expect_in out '^  ! destroyed +13 MiB$'
expect_in out '^ +13 MiB  52 allocations, when pool weights #3 was destroyed$'
expect_in out '^ +keep_batch(\+0x1| at )'
expect_status 0 "$umfctl" leaks destroyed.umfrec
expect_status 0 "$umfctl" leaks destroyed.umfrec --fail --allow-destroyed
expect_status 0 "$umfctl" leaks destroyed.umfrec --json
expect_json 'd["destroyed"][0]["count"] == 52 and d["total"]["destroyed"]["value"] == 52 * 262144'
expect_status 1 "$umfctl" leaks destroyed_lost.umfrec --fail
expect_in out '^ +13 MiB  52 allocations, when pool weights #3 was destroyed$'
expect_in out 'and 3 allocations without a stack'
expect_status 2 "$umfctl" trace demo.umfrec --allow-destroyed
# Missing facts of a file are no success.
expect_status 1 "$umfctl" leaks bare.umfrec
expect_in out 'not known'
expect_not_in out 'none|0 bytes'
expect_status 0 "$umfctl" trace bare.umfrec
expect_in out '^ +kv "cache" #.* 1 +- +-$'

# --- diff ---

expect_status 1 "$umfctl" diff demo.umfrec bare.umfrec
expect_in err 'bare.umfrec, a snapshot without a recording with leaks, does not'
expect_status 1 "$umfctl" diff bare.umfrec demo.umfrec
expect_in err 'demo.umfrec lists live allocations, and bare.umfrec'
expect_status 0 "$umfctl" diff bare.umfrec bare.umfrec
expect_in out 'places +not known'
expect_status 0 "$umfctl" diff bare.umfrec bare.umfrec --json
expect_json '"places" not in d and d["not_known"]["places"]["state"] == "skipped"'

expect_status 0 "$umfctl" diff snapshot.umfrec grown.umfrec
expect_in out '^ +\+768 bytes  kv "cache": 512 bytes in 1, then 1\.2 KiB in 1$'
expect_in out '^ +grow_cache \(umf_test_record_sample\)$'
expect_not_in out 'weights'
expect_status 0 "$umfctl" diff demo.umfrec clean.umfrec
expect_in out '^ +-13 MiB  weights: 13 MiB in 52, then 0 bytes in 0$'
expect_status 0 "$umfctl" diff clean.umfrec demo.umfrec --json
expect_json 'd["places"][0]["bytes_after"] == 13 << 20 and d["places"][0]["stack"][0].startswith("keep_batch")'

# --- parts of a file ---

# Times depend a little on the length of the sample's path, which is in the file.
expect_status 0 "$umfctl" trace demo.umfrec
at=$(awk '/step 21$/ { print $1 }' out) next=$(awk '/step 22$/ { print $1 }' out)
expect_status 0 "$umfctl" trace demo.umfrec --to 'step 21' --pool weights
expect_in out "^    to +$at us$"
expect_in out '^    pool +weights$'
expect_in out "$at us +.*step 21$"
expect_not_in out 'step 22|activations'
expect_status 0 "$umfctl" trace demo.umfrec --events --from 'step 21' --to 'step 22'
expect_in out "^ +$at us .* mark .*step 21$"
expect_in out "^ +$next us .* mark .*step 22$"
expect_not_in out 'step 20|step 23'
expect_status 0 "$umfctl" trace demo.umfrec --from 0.0004 --json
expect_json 'd["file"]["from"] == {"value": 400000, "unit": "ns"} and d["marks"][0]["text"] == "step 22"'
expect_status 0 "$umfctl" leaks demo.umfrec --from 'evaluation' --fail
expect_in out '^  \+ lives +0 bytes$'
expect_status 1 "$umfctl" leaks demo.umfrec --to 'step 21' --fail
expect_in out '^    source +the events$'
expect_status 0 "$umfctl" leaks demo.umfrec --pool 'kv "cache" #5' --fail
expect_status 1 "$umfctl" leaks demo.umfrec --pool 'weights #3' --fail
expect_status 0 "$umfctl" diff demo.umfrec --from 'step 21' --to 'step 28'
expect_in out '^    before +1\.8 MiB$'
expect_in out '^    after +2\.5 MiB$'
expect_status 0 "$umfctl" diff demo.umfrec clean.umfrec --to 'step 21'
expect_in out '^    before +1\.8 MiB$'
expect_status 0 "$umfctl" diff clean.umfrec demo.umfrec --collapsed growth.folded
expect_in growth.folded '^weights;.*;keep_batch \(umf_test_record_sample\).* 0 13631488$'
expect_status 1 "$umfctl" diff demo.umfrec clean.umfrec --collapsed clean.umfrec
expect_in err 'it is the recording'
expect_status 1 "$umfctl" diff bare.umfrec bare.umfrec --collapsed growth.folded
expect_in err 'no list of live allocations'
expect_status 1 "$umfctl" trace demo.umfrec --from 'no such mark'
expect_in err "there is no mark 'no such mark'; 'umfctl trace' lists the marks"
expect_status 1 "$umfctl" leaks demo.umfrec --pool none
expect_in err "no pool has the name 'none'"
expect_status 1 "$umfctl" trace demo.umfrec --from 2 --to 1
expect_in err 'ends before it begins'
expect_status 1 "$umfctl" leaks snapshot.umfrec --to 1
expect_in err 'a snapshot is of one moment'

printf '# known\n\nleak:keep_b*h\n' >known
expect_status 0 "$umfctl" leaks demo.umfrec --fail --suppressions known
expect_in out '^    suppressed +13 MiB$'
expect_status 0 "$umfctl" leaks destroyed.umfrec --fail --suppressions known
printf 'leak:^batch\nleak:^keep$\nleak:keep_batch?\n' >known
expect_status 1 "$umfctl" leaks demo.umfrec --fail --suppressions known
printf 'leak:^umf_test_record_sample$\n' >known
expect_status 0 "$umfctl" leaks demo.umfrec --fail --suppressions known
printf 'leak:^umf_test_record$\n' >known
expect_status 1 "$umfctl" leaks demo.umfrec --fail --suppressions known
printf 'race:keep_batch\n' >known
expect_status 1 "$umfctl" leaks demo.umfrec --suppressions known
expect_in err "known, line 1: 'race:keep_batch' is not leak:PATTERN"
expect_status 1 "$umfctl" leaks demo.umfrec --suppressions nowhere
expect_in err 'nowhere: No such file'

# --- files for others ---

expect_status 0 "$umfctl" trace demo.umfrec --chrome demo.json --pytorch demo.pickle
expect_status 0 "$umfctl" trace snapshot.umfrec --pytorch snapshot.pickle
expect_status 0 "$umfctl" trace arena.umfrec --pytorch arena.pickle
if [ -n "$python" ]; then
    "$python" -B "$here/chrome_check.py" demo.json 3 42 1 || fail "the Chrome trace is not right"
    viewers=()
    [ ! -e "$viewer" ] || viewers=("$viewer")
    "$python" -B "$here/pytorch_check.py" demo.pickle 85 0 13631488 "${viewers[@]}" >out 2>&1 ||
        fail "PyTorch's snapshot of the recording is not right: $(cat out)"
    "$python" -B "$here/pytorch_check.py" snapshot.pickle 3 0 1114624 "${viewers[@]}" >out 2>&1 ||
        fail "PyTorch's snapshot of the snapshot is not right: $(cat out)"
    "$python" -B "$here/pytorch_check.py" arena.pickle 1 1 6291456 "${viewers[@]}" >out 2>&1 ||
        fail "PyTorch's snapshot of an arena is not right: $(cat out)"
fi
expect_status 0 "$umfctl" trace demo.umfrec --collapsed demo.folded --speedscope demo.speedscope --pprof demo.pprof
expect_in demo.folded '^weights #[0-9]+;.*;keep_batch \(umf_test_record_sample\).* [0-9]+$'
if [ -n "$python" ]; then
    "$python" -B "$here/stacks_check.py" demo.folded demo.speedscope demo.pprof weights keep_batch 13631488 >out 2>&1 ||
        fail "the stacks for other viewers are not right: $(cat out)"
    status=0
    PYTHONPATH=$flamegraph "$python" -B "$here/flamegraph_check.py" demo.folded demo.speedscope demo.pprof keep_batch 13631488 >out 2>&1 ||
        status=$?
    [ $status -eq 0 ] || [ $status -eq 77 ] || fail "another viewer reads other stacks: $(cat out)"
    [ $status -eq 0 ] || echo "record_test: no package flamegraph-textual: no other viewer opens the stacks"
fi
expect_status 0 "$umfctl" trace demo.umfrec --perfetto demo.perfetto
expect_in out '^    perfetto +demo\.perfetto$'
if [ -n "$python" ]; then
    status=0
    PYTHONPATH=$perfetto "$python" -B "$here/perfetto_check.py" demo.perfetto "weights #3" keep_batch 13631488 118489088 42 >out 2>&1 ||
        status=$?
    [ $status -eq 0 ] || [ $status -eq 77 ] || fail "the trace for Perfetto is not right: $(cat out)"
    [ $status -eq 0 ] || echo "record_test: no package perfetto: its traces are not opened"
fi
grep -aq 'pages' demo.perfetto && fail "there are counters of pages without an arena"
expect_status 0 "$umfctl" trace arena.umfrec --perfetto arena.perfetto
for counter in 'reserved pages' 'spare pages' 'stale addresses' 'donated pages'; do
    [ "$(grep -ao "activations #4 $counter" arena.perfetto | wc -l)" -eq 1 ] || fail "no counter of $counter"
done
expect_status 1 "$umfctl" trace demo.umfrec --chrome ./demo.umfrec
expect_in err 'it is the recording'
expect_status 1 "$umfctl" trace demo.umfrec --chrome none/x
expect_in err 'none/x cannot be written: No such file'
if [ -w /dev/full ]; then
    expect_status 1 "$umfctl" trace demo.umfrec --pytorch /dev/full
    expect_in err '/dev/full cannot be written: No space left on device'
fi

# --- arenas: sums of their pages, and an event that a later version wrote ---

expect_status 0 "$umfctl" trace arena.umfrec
expect_in out '^Pages of arenas$'
expect_in out '^ +activations #4 +8 MiB +7 MiB +1 MiB +0 bytes +4 MiB$'
expect_status 0 "$umfctl" trace arena.umfrec --json
expect_json 'd["pages"] == [{"label": "activations #4", "peak": 8 << 20, "reserved": 7 << 20, "spare": 1 << 20,
    "stale": 0, "donated": 4 << 20, "created": 9 << 20, "destroyed": 2 << 20}]'
expect_json 'next(pool["held"] for pool in d["pools"] if pool["name"] == "activations") == 6 << 20'
expect_status 0 "$umfctl" trace arena.umfrec --events --json
expect_json '[e["kind"] for e in d["events"]].count("page unmap") == 2 and d["events"][-1]["kind"] == "pages moved"'
expect_status 0 "$umfctl" trace demo.umfrec
expect_not_in out 'Pages of arenas'

# --- damaged files: a message, and no file is changed ---

expect_status 1 "$umfctl" trace .
expect_in err '\.: not a file, but a folder$'
expect_status 1 "$umfctl" leaks /dev/null
expect_in err 'not a file, but a pipe or device'
expect_status 1 "$umfctl" trace nothing
expect_in err 'nothing: No such file or directory$'
printf 'hello' >text.umfrec
expect_status 1 "$umfctl" trace text.umfrec
expect_in err 'text.umfrec: not a recording'
head -c 300 demo.umfrec >head.umfrec
expect_status 1 "$umfctl" trace head.umfrec
expect_in err 'its header is cut off: it has 300 bytes, not [0-9]+$'
cp demo.umfrec version.umfrec
printf '\7' | dd of=version.umfrec bs=1 seek=8 conv=notrunc status=none
expect_status 1 "$umfctl" trace version.umfrec
expect_in err 'it has version 7 of the format, this reads 1$'
# Cut off anywhere: the rest is read.
size=$(stat -c %s demo.umfrec)
for part in 1 2 3 5 7; do
    head -c $((size * part / 8)) demo.umfrec >cut.umfrec
    expect_status 0 "$umfctl" trace cut.umfrec
    expect_in out 'the file is cut off'
    expect_status 0 "$umfctl" leaks cut.umfrec
done
echo "record_test: umfctl reads recordings"
