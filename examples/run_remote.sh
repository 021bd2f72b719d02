#!/usr/bin/env bash
# Runs the two examples of remote memory against each other: run_remote.sh <owner> <peer>
#
# Both are processes of this machine, which the loopback device connects. With the third argument
# "networks" each is in a network of its own, with a link between them, as two machines would be.
set -euo pipefail

skip() {
    echo "$1"
    exit 77
}

here=$(cd "$(dirname "$0")" && pwd)
owner=$(realpath "$1")
peer=$(realpath "$2")

# Inside of two new namespaces, as root of the first: run_remote.sh <owner> <peer> inside
if [ "${3:-}" = networks ]; then
    command -v unshare >/dev/null && command -v ip >/dev/null || skip "no unshare or ip here"
    unshare --user --map-root-user --net --mount true 2>/dev/null || skip "namespaces are denied here"
    exec unshare --user --map-root-user --net --mount bash "$here/run_remote.sh" "$owner" "$peer" inside
fi

folder=$(mktemp -d)
other=
cleanup() {
    [ -z "$other" ] || kill "$other" 2>/dev/null || true
    rm -rf "$folder"
}
trap cleanup EXIT
arguments_owner=("$folder/handle")
arguments_peer=("$folder/handle")
enter=()

if [ "${3:-}" = inside ]; then
    # UCX looks for its devices in the /sys of its network.
    mount -t sysfs sysfs /sys 2>/dev/null || skip "no /sys of a namespace here"
    unshare --net --mount bash -c "mount -t sysfs sysfs /sys && echo \$\$ >$folder/pid && exec sleep 300" &
    other=$!
    until [ -s "$folder/pid" ]; do sleep 0.05; done
    ip link add umf0 type veth peer name umf1 2>/dev/null || skip "no pair of network devices here"
    ip link set umf1 netns "$other"
    ip addr add 10.77.0.1/24 dev umf0
    ip link set umf0 up
    enter=(nsenter --target "$other" --net --mount)
    "${enter[@]}" ip addr add 10.77.0.2/24 dev umf1
    "${enter[@]}" ip link set umf1 up
    (umask 077 && head -c 32 /dev/urandom >"$folder/key")
    arguments_owner+=(umf0 "$folder/key")
    arguments_peer+=(umf1 "$folder/key")
fi

"$owner" "${arguments_owner[@]}" &
process=$!
until [ -s "$folder/handle" ]; do
    kill -0 "$process" 2>/dev/null || break
    sleep 0.05
done
if [ ! -s "$folder/handle" ]; then
    wait "$process"
    exit 1
fi

status=0
"${enter[@]}" "$peer" "${arguments_peer[@]}" || status=$?
[ $status -eq 0 ] || kill "$process" 2>/dev/null || true
wait "$process" || status=1
exit $status
