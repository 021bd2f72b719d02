#!/usr/bin/env bash
# Reads the headers; a public name without a description is an error.
#
#   docs.sh <Doxyfile> <include folder> <work folder>
set -euo pipefail

doxyfile=$1 include=$2 work=$3

command -v doxygen >/dev/null || {
    echo "check_docs: skipped, doxygen is not here (scripts/install-deps.sh installs it)"
    exit 77
}
failed=0

# Without it Doxygen leaves out all functions of the file, and says nothing.
for header in $(find "$include" -name '*.h' -o -path '*/umf/*.hpp'); do
    if [ "$(head -n 1 "$header")" != '/** @file' ]; then
        echo "$header does not begin with: /** @file"
        failed=1
    fi
done

rm -rf "$work"
mkdir -p "$work"
(cat "$doxyfile" && echo "OUTPUT_DIRECTORY = $work") | doxygen - || failed=1

# Doxygen does not miss the description of an enum value.
bare=$(awk '
    /<enumvalue / { inside = 1; name = ""; described = 0 }
    inside && /<name>/ { name = $0; gsub(/.*<name>|<\/name>.*/, "", name) }
    inside && /<para>/ { described = 1 }
    /<\/enumvalue>/ { if (!described) print name; inside = 0 }' "$work"/xml/*.xml | sort -u)
if [ -n "$bare" ]; then
    echo "enum values without a description:" $bare
    failed=1
fi

[ $failed -ne 0 ] || echo "check_docs: everything public is described"
exit $failed
