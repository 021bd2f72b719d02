#!/usr/bin/env bash
# Checks that a program linked with another libumf.so.1 runs with ours:
# dropin.sh <cc> <libumf.so> <project root> <work folder>
#
# The other one is a stand-in that has the soname, the symbols and the version nodes of the released
# versions and nothing behind them; a program is linked with it and then run with our file in its place.
set -euo pipefail

cc=$1 library=$2 root=$3 work=$4
abi=$root/test/checks/abi.txt

rm -rf "$work"
mkdir -p "$work/theirs" "$work/ours"

awk '!/^#/ { printf ".globl %s\n.type %s, %%function\n%s:\n", $1, $1, $1 }
    END { print ".long 0\n.section .note.GNU-stack,\"\",%progbits" }' "$abi" >"$work/theirs/umf.s"
awk '!/^#/ { symbols[$2] = symbols[$2] " " $1 ";" }
    END {
        print "UMF_1.0 { global:" symbols["UMF_1.0"] " local: *; };"
        print "UMF_1.1 { global:" symbols["UMF_1.1"] " } UMF_1.0;"
        print "UMF_1.2 { global:" symbols["UMF_1.2"] " } UMF_1.1;"
        print "UMF_EXT_1 { global:" symbols["UMF_EXT_1"] " } UMF_1.2;"
    }' "$abi" >"$work/theirs/umf.map"
"$cc" -shared -nostdlib -Wl,-soname,libumf.so.1 -Wl,--version-script="$work/theirs/umf.map" \
    -o "$work/theirs/libumf.so" "$work/theirs/umf.s"
ln -s "$(realpath "$library")" "$work/ours/libumf.so.1"

"$cc" -std=gnu17 -I"$root/include" -o "$work/dropin" "$root/test/checks/dropin.c" \
    -L"$work/theirs" -lumf
LD_LIBRARY_PATH=$work/ours "$work/dropin"

# Unused symbols are bound, too: none may be missing or under another node.
{
    awk '!/^#/ { printf "void %s(void);\n", $1 }' "$abi"
    echo 'void (*const all[])(void) = {'
    awk '!/^#/ { printf "%s,\n", $1 }' "$abi"
    echo '}; int main(void) { return all[0] == 0; }'
} >"$work/all.c"
"$cc" -o "$work/all" "$work/all.c" -L"$work/theirs" -lumf
LD_BIND_NOW=1 LD_LIBRARY_PATH=$work/ours "$work/all"
echo "check_dropin: a program linked with another libumf.so.1 runs with this one"
