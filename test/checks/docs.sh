#!/usr/bin/env bash
# Reads the headers; a public name without a description is an error. Makes the manual pages of libumf-doc.
#
#   docs.sh <Doxyfile> <include folder> <work folder>
set -euo pipefail

doxyfile=$1 include=$2 work=$3
root=$(cd "$(dirname "$0")/../.." && pwd)

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
(cat "$doxyfile" && printf '%s\n' GENERATE_MAN=YES MAN_LINKS=YES "OUTPUT_DIRECTORY = $work") | doxygen - || failed=1

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

# A function, a header that it names, a text in quotes; no page that another package may have.
pages=$work/man/man3
sh "$root/debian/man3.sh" "$pages" || failed=1
header=$(sed -n 's/^\.so man3\///p' "$pages/umfPoolMalloc.3")
grep -q umfPoolMalloc "$pages/${header:-none}" || { echo "umfPoolMalloc.3 leads to no page that describes it"; failed=1; }
general=$(cd "$pages" && ls | grep -v '^umf' | grep -v '^umem' || true)
[ -z "$general" ] || { echo "manual pages whose names are too general:" $general; failed=1; }
templates=$(sed -n '/^\.SH NAME/,/^\.SH SYN/ s/^\(umf::.*\)< .* > .*/\1/p' "$pages"/*)
[ -z "$templates" ] || { echo "parameters of templates in the names of pages:" $templates; failed=1; }
quotes=$(grep -l "^'" "$pages"/* || true)
[ -z "$quotes" ] || { echo "lines that roff takes for requests, in:" $quotes; failed=1; }
grep -q "^\\\\&'success'" "$pages"/umf_provider_os_memory.h.3 || { echo "a text in quotes is lost"; failed=1; }

[ $failed -ne 0 ] || echo "check_docs: everything public is described"
exit $failed
