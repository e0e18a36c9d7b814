#!/bin/sh
# SPDX-License-Identifier: MIT
# Which address a node's name leads to: the line 127.0.1.1 that Debian writes, on either side, one interface and several.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster/hosts.inc"
hosts_up 2
DDPRUN_KEY=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export DDPRUN_KEY
first=$(host 0)

# both SECONDS: a job of one worker on each host; their output is in node.0 and node.1, their exit codes in $code0 and $code1
both() {
    for rank in 0 1; do
        {
            timeout -k 5 $((30 * patience)) "$on" "$(host $rank)" "$ddprun" --nnodes 2 --node-rank $rank \
                --master-addr "$first" --node-timeout "$1" -n 1 \
                sh -c 'echo "rank $RANK at $MASTER_ADDR through $GLOO_SOCKET_IFNAME"' >"$work/node.$rank" 2>&1
            echo $? >"$work/code.$rank"
        } &
    done
    wait
    code0=$(cat "$work/code.0") code1=$(cat "$work/code.1")
}

# ended NAME CODE0 PATTERN0 CODE1 PATTERN1
ended() {
    count=$((count + 1))
    if [ "$code0 $code1" != "$2 $4" ] || ! grep -qE -- "$3" "$work/node.0" || ! grep -qE -- "$5" "$work/node.1"; then
        fail "$1: exit codes $code0 and $code1, expected $2 and $4; expected: $3; $5"
        sed 's/^/    /' "$work/node.0" "$work/node.1"
    fi
}

both 10
ended "a name that is right" 0 '^\[0\]: rank 0 at 10\.77\.0\.10 through eth0' 0 '^\[1\]: rank 1 at 10\.77\.0\.10 through eth0'

# The others know the right address: node 0 takes its only one.
{ echo "127.0.1.1 $first" && cat "$CLUSTER_HOSTS/all"; } | grep -v "^10.77.0.10 " >"$CLUSTER_HOSTS/$first"
both 10
ended "loopback on node 0" 0 "$first is 127\.0\.1\.1 on this machine \(see /etc/hosts\).*node 0 listens on 10\.77\.0\.10" \
    0 '^\[1\]: rank 1 at 10\.77\.0\.10 through eth0'

ip -n "$first" link add eth1 type veth peer name eth2 && ip -n "$first" addr add 10.78.0.1/24 dev eth1 && ip -n "$first" link set eth1 up
both 2
ended "loopback on node 0 with two interfaces" 125 \
    'several addresses \(10\.77\.0\.10 on eth0, 10\.78\.0\.1 on eth1\): give one to all nodes with --master-addr' 125 'cannot reach node 0'
cp "$CLUSTER_HOSTS/all" "$CLUSTER_HOSTS/$first"
both 10
ended "two interfaces and a name" 0 '^\[0\]: rank 0 at 10\.77\.0\.10 through eth0' 0 ''
ip -n "$first" link del eth1

{ echo "127.0.1.1 $first" && cat "$CLUSTER_HOSTS/all"; } | grep -v "^10.77.0.10 " >"$CLUSTER_HOSTS/$(host 1)"
both 2
ended "loopback on another node" 125 'node 1 of 2 has not come within 2 s' \
    125 '127\.0\.1\.1 is this machine itself: is --master-addr right, and the line of that name in /etc/hosts'
finish
