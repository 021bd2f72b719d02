#!/usr/bin/env bash
# Wrong uses of the C++ interface do not compile, and the message says what to do: refused.sh <compiler> <project>
set -euo pipefail

compiler=$1 project=$2
source=$project/test/cpp/refused.cpp
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

form=(-fno-diagnostics-show-caret) marks='// refused\( by gcc\)\?: '
if "$compiler" --version | grep -q clang; then
    form=(-fno-caret-diagnostics -ferror-limit=0) marks='// refused: '
fi
if LC_ALL=C "$compiler" -std=c++17 -Wall -Wextra -fsyntax-only -I"$project/include" "${form[@]}" "$source" 2>"$work/out"; then
    echo "refused.cpp compiles"
    exit 1
fi

failed=0
fail() {
    echo "refused.sh: $*"
    failed=1
}

# A message about a template is near the line that asked for it: behind it with gcc, before it with clang.
seen=0
while IFS=: read -r number line; do
    words=${line##*refused*: }
    seen=$((seen + 1))
    grep -q "refused.cpp:$number:" "$work/out" || fail "line $number is accepted: $line"
    grep -qF -- "$words" <<<"$(grep -B6 -A6 "refused.cpp:$number:" "$work/out")" || # no pipe: grep -q ends it early
        fail "line $number gets no message with '$words': $line"
done < <(grep -n "$marks" "$source")
[ $seen -gt 15 ] || fail "only $seen lines are marked"

right=$(grep -n 'What is right' "$source" | cut -d: -f1)
while IFS=: read -r number; do
    [ "$number" -lt "$right" ] || fail "line $number is right, and gets a message"
done < <(grep -o 'refused.cpp:[0-9]*:[0-9]*: \(error\|warning\)' "$work/out" | cut -d: -f2)

[ $failed -eq 0 ] || cat "$work/out"
exit $failed
