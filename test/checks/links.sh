#!/usr/bin/env bash
# Checks that every link inside the documentation leads somewhere: links.sh <project root>
#
# Links in text, [words](path#heading), of README.md, CHANGELOG.md, CONTRIBUTING.md, docs/ and benchmark/README.md:
# the file must exist, and a heading of that file must have this anchor (lower case, spaces as '-',
# as Git hosts make it). Links to other machines are not looked at.
set -euo pipefail

cd "$1"

# Prints "anchor <file> <anchor>" and "link <file>:<line> <target>".
scan='
    FNR == 1 { fenced = 0; split("", seen) }
    /^```/ { fenced = !fenced; next }
    fenced { next }
    /^#+ / {
        anchor = $0
        sub(/^#+ +/, "", anchor)
        gsub(/`/, "", anchor)
        anchor = tolower(anchor)
        gsub(/[^a-z0-9 _-]/, "", anchor)
        gsub(/ /, "-", anchor)
        if (seen[anchor]++) anchor = anchor "-" seen[anchor] - 1
        print "anchor " FILENAME " " anchor
    }
    {
        text = $0
        gsub(/`[^`]*`/, "", text)
        while (match(text, /\]\([^)]+\)/)) {
            print "link " FILENAME ":" FNR " " substr(text, RSTART + 2, RLENGTH - 3)
            text = substr(text, RSTART + RLENGTH)
        }
    }'
pages=$(find README.md CHANGELOG.md CONTRIBUTING.md docs benchmark/README.md -name '*.md' | sort)
found=$(awk "$scan" $pages)

failed=0
count=0
while read -r _ place target; do
    case $target in
    *://* | mailto:*) continue ;;
    esac
    count=$((count + 1))
    page=${place%:*}
    path=${target%%#*}
    file=$page
    [ -z "$path" ] || file=$(realpath -m --relative-to=. "$(dirname "$page")/$path")
    if [ ! -e "$file" ]; then
        echo "$place: [..]($target): there is no $file"
        failed=1
    elif [ "$target" != "$path" ] && ! grep -qxF "anchor $file ${target#*#}" <<<"$found"; then
        echo "$place: [..]($target): $file has no heading of that name"
        failed=1
    fi
done < <(grep '^link ' <<<"$found")

[ $count -gt 0 ] || { echo "no link found at all: is the pattern still right?"; failed=1; }
[ $failed -ne 0 ] || echo "check_links: $count links lead somewhere"
exit $failed
