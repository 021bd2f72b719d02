#!/usr/bin/env bash
# A vault from one service to another by umf-remote: umf_remote_test.sh <umfctl> <umfd> <umf-remote> <example> <way>
#
# <way> is loopback; or networks: the two services are in networks of their own, with a link between them and a key, as two
# machines would be; or lossy: the same, over a link that delays and loses.
set -euo pipefail

skip() {
    echo "tools.umf_remote: $1"
    exit 77
}

here=$(cd "$(dirname "$0")" && pwd)
tests=$here
umfctl=$(realpath "$1")
umfd=$(realpath "$2")
remote=$(realpath "$3")
example=$(realpath "$4")
way=$5

[ -n "${6:-}" ] || "$umfctl" remote probe >/dev/null 2>&1 || skip "no UCX here"
inner=${6:-}
if [ "$way" != loopback ] && [ -z "$inner" ]; then
    command -v unshare >/dev/null && command -v ip >/dev/null || skip "no unshare or ip here"
    unshare --user --map-root-user --net --mount true 2>/dev/null || skip "namespaces are denied here"
    exec unshare --user --map-root-user --net --mount bash "$here/umf_remote_test.sh" "$umfctl" "$umfd" "$remote" "$example" "$way" inside
fi

folder=$(mktemp -d /tmp/umf_remote_tool_XXXXXX)
export UMF_UMFD=$umfd
there=$folder/there
here=$folder/here
mkdir -m 700 "$there" "$here"
server=
other=
link=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$other" ] || kill "$other" 2>/dev/null || true
    [ -z "$link" ] || kill "$link" 2>/dev/null || true
    for place in "$there" "$here"; do
        "$umfctl" vault stop --drop --dir "$place" >/dev/null 2>&1 || true
    done
    rm -rf "$folder"
}
trap cleanup EXIT

enter=()
serve_options=()
fetch_options=()
if [ -n "$inner" ]; then
    # UCX looks for its devices in the /sys of its network.
    mount -t sysfs sysfs /sys 2>/dev/null || skip "no /sys of a namespace here"
    unshare --net --mount bash -c "mount -t sysfs sysfs /sys && echo \$\$ >$folder/pid && exec sleep 300" &
    other=$!
    until [ -s "$folder/pid" ]; do sleep 0.05; done
    if [ "$way" = networks ]; then
        ip link add umf0 type veth peer name umf1 2>/dev/null || skip "no pair of network devices here"
    else
        mkfifo "$folder/link"
        python3 "$tests/link.py" umf0 umf1 <"$folder/link" >"$folder/linked" 2>&1 &
        link=$!
        exec 7>"$folder/link"
        until [ -s "$folder/linked" ]; do sleep 0.05; done
        grep -q ready "$folder/linked" || skip "$(cat "$folder/linked")"
    fi
    ip link set umf1 netns "$other"
    ip addr add 10.77.0.1/24 dev umf0
    ip link set umf0 up
    enter=(nsenter --target "$other" --net --mount)
    "${enter[@]}" ip addr add 10.77.0.2/24 dev umf1
    "${enter[@]}" ip link set umf1 up
    (umask 077 && head -c 32 /dev/urandom >"$folder/key")
    serve_options=(--devices umf0 --key-file "$folder/key")
    fetch_options=(--devices umf1 --key-file "$folder/key")
fi

fetch() { # <options and words>
    "${enter[@]}" env UMF_VAULT_DIR="$here" "$remote" fetch "${fetch_options[@]}" "$@"
}
fail() {
    echo "FAILED: $*"
    exit 1
}

head -c 9000000 /dev/urandom >"$folder/first"
head -c 100 /dev/urandom >"$folder/second"
"$umfctl" vault put model "$folder/first" "$folder/second" --dir "$there" >/dev/null
UMF_VAULT_DIR=$there "$remote" serve "${serve_options[@]}" --write "$folder/model.umfr" model &
server=$!
until [ -s "$folder/model.umfr" ]; do
    kill -0 "$server" 2>/dev/null || fail "umf-remote serve has ended"
    sleep 0.05
done
[ "$(stat -c %a "$folder/model.umfr")" = 600 ] || fail "others can read the address"
if [ -n "$inner" ]; then
    ! (fetch_options=(--devices umf1) && fetch --of model copy "@$folder/model.umfr") 2>/dev/null || fail "a fetch without a key"
fi
behaves() { # <milliseconds> <percent>: the link from now on
    [ "$way" != lossy ] || echo "$1 $2" >&7
}
behaves 10 0.2
[ "$(fetch --deadline 60000 --digest --of model copy "@$folder/model.umfr")" = "copy generation 1" ] || fail "the first fetch"
[ "$(fetch --deadline 60000 --of model copy "@$folder/model.umfr")" = "copy generation 1" ] || fail "a fetch without a change"
"$umfctl" vault verify copy --dir "$here" >/dev/null || fail "the sums differ"
"$umfctl" vault stat copy --dir "$here" | grep -q "first" || fail "an entry is missing"
if [ "$way" = loopback ]; then
    UMF_VAULT_DIR=$here "$example" "$folder/model.umfr" model example | grep -q "9000000 bytes" || fail "the example"
fi
if [ -n "$inner" ]; then
    # The link is cut before a fetch, and in the middle of one, which may be over before.
    ip link set umf0 down
    ! fetch --deadline 300 --of model cut "@$folder/model.umfr" 2>/dev/null || fail "a fetch over a link that is cut"
    ip link set umf0 up
    fetch --deadline 300 --of model cut "@$folder/model.umfr" >/dev/null 2>&1 &
    ip link set umf0 down
    wait $! || true
    ip link set umf0 up
    [ "$(fetch --of model cut "@$folder/model.umfr")" = "cut generation 1" ] || fail "the fetch after a cut"
    ! "$umfctl" vault stat cut --dir "$here" | grep "writes" || fail "a draft stays"
fi
if [ "$way" = lossy ]; then
    # Nothing arrives any more in the middle of a fetch, and the link stays up.
    behaves 50 0
    start=$(date +%s%N)
    fetch --deadline 1000 --of model lost "@$folder/model.umfr" >/dev/null 2>&1 &
    sleep 0.3
    behaves 50 100
    ! wait $! || fail "a fetch over a link that loses all"
    took=$((($(date +%s%N) - start) / 1000000))
    [ $took -lt 10000 ] || fail "a fetch over a link that loses all took $took ms"
    behaves 10 0.2
    [ "$(fetch --deadline 60000 --of model lost "@$folder/model.umfr")" = "lost generation 1" ] || fail "the fetch after a loss"
    ! "$umfctl" vault stat lost --dir "$here" | grep "writes" || fail "a draft stays"
    behaves 0 0
fi
kill "$server"
wait "$server" || fail "umf-remote ended with $?"
server=
[ ! -e "$folder/model.umfr" ] || fail "the address stays"
! fetch --of model copy "@$folder/model.umfr" 2>/dev/null || fail "a fetch from nobody"
echo "tools.umf_remote: $way"
