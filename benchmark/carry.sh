#!/usr/bin/env bash
# Measures on a machine that builds nothing and has no network. Two steps:
#
#   benchmark/carry.sh --pack FOLDER [--mimalloc-bench CLONE] [BUILD]
#       makes FOLDER out of a build folder (build/release): umf-bench, the libraries, the peers of this machine, the built
#       programs of a clone of mimalloc-bench, and this script
#
#   FOLDER/carry.sh [--seconds N] [--out FOLDER] [PART...]
#       runs the parts there: programs, grid, threads, all if none is named. They end after N seconds (400). Programs have
#       six tenths of that, alone all of it, for as many rounds as fit (at most 5), with several allocators side by side on
#       CPUs of their own. Tables and JSON files are in the folder of --out (the current one).
#
# Exit status: 0, or that of the first part that failed. Missed targets are printed and are no failure.
set -euo pipefail

usage() {
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

here=$(cd "$(dirname "$0")" && pwd)
pack=
clone=
build=
seconds=400
out=.
parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --pack) pack=${2:?} && shift ;;
    --mimalloc-bench) clone=${2:?} && shift ;;
    --seconds) seconds=${2:?} && shift ;;
    --out) out=${2:?} && shift ;;
    programs | grid | threads) parts+=("$1") ;;
    *)
        [ -d "$1" ] || usage
        build=$1
        ;;
    esac
    shift
done

# The file that the loader would take for the name.
library() {
    ldconfig -p | awk -v name="$1" '$1 == name && !found { print $NF; found = 1 }'
}

if [ -n "$pack" ]; then
    build=${build:-$here/../build/release}
    mkdir -p "$pack/bench" "$pack/mimalloc-bench/out/bench"
    cp "$build"/benchmark/umf-bench{,-loads,-measure,-preload,-start} "$pack/bench"
    for proxy in "$build"/lib/proxy/libumf_proxy.so "$build"/benchmark/libumf_proxy_*.so; do
        [ ! -e "$proxy" ] || cp -L "$proxy" "$pack/bench"
    done
    cp -L "$build/libumf.so.1" "$pack"
    for name in libmimalloc.so.2 libjemalloc.so.2 libtbbmalloc.so.2 libtbbmalloc_proxy.so.2 libtcmalloc_minimal.so.4 \
        libhwloc.so.15 libudev.so.1; do
        found=$(library "$name")
        if [ -n "$found" ]; then
            cp -L "$found" "$pack/$name"
        else
            echo "carry: $name is not here and is left out"
        fi
    done
    if [ -n "$clone" ]; then
        find "$clone/out/bench" -maxdepth 1 -type f -perm -u+x -exec cp -t "$pack/mimalloc-bench/out/bench" {} +
        for input in espresso/largest.espresso barnes/input; do
            mkdir -p "$pack/mimalloc-bench/bench/${input%/*}"
            cp "$clone/bench/$input" "$pack/mimalloc-bench/bench/$input"
        done
    fi
    strip "$pack"/lib*.so.* "$pack"/bench/*
    cp "$0" "$here/summary.py" "$pack"
    du -sh "$pack"
    exit
fi

[ -x "$here/bench/umf-bench" ] || usage
[ ${#parts[@]} -gt 0 ] || parts=(programs grid threads)
mkdir -p "$out"
out=$(cd "$out" && pwd)
export LD_LIBRARY_PATH="$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
begin=$SECONDS
status=0

# run <part> <option>...: within the time that is left.
run() {
    local part=$1 left=$((seconds - (SECONDS - begin))) ended=0
    shift
    if [ "$left" -lt 5 ]; then
        echo "carry: no time is left for $part"
        return
    fi
    printf '\n== %s\n' "$part"
    timeout "$left" "$here/bench/umf-bench" "$@" --json "$out/$part.json" 2>&1 | tee "$out/$part.txt" || ended=$?
    [ "$ended" -ne 124 ] || echo "carry: the time of $part is over"
    [ "$status" -ne 0 ] || status=$ended
}

scratch=$(mktemp -d) # some programs write into the current folder
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
for part in "${parts[@]}"; do
    case $part in
    programs)
        share=$((${#parts[@]} > 1 ? seconds * 6 / 10 : seconds * 9 / 10))
        run programs --mimalloc-bench "$here/mimalloc-bench" --side-by-side --rounds 5 --seconds "$share"
        ;;
    grid) run grid --grid --quick ;;
    threads) run threads --threads 1,2,4,8,16 --quick ;;
    esac
done
echo
echo "carry: $((SECONDS - begin)) s"
if command -v python3 >/dev/null; then
    files=("$out"/*.json)
    [ ! -e "${files[0]}" ] || python3 "$here/summary.py" "${files[@]}"
fi
exit $status
