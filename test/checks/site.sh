#!/usr/bin/env bash
# Makes the site of the documentation and checks its content:
#
#   site.sh <project root> <Doxyfile> <version> <work folder>
set -euo pipefail

root=$1 doxyfile=$2 version=$3 work=$4

bash "$root/docs/site/build.sh" "$doxyfile" "$version" "$work"
python3 -B "$root/test/checks/site.py" "$root/include" "$work/html"
