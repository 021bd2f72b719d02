#!/usr/bin/env bash
# Shows that includes.sh catches violations: each line breaks one rule.
set -euo pipefail

check=$(cd "$(dirname "$0")" && pwd)/includes.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

reset_tree() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree"/lib "$tree"/src/{base,core,providers/cuda/vmm,providers/os}
    echo '#include "base/log.h"' >"$tree/src/core/good.c"
    printf '#include "%s"\n' providers/os/numa.h providers/shared/name.h peer/process.h \
        >"$tree/src/providers/os/os.c"
    echo '#include "providers/vmm/vmm.h"' >"$tree/src/providers/cuda/vmm/cuda_vmm.c"
}

expect_caught() {
    reset_tree
    mkdir -p "$(dirname "$tree/$1")"
    echo "#include $2" >"$tree/$1"
    if bash "$check" "$tree" >/dev/null; then
        echo "not caught: $1 includes $2"
        exit 1
    fi
}

reset_tree
bash "$check" "$tree" >/dev/null || { echo "a good tree was refused"; exit 1; }

expect_caught src/base/x.c '"object/provider/tracked_provider.h"'
expect_caught src/base/x.c '<umf/memory_pool.h>'
expect_caught src/ds/x.c '"track/span.h"'
expect_caught src/core/x.c '"providers/os/os.h"'
expect_caught src/core/x.c '<umf/providers/provider_os_memory.h>'
expect_caught src/system/x.c '"base/log.h"'
expect_caught src/providers/os/os.c '"providers/vmm/vmm.h"'
expect_caught src/providers/os/os.c '"providers/file/window.h"'
expect_caught src/providers/fixed.c '"track/span.h"'
expect_caught src/providers/fixed.c '"ctl/ctl.h"'
expect_caught src/providers/vmm/x.c '"providers/cuda/driver.h"'
expect_caught src/providers/cuda/x.c '"providers/cuda/vmm/cuda_vmm_own.h"'
expect_caught src/pools/disjoint/x.c '"pools/jemalloc/pages.h"'
expect_caught src/ext/suspend/x.c '"ipc/wire.h"'
expect_caught src/ext/staging/x.c '"ext/movement/move.h"'
expect_caught src/object/x.c '"reclaim/reclaim.h"'
expect_caught src/reclaim/x.c '"ext/queue/stream_caches.h"'
expect_caught lib/umem/x.c '"object/object.h"'
expect_caught src/pools/x.c '"ipc/wire.h"'
expect_caught src/numa/x.c '<umf/ipc.h>'
expect_caught src/topology/x.c '"numa/memspace.h"'
expect_caught src/peer/x.c '"object/object.h"'
expect_caught src/core/x.c '"view.h"'
expect_caught src/unknown/x.c '"base/log.h"'
expect_caught examples/x.c '"base/log.h"'
expect_caught tools/x.c '"base/log.h"'

reset_tree
touch "$tree"/src/core/{1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}.c
if bash "$check" "$tree" >/dev/null; then
    echo "not caught: 16 rooms in a folder"
    exit 1
fi
echo "check_includes_catches: every broken rule was caught"
