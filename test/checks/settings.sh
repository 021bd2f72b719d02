#!/usr/bin/env bash
# Checks that docs/guide/configuration.md names every environment variable of the source, creation.md every setting
# and counters.md every path, and nothing else; and that the functions and constants which the guide speaks of exist:
# settings.sh <project root> [--write]
#
# The table of what each kind takes is that of the parameters in src/; --write makes it so.
#
# In the pages a name is a first cell of a table: | `NAME` | ... for variables, paths below an object
# (`stats.used_memory`) and settings of a kind in creation text (`os visibility`).
set -euo pipefail

cd "$1"
guide=docs/guide
page=$guide/creation.md # of the table

# First cells of tables that have this form, without their backticks.
cells() { # <page> <form>
    sed -nE 's/^\| `([^`]+)` +\|.*/\1/p' "$1" | grep -E "$2" | sort -u || true
}

compare() { # <what> <names in the source> <names in the page> <page>
    local only
    [ -n "$2" ] || { echo "no $1 found in the source: is the pattern still right?"; return 1; }
    only=$(comm -23 <(echo "$2") <(echo "$3"))
    [ -z "$only" ] || { echo "$1 not in $4:" $only; return 1; }
    only=$(comm -13 <(echo "$2") <(echo "$3"))
    [ -z "$only" ] || { echo "$1 in $4, but not in the source:" $only; return 1; }
}

# Fields with the macros that stand for them; unusable ones are left out.
paths_in() {
    sed -nE 's/.*\.path = "([^"]+)"[,}].*/\1/p
        s/.*\.path = "([^"]+)"$/\1/p
        s/.*COUNTER_FIELDS\("([^"]+)".*/stats.\1\nbuckets.{}.stats.\1/p' "$@" |
        grep -vxE 'post_initialize|buckets\.size|buckets\.\{\}\.count' || true
}

status=0
variables=$(grep -rhoE 'getenv\("[A-Z_]+"' src lib | sed 's/.*"\(.*\)"/\1/' | sort -u)
compare "environment variables" "$variables" "$(cells $guide/configuration.md '^[A-Z_]+$')" $guide/configuration.md || status=1

# The rows of a table of parameters, as the page has them: | `kind setting` | default | help |
rows_of() { # <table>
    local kind=${1##*/}
    kind=${kind%_params.def}
    ${CC:-cc} -std=c11 -E -P -x c - <<EOF |
#define UMF_PARAMS_CREATE(...)
#define UMF_PARAMS_CREATE_BY_HAND(...)
#define UMF_PARAMS_DESTROY(...)
#define UMF_PARAM(api, function, type, c_type, member, value, ...) UMF_PARAM_PARSED(type, member, __VA_ARGS__)
#define UMF_PARAM_TEXT(type, c_type, member, value, ...) UMF_PARAM_PARSED(type, member, __VA_ARGS__)
#define UMF_PARAM_PARSED(type, name, shown, help, ...) @name | shown | help @
#include "$PWD/$1"
EOF
        tr '\n@' ' \n' | sed -nE "s/\" *\"//g; s/^([a-zA-Z_0-9]+) \| \"(.*)\" \| \"(.*)\" *$/| '$kind \1' | \2 | \3 |/p" |
        sed -E "s/(^|[ (])'([^']+)'/\1\`\2\`/g"
}

kinds=$(sed -nE 's/^UMF_(PROVIDER|POOL)\(([a-z0-9_]+),.*/\2/p' src/providers/providers.def \
    src/pools/pools.def)
# No text can say where the memory of a fixed provider is.
rows=$(for kind in $kinds; do
    [ "$kind" != fixed ] || continue
    for table in $(find src/providers src/pools -name "${kind}_params.def"); do
        rows_of "$table"
    done
done)
pattern='^[|] `[a-z_0-9]+ [a-z_A-Z0-9]+` [|]'
if [ "${2:-}" = --write ]; then
    awk -v pattern="$pattern" -v rows="$(sed 's/\\/&&/g' <<<"$rows")" '
        $0 !~ pattern { print; next }
        !written { print rows; written = 1 }' "$page" >"$page.new"
    mv "$page.new" "$page"
elif ! diff <(echo "$rows") <(grep -E "$pattern" "$page"); then
    echo "the table of $page (>) is not that of the parameters (<): run bash test/checks/settings.sh . --write"
    status=1
fi

paths=$(paths_in $(find src lib -name '*.c') | grep -v '^params\.' | sort -u)
compare "paths" "$paths" \
    "$(cells $guide/counters.md '^[a-z_.{}]+$' | sed -E 's/^umf\.(logger|ipc|reclaim|record|suspend)\.//' |
        grep -v '^\(umf\|params\)\.' | sort -u)" $guide/counters.md || status=1

# A setting removed since an older UMF is named in migration.md only.
names=$(grep -hoE '\b(umf[A-Z][A-Za-z0-9]+|UMF_[A-Z0-9_]*[A-Z0-9])\b' README.md docs/guide.md \
    $(find docs/guide -name '*.md' ! -name migration.md) | sort -u)
known=$(grep -rhoE '\b(umf[A-Z][A-Za-z0-9]+|UMF_[A-Z0-9_]*[A-Z0-9])\b' include CMakeLists.txt cmake \
    test/checks/{abi.txt,exports.sh} | sort -u) # the last two have the nodes of symbols
unknown=$(comm -23 <(echo "$names") <(sort -u <<<"$known
$variables"))
if [ -n "$unknown" ]; then
    echo "the guide speaks of what does not exist:" $unknown
    status=1
fi

[ $status -ne 0 ] || echo "check_settings: $(wc -l <<<"$variables") variables," \
    "$(wc -l <<<"$rows") settings and $(wc -l <<<"$paths") paths are in the guide"
exit $status
