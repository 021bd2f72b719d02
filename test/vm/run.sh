#!/usr/bin/env bash
# Runs the programs of test/vm in a virtual machine with four NUMA nodes and an HMAT, under software
# emulation: run.sh <build folder> [<more programs, such as unit tests>...]
#
# Exit status: 0 passed, 1 failed, 77 skipped. UMF_VM_DEPS names the folder with a kernel and the
# modules for DAX (scripts/install-deps.sh fills it), UMF_VM_TIMEOUT how many seconds it may take.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
deps=${UMF_VM_DEPS:-$root/build/deps/vm}
limit=${UMF_VM_TIMEOUT:-540}

skip() {
    echo "vm: skipped, $1"
    exit 77
}

[ $# -ge 1 ] || {
    echo "usage: test/vm/run.sh <build folder> [program...]" >&2
    exit 2
}
build=$1
shift

shopt -s nullglob
programs=("$build"/test/umf_vm_* "$@")
kernels=("$deps"/vmlinuz-*)
modules=("$deps"/*.ko)
[ "$(uname -m)" = x86_64 ] || skip "the machine is an x86_64 one and its programs are not"
[ ${#programs[@]} -gt 0 ] || skip "$build/test has no program umf_vm_*"
for tool in qemu-system-x86_64 busybox; do
    command -v $tool >/dev/null || skip "$tool is not here (scripts/install-deps.sh installs it)"
done
[ ${#kernels[@]} -gt 0 ] || skip "$deps has no kernel (scripts/install-deps.sh fetches one)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- the initial file system ----------------------------------------------------------------------

# add <folder> <program>: with the libraries it needs, and their loader where it looks for it.
add() {
    local library
    cp -L "$2" "$work/root/$1"
    for library in $(ldd "$2" | grep -oE '/[^ ]+'); do
        case $library in
        */ld-linux*) cp -L "$library" "$work/root/lib64" ;;
        *) cp -L "$library" "$work/root/lib" ;;
        esac
    done
}

mkdir -p "$work"/root/{bin,lib,lib64,programs/tools}
cp "$root/test/vm/init" "$work/root/init"
chmod 755 "$work/root/init"
cp "$(command -v busybox)" "$work/root/bin/busybox"
for program in "${programs[@]}"; do
    add programs "$program"
done
if [ -x "$build/umfd/umfd" ]; then
    add programs/tools "$build/umfd/umfd"
fi
# Not in everybody's path.
mke2fs=$(PATH=$PATH:/usr/sbin:/sbin command -v mke2fs || true)
if [ -n "$mke2fs" ]; then
    add programs/tools "$mke2fs"
fi
if [ ${#modules[@]} -gt 0 ]; then
    mkdir "$work/root/modules"
    cp "${modules[@]}" "$work/root/modules"
fi
(cd "$work/root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/initramfs"

# --- the machine: guest.h has it, too -----------------------------------------------------------

# Nodes 0 and 1 have a CPU each. Node 2 is near to node 0, small and fast; node 3 is behind node 1,
# large and slow, with a cache. Two NVDIMMs become an FSDAX and a devdax device.
sizes=(256M 192M 128M 384M)
nearest=(0 1 0 1)
latencies=("100 200 150 400" "200 100 250 300")
bandwidths=("50G 20G 200G 8G" "20G 50G 20G 10G")
distances=("10 20 13 34" "20 10 23 24" "13 23 10 37" "34 24 37 10")

machine=(-machine "q35,hmat=on,nvdimm=on" -accel "tcg,thread=multi" -cpu max
    -smp "2,sockets=2,cores=1" -m "960M,slots=2,maxmem=2G")
for node in 0 1 2 3; do
    place=initiator=${nearest[$node]}
    [ "$node" -ge 2 ] || place=cpus=$node
    machine+=(-object "memory-backend-ram,id=memory$node,size=${sizes[$node]}"
        -numa "node,nodeid=$node,memdev=memory$node,$place")
done
for node in 0 1 2 3; do
    read -ra row <<<"${distances[$node]}"
    for target in 0 1 2 3; do
        machine+=(-numa "dist,src=$node,dst=$target,val=${row[$target]}")
    done
done
for initiator in 0 1; do
    read -ra latency <<<"${latencies[$initiator]}"
    read -ra bandwidth <<<"${bandwidths[$initiator]}"
    for target in 0 1 2 3; do
        entry=hmat-lb,initiator=$initiator,target=$target,hierarchy=memory
        machine+=(
            -numa "$entry,data-type=access-latency,latency=${latency[$target]}"
            -numa "$entry,data-type=access-bandwidth,bandwidth=${bandwidth[$target]}")
    done
done
machine+=(
    -numa "hmat-cache,node-id=3,size=16M,level=1,associativity=direct,policy=write-back,line=64"
    -object "memory-backend-ram,id=fsdax,size=128M" -device "nvdimm,id=nvdimm0,memdev=fsdax"
    -object "memory-backend-ram,id=devdax,size=64M" -device "nvdimm,id=nvdimm1,memdev=devdax")

# Nothing may move a page or spread a huge one over memory bound page by page.
command_line="console=ttyS0 quiet panic=-1 swiotlb=noforce numa_balancing=disable nokaslr"
command_line+=" transparent_hugepage=never"

# --- run ------------------------------------------------------------------------------------------

status=0
timeout --kill-after=10 "$limit" qemu-system-x86_64 "${machine[@]}" \
    -nodefaults -display none -monitor none -serial stdio -no-reboot \
    -kernel "${kernels[-1]}" -initrd "$work/initramfs" -append "$command_line" \
    </dev/null 2>&1 | tr -d '\r' | tee "$work/log" || status=$?

if grep -q '^umf-vm: passed$' "$work/log"; then
    exit 0
elif [ "$status" -eq 124 ]; then
    echo "vm: stopped after $limit seconds (UMF_VM_TIMEOUT)" >&2
elif ! grep -q '^umf-vm: failed' "$work/log"; then
    echo "vm: the machine ended before its programs did (qemu: $status)" >&2
fi
exit 1
