#!/usr/bin/env bash
# Checks who includes whom: includes.sh <project root>
#
# The table is the one of docs/ARCHITECTURE.md. A word is a folder of src/ or one of its headers;
# "public" is any public header, "umf/base.h" that one alone.
set -euo pipefail

cd "$1"

table='
base      base umf/base.h umf/result.h
ds        base ds umf/base.h
ctl       base ds ctl public
track     base ds track public
core      base ds ctl track core providers/providers.def pools/pools.def public
providers base ds ctl/field.h numa/topology.h ipc/transport.h ipc/named.h ipc/process.h ipc/turn.h core/tracked.h providers public
pools     base ds ctl/field.h track/span.h core/view.h core/content.h pools public
ipc       base ds ctl/ctl.h ctl/field.h track core ipc public
numa      base numa public
suspend   base ds track core ipc/turn.h providers/os_place.h suspend public
proxy_lib proxy_lib public
'

# The kinds of the two lists: a provider file may not include another provider's header.
kinds=$(sed -nE 's/^UMF_(PROVIDER|POOL)\(([a-z0-9_]+),.*/\2/p' \
    $(find src -name '*.def') /dev/null)

find src -mindepth 2 -name '*.[ch]' | sort | xargs -r awk -v table="$table" -v kinds="$kinds" '
    function fail(why) {
        printf "%s:%d: %s may not include %s: %s\n", FILENAME, FNR, layer, header, why
        failed = 1
    }
    # cuda_vmm.c and cuda.h are one kind: the first word of the file name.
    function kind_of(path) {
        sub(/.*\//, "", path)
        sub(/[._].*/, "", path)
        return path
    }
    BEGIN {
        rows = split(table, row, "\n")
        for (i = 1; i <= rows; i++) {
            words = split(row[i], word, " ")
            for (j = 2; j <= words; j++) allowed[word[1], word[j]] = 1
            if (words) known[word[1]] = 1
        }
        count = split(kinds, kind, "\n")
        for (i = 1; i <= count; i++) is_kind[kind_of(kind[i])] = 1
    }
    FNR == 1 {
        layer = FILENAME
        sub(/^src\//, "", layer)
        sub(/\/.*/, "", layer)
        if (!(layer in known)) {
            printf "src/%s: a folder the table of test/checks/includes.sh does not know\n", layer
            failed = 1
            nextfile
        }
    }
    /^[ \t]*#[ \t]*include[ \t]*[<"]/ {
        header = $0
        sub(/^[^<"]*[<"]/, "", header)
        sub(/[>"].*/, "", header)
        if ($0 ~ /</) {
            if (header !~ /^umf(\/|\.h$)/) next
            if ((layer, header) in allowed) next
            if (!((layer, "public") in allowed)) fail("this public header is above it")
            else if (layer ~ /^(core|ipc|suspend)$/ && header ~ /^umf\/(providers|pools)\//)
                fail("it knows no provider or pool by name")
            else if (layer == "numa" && header == "umf/ipc.h") fail("it knows no IPC")
            next
        }
        folder = header
        if (!sub(/\/.*/, "", folder)) { fail("write the folder, as in \"base/log.h\""); next }
        if (!((layer, folder) in allowed) && !((layer, header) in allowed)) {
            fail("not in its row of the table")
        } else if (layer == "numa" && FILENAME ~ /\/topology/ && folder == "numa" && header != "numa/topology.h") {
            fail("providers use the topology, so it knows base only")
        } else if (folder == layer && layer ~ /^(providers|pools)$/) {
            target = kind_of(header)
            if (target in is_kind && target != kind_of(FILENAME)) fail("they do not know each other")
        }
    }
    END { exit failed }
'

# Outside src everything sees the public headers only. Unit tests are the exception.
outside=$(find examples benchmark tools test/conformance test/ipc test/preload test/stress test/vm \
    -name '*.[ch]*' 2>/dev/null || true)
layers=$(awk 'NF { printf "%s%s", sep, $1; sep = "|" }' <<<"$table")
if [ -n "$outside" ] && grep -nE "^ *# *include *[<\"](src/|($layers)/)" $outside; then
    echo "the files above are outside src and may include public headers only"
    exit 1
fi
echo "check_includes: every include is in the table"
