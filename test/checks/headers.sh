#!/usr/bin/env bash
# Every public header stands alone, in C and in C++, brings the headers of the contract, and
# has its own include guard. Those for C++ alone are looked at by cpp_headers.sh.
#
#   headers.sh <source folder> <C compiler> <C++ compiler>
set -euo pipefail

include=$1/include
cc=$2
cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "$*" >&2
    failed=1
}

# guard and direct includes of each header
table='
umf.h UMF_UNIFIED_MEMORY_FRAMEWORK_H umf/base.h umf/memory_pool.h umf/memory_provider.h umf/result.h
umf/base.h UMF_BASE_H stddef.h stdint.h
umf/result.h UMF_RESULT_H umf/base.h
umf/reason.h UMF_REASON_H umf/base.h
umf/memory_provider_ops.h UMF_MEMORY_PROVIDER_OPS_H stdarg.h umf/base.h
umf/memory_provider.h UMF_MEMORY_PROVIDER_H umf/memory_provider_ops.h
umf/memory_provider_gpu.h UMF_MEMORY_PROVIDER_GPU_H umf/memory_provider.h
umf/memory_pool_ops.h UMF_MEMORY_POOL_OPS_H stdarg.h umf/base.h umf/memory_provider.h
umf/memory_pool.h UMF_MEMORY_POOL_H umf/base.h umf/memory_pool_ops.h umf/memory_provider.h
umf/memory_pool_ext.h UMF_MEMORY_POOL_EXT_H stdbool.h umf/base.h umf/memory_pool.h
umf/ipc.h UMF_IPC_H umf/memory_pool.h
umf/ipc_ext.h UMF_IPC_EXT_H umf/base.h umf/ipc.h
umf/providers/provider_os_memory.h UMF_OS_MEMORY_PROVIDER_H umf/memory_provider.h
umf/providers/provider_file_memory.h UMF_FILE_MEMORY_PROVIDER_H umf/memory_provider.h
umf/providers/provider_devdax_memory.h UMF_DEVDAX_MEMORY_PROVIDER_H umf/memory_provider.h
umf/providers/provider_fixed_memory.h UMF_FIXED_MEMORY_PROVIDER_H umf/memory_provider.h
umf/providers/provider_cuda.h UMF_CUDA_PROVIDER_H umf/memory_provider_gpu.h
umf/providers/provider_cuda_vmm.h UMF_CUDA_VMM_MEMORY_PROVIDER_H umf/memory_provider_gpu.h
umf/providers/provider_linux_vmm.h UMF_LINUX_VMM_MEMORY_PROVIDER_H umf/memory_provider.h
umf/providers/provider_level_zero.h UMF_LEVEL_ZERO_PROVIDER_H stdbool.h umf/memory_provider_gpu.h
umf/providers/provider_level_zero_vmm.h UMF_LEVEL_ZERO_VMM_MEMORY_PROVIDER_H umf/providers/provider_level_zero.h
umf/pools/pool_proxy.h UMF_PROXY_MEMORY_POOL_H umf/memory_pool.h umf/memory_provider.h
umf/pools/pool_coalescing.h UMF_COALESCING_MEMORY_POOL_H umf/memory_pool.h umf/memory_provider.h
umf/pools/pool_disjoint.h UMF_DISJOINT_MEMORY_POOL_H umf/memory_pool.h umf/memory_provider.h
umf/pools/pool_jemalloc.h UMF_JEMALLOC_MEMORY_POOL_H umf/memory_pool_ops.h
umf/pools/pool_scalable.h UMF_SCALABLE_MEMORY_POOL_H stdbool.h umf/memory_pool.h umf/memory_provider.h
umf/experimental/ctl.h UMF_CTL_H umf/base.h
umf/experimental/memory_properties.h UMF_MEMORY_PROPERTIES_H umf/base.h
umf/experimental/memtarget.h UMF_MEMTARGET_H umf/base.h
umf/experimental/mempolicy.h UMF_MEMPOLICY_H umf/base.h
umf/experimental/memspace.h UMF_MEMSPACE_H umf/experimental/mempolicy.h umf/experimental/memtarget.h umf/memory_pool.h umf/memory_provider.h
umf/proxy_lib_new_delete.h UMF_PROXY_LIB_NEW_DELETE_H new stddef.h stdlib.h
umf/cuda_device.h UMF_CUDA_DEVICE_H stdbool.h umf/base.h
umf/plugin.h UMF_PLUGIN_H umf/base.h umf/memory_pool_ops.h umf/memory_provider_ops.h
umf/capture.h UMF_CAPTURE_H umf/base.h
umf/copy.h UMF_COPY_H umf/base.h umf/memory_pool.h
umf/queue.h UMF_QUEUE_H umf/base.h umf/memory_pool.h
umf/record.h UMF_RECORD_H umf/base.h umf/memory_pool.h
umf/record_format.h UMF_RECORD_FORMAT_H stdint.h
umf/record_attach.h UMF_RECORD_ATTACH_H stdint.h
umf/view_format.h UMF_VIEW_FORMAT_H stdint.h
umf/reclaim.h UMF_RECLAIM_H stdbool.h umf/base.h umf/memory_pool.h umf/memory_provider.h
umf/registration.h UMF_REGISTRATION_H umf/base.h umf/memory_pool.h
umf/remote.h UMF_REMOTE_H umf/base.h
umf/suspend.h UMF_SUSPEND_H umf/base.h umf/memory_pool.h
umf/vault.h UMF_VAULT_H umf/base.h umf/memory_pool.h umf/remote.h umf/suspend.h
umf/text.h UMF_TEXT_H umf/base.h umf/memory_pool.h umf/memory_provider.h
umem/umem.h UMEM_H stdbool.h stdint.h stdio.h stdlib.h
umem/umem_config.h UMEM_CONFIG_H
umem/umem_utils.h UMEM_UTILS_H inttypes.h stdalign.h stddef.h
umem/rmm.h UMEM_RMM_H stdbool.h stddef.h
'

compile() { # <header> <compiler> <language and standard...>
    local header=$1
    shift
    "$@" -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I"$include" -fsyntax-only \
        "$work/alone.c" || fail "$header does not compile alone with: $*"
}

# Those of kinds of providers and pools that came later: a guard of that form, and what they include is theirs.
listed=$(awk 'NF {print $1}' <<<"$table" | sort)
present=$(cd "$include" && find . -name '*.h' | sed 's|^\./||' | sort)
later=$(comm -13 <(echo "$listed") <(echo "$present") | grep -E '^umf/(providers|pools)/' || true)
for header in $later; do
    guard=$(sed -nE 's/^#ifndef (UMF_[A-Z0-9_]+_H)$/\1/p' "$include/$header" | head -1)
    table+="$header ${guard:-UMF_..._H} $(sed -n 's/^#include <\(.*\)>$/\1/p' "$include/$header" | tr '\n' ' ')
"
done

while read -r header guard includes; do
    [ -n "$header" ] || continue
    found=$(sed -n 's/^#include <\(.*\)>$/\1/p' "$include/$header" | tr '\n' ' ')
    [ "${found% }" = "${includes% }" ] || fail "$header includes '${found% }', expected '$includes'"
    first=$(grep -m1 '^#ifndef' "$include/$header")
    [ "$first" = "#ifndef $guard" ] || fail "$header begins with '$first', expected guard $guard"

    # Twice, to try the guard; C++ needs the C names.
    printf '#include <%s>\n#include <%s>\n#ifndef %s\n#error guard\n#endif\nextern int alone;\n' \
        "$header" "$header" "$guard" >"$work/alone.c"
    compile "$header" "$cc" -x c -std=c11 -Wstrict-prototypes
    compile "$header" "$cxx" -x c++ -std=c++11
    compile "$header" "$cxx" -x c++ -std=c++17
done <<<"$table"

listed=$(awk 'NF {print $1}' <<<"$table" | sort)
[ "$listed" = "$present" ] || fail "headers and this script's table differ:
$(diff <(echo "$listed") <(echo "$present") || true)"

exit "$failed"
