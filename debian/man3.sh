#!/bin/sh
# Makes what Doxygen wrote fit to be installed: man3.sh <folder of man3>
#
# Of the pages that only lead to another, those of functions stay. Pages whose names are too general for a folder of
# all packages, of headers above all, begin with umf_. A quote at the start of a line is text and no request of roff.
# Readers of the line of the name do not expect the parameters of a template there.
set -eu

cd "$1"
find . -type f ! -name 'umf[A-Z]*' ! -name 'umem[A-Z]*' -exec grep -q '^\.so' {} \; -delete
find . -type f -name '* *' -delete # specializations of templates
for page in *; do
    case $page in
    umf* | umem*) ;;
    *) mv "$page" "umf_$page" ;;
    esac
done
sed -i -e '/^\.SH NAME/,/^\.SH SYN/ s/^\(umf::[a-z_]*\)< .* > \\-/\1 \\-/' -e "s/\\\\\\\\'/\\\\e\\\\(aq/g" -e "s/^'/\\\\\\&'/" -e '/^\.so man3\/um[fe]/! s/^\.so man3\//&umf_/' -- *
# A link to a page that is not here would be an empty page.
for page in *; do
    target=$(sed -n 's/^\.so man3\///p' "$page")
    [ -z "$target" ] || [ -e "$target" ] || { echo "man3.sh: $page leads to $target, which is not here" >&2; exit 1; }
done
