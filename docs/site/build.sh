#!/usr/bin/env bash
# Makes the site: build.sh <Doxyfile> <version> <work folder>. Its first page is <work folder>/html/index.html.
# Warnings are errors. 77: a tool is missing.
set -euo pipefail

doxyfile=$1 version=$2 work=$3
site=$(cd "$(dirname "$0")" && pwd)

# Where scripts/install-deps.sh puts Sphinx; elsewhere it may be part of the system.
export PYTHONPATH=$site/../../build/deps/sphinx${PYTHONPATH:+:$PYTHONPATH}
# The first python3 of PATH may be another than that which a system's packages are for.
has_sphinx() {
    "$1" -c 'import sphinx, breathe, furo, myst_parser' 2>/dev/null
}
python=python3
has_sphinx $python || python=/usr/bin/python3
if ! command -v doxygen >/dev/null || ! has_sphinx $python; then
    echo "the site needs Doxygen, and Sphinx with Breathe, Furo and MyST; scripts/install-deps.sh installs them" >&2
    exit 77
fi

# Always anew: Sphinx would leave old titles in the navigation of pages that did not change.
rm -rf "$work"/{doxygen,pages,doctrees,html}
mkdir -p "$work"/{doxygen,pages}
(cat "$doxyfile" && echo "OUTPUT_DIRECTORY = $work/doxygen") | doxygen -
"$python" -B -m sphinx -q -W --keep-going -c "$site" -d "$work/doctrees" -D "release=$version" \
    -D "html_title=libumf $version" -D "breathe_projects.umf=$work/doxygen/xml" "$work/pages" "$work/html"
