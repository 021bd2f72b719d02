#!/usr/bin/env bash
# C++ can include every private header, inside of extern "C", as tests do: a folder at a time, because
# folders may use a name for types of their own.
#
#   private_headers.sh <source folder> <C++ compiler> [folder of other headers]...
set -euo pipefail

cd "$1/src"
cxx=$2
shift 2
failed=0
for folder in $(find . -name '*.h' -printf '%h\n' | sort -u); do
    # The params_ headers are parts of a file, between macros.
    headers=$(find "${folder#./}" -maxdepth 1 -name '*.h' ! -name 'params_*.h' | sort)
    {
        echo 'extern "C" {'
        sed 's/.*/#include "&"/' <<<"$headers"
        echo '}'
    } | "$cxx" -std=c++17 -fsyntax-only -w -I. -I../include "${@/#/-idirafter}" -x c++ - ||
        { echo "C++ cannot include a header of src/$folder" >&2; failed=1; }
done
exit $failed
