#!/usr/bin/env bash
# Checks who includes whom: includes.sh <project root>
#
# The table stands in docs/ARCHITECTURE.md, too: change both. A row is a folder of src/ or lib/ and what its files may include beside
# each other: a folder, or one header; "public" is any public header, "umf/base.h" that one alone. A folder
# inside of another has the rights of that one's row and of its own, if it has one.
set -euo pipefail

cd "$1"

table='
system       umf/base.h umf/result.h
base      system umf/base.h umf/reason.h
ds        system base
cache     system base track/page.h
ctl       system base ds public
track     system base ds
topology  system base public
peer      system base ds umf/base.h
object    system base ds cache ctl track object/provider public
reclaim   system base ds cache ctl track object object/provider public
core      system base ds cache ctl track object object/provider reclaim providers/providers.def pools/pools.def public
providers system base ds cache ctl/field.h ctl/params.h ctl/params_members.h ctl/params_define.h object/provider/provider_query.h object/foreign.h topology peer providers/shared public
pools     system base ds cache ctl/field.h ctl/params.h ctl/params_members.h ctl/params_define.h track/span.h track/page.h object/provider/tracked_provider.h object/provider/tracked_range.h object/content.h object/walk.h reclaim/reclaim.h pools/shared public
pools/coalescing pools/coalescing/arena
ipc       system base ds ctl/ctl.h ctl/field.h track peer object object/provider public
numa      system base topology public
ext          system base ds track object object/provider public
ext/staging  cache
ext/movement ext/staging
ext/suspend  ext/staging reclaim ctl/ctl.h ctl/field.h
ext/queue    cache reclaim
ext/vault    ext/vault/folder ext/staging
ext/fetch    ext/vault
ext/record   cache reclaim ctl/ctl.h ctl/field.h peer core/ctl_nodes.h ext/record ext/record/stack ext/record/snapshot ext/record/attach
proxy     public
umem      public
providers/cuda       providers/gpu providers/vmm
providers/level_zero providers/gpu providers/vmm
'

find src lib -mindepth 2 -name '*.[ch]' | sort | xargs -r awk -v table="$table" '
    function fail(why) {
        printf "%s:%d: %s may not include %s: %s\n", FILENAME, FNR, place, header, why
        failed = 1
    }
    # src/providers/os/x.c may include this, by the rows of providers/os and providers?
    function may(folder, what) {
        for (; folder != ""; folder = substr(folder, 1, length(folder) - length(leaf))) {
            if (folder == what || (folder, what) in allowed) return 1
            leaf = folder
            if (!sub(/.*\//, "/", leaf)) return 0
        }
        return 0
    }
    BEGIN {
        rows = split(table, row, "\n")
        for (i = 1; i <= rows; i++) {
            words = split(row[i], word, " ")
            for (j = 2; j <= words; j++) allowed[word[1], word[j]] = 1
            if (words) known[word[1]] = 1
        }
    }
    FNR == 1 {
        place = FILENAME
        sub(/^(src|lib)\//, "", place)
        sub(/\/[^\/]*$/, "", place)
        layer = place
        sub(/\/.*/, "", layer)
        if (!(layer in known)) {
            printf "%s: a folder the table of test/checks/includes.sh does not know\n", layer
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
            if (may(place, header)) next
            if (!may(place, "public")) fail("this public header is above it")
            else if (layer ~ /^(object|reclaim|core|ipc|ext)$/ && header ~ /^umf\/(providers|pools)\//)
                fail("it knows no provider or pool by name")
            else if (layer ~ /^(numa|topology)$/ && header == "umf/ipc.h") fail("it knows no IPC")
            next
        }
        folder = header
        if (!sub(/\/[^\/]*$/, "", folder)) { fail("write the folder, as in \"base/log.h\""); next }
        if (!may(place, folder) && !may(place, header)) fail("not in its row of the table")
    }
    END { exit failed }
'

# At most 15 rooms in a folder: a .c file with its header.
crowded=$(find src lib -mindepth 2 -name '*.c' | sed 's|/[^/]*$||' | sort | uniq -c | awk '$1 > 15')
if [ -n "$crowded" ]; then
    echo "more than 15 rooms in a folder: $crowded"
    exit 1
fi

# Outside src and lib everything sees the public headers only. Unit tests are the exception.
outside=$(find examples benchmark tools test/conformance test/ipc test/preload test/umem test/stress test/vm \
    -name '*.[ch]*' 2>/dev/null || true)
layers=$(awk 'NF { sub(/\/.*/, "", $1); printf "%s%s", sep, $1; sep = "|" }' <<<"$table")
if [ -n "$outside" ] && grep -nE "^ *# *include *[<\"](src/|($layers)/)" $outside; then
    echo "the files above are outside src and may include public headers only"
    exit 1
fi
echo "check_includes: every include is in the table"
