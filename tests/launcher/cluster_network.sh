#!/bin/sh
# SPDX-License-Identifier: MIT
# A job over nodes whose network fails: a cable that is cut and restored, a host that dies, a ddprun that stands still, names
# that lead to the wrong place, a stranger at the port. Nodes are started by hand, a host of its own for each.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster/hosts.inc"
hosts_up 2
DDPRUN_KEY=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export DDPRUN_KEY
address=10.77.0.10

# node RANK ARGUMENT...: the ddprun of that node, in the background
node() {
    rank=$1
    shift
    rm -f "$work/ended.$rank"
    {
        timeout -k 5 $((120 * patience)) "$on" "$(host "$rank")" \
            "$ddprun" --nnodes 2 --node-rank "$rank" --master-addr "$address" --node-timeout 20 "$@" >"$work/node.$rank" 2>&1
        echo "$? $(date +%s%N)" >"$work/ended.$rank"
    } &
}

# both ARGUMENT...: on both nodes alike
both() {
    node 0 "$@"
    node 1 "$@"
}

# sleepers SECONDS: a worker on each node that does nothing, and both are there
sleepers() {
    rm -f "$work"/up.*
    both -n 1 sh -c ': >"$0.$RANK"; exec sleep "$1"' "$work/up" "$1"
    until_true test -e "$work/up.0" && until_true test -e "$work/up.1" || fail "the workers do not start: $(cat "$work"/node.?)"
    began=$(date +%s%N)
}

# ended NAME NODE CODE PATTERN [SECONDS]: how, and within how many seconds after $began
ended() {
    count=$((count + 1))
    until_true test -s "$work/ended.$2" || { fail "$1: node $2 does not end"; return; }
    read -r code when <"$work/ended.$2"
    if [ "$code" -ne "$3" ] || { [ -n "$4" ] && ! grep -qE -- "$4" "$work/node.$2"; }; then
        fail "$1: node $2: exit code $code, expected $3${4:+, and a line with: $4}"
        sed 's/^/    /' "$work/node.$2" | head -n 10
    fi
    [ -z "${5:-}" ] || [ $(((when - began) / 1000000)) -le $(($5 * 1000 * patience)) ] ||
        fail "$1: node $2 ended after $(((when - began) / 1000000)) ms"
}

# ddprun_on HOST: the process of that ddprun, not of its keeper
ddprun_on() {
    for pid in $(ip netns pids "$(host "$1")"); do
        ! tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q '^[^ ]*ddprun --nnodes' || { echo "$pid"; return; }
    done
}

both -n 2 "$tell"
ended "two nodes" 0 0 ''
ended "two nodes" 1 0 ''
told "two nodes" 2 2
both -n 1 sh -c '[ "$GLOO_SOCKET_IFNAME" = eth0 ] && [ "$NCCL_SOCKET_IFNAME" = =eth0 ]'
ended "names of interfaces" 0 0 ''
ended "names of interfaces" 1 0 ''

sleepers 60
cut_host 1
ended "cable cut" 0 125 "node 1 \($(host 1)\) is lost" 7
ended "cable cut" 1 125 "node 0 \($(host 0)\) is lost" 7
hosts_empty "cable cut"
restore_host 1

sleepers 5
cut_host 1
sleep 2 # time: so long it is cut
restore_host 1
ended "cable cut for 2 s" 0 0 ''
ended "cable cut for 2 s" 1 0 ''

for dead in 0 1; do
    sleepers 60
    kill_host $dead
    ended "host $dead is dead" $((1 - dead)) 125 "node $dead \($(host $dead)\) is lost" 2
    until_true test -s "$work/ended.$dead"
    hosts_empty "host $dead is dead"
done

sleepers 60
stopped=$(ddprun_on 1)
kill -STOP "$stopped"
ended "SIGSTOP of a ddprun" 0 125 "node 1 \($(host 1)\) is lost" 7
kill -CONT "$stopped"
ended "SIGSTOP of a ddprun" 1 125 ''
hosts_empty "SIGSTOP of a ddprun"

# A stranger sends as much as the port takes, to a job that is complete and to one that waits.
stranger='exec 3<>"/dev/tcp/10.77.0.10/$0" || exit 9
    head -c 4000000000 /dev/zero >&3 2>/dev/null; exit 0'
if command -v bash >/dev/null; then
    node 0 -n 1 --master-port 29400 "$tell"
    until_true "$on" "$(host 1)" bash -c "$stranger" 29400 2>/dev/null || fail "no port that a stranger can reach"
    # time: the job lasts while the stranger comes; if it does not, nobody disturbs it
    node 1 -n 1 --master-port 29400 sh -c 'sleep 1; exec "$0"' "$tell"
    until_true test -e "$work/told"
    "$on" "$(host 1)" bash -c "$stranger" 29400 2>/dev/null
    ended "a stranger" 0 0 ''
    ended "a stranger" 1 0 ''
    told "a stranger" 2 1
else
    not_run "a stranger: there is no bash"
fi

# Behind a firewall, or with no cable: both sides say who is missing.
cut_host 1
began=$(date +%s%N)
both -n 1 --node-timeout 2 true
ended "no way through" 0 125 'node 1 of 2 has not come within 2 s; node 0 listens on 10\.77\.0\.10:[0-9]+$' 5
ended "no way through" 1 125 "cannot reach node 0 at $address" 5
restore_host 1

# Debian writes such a line for a machine without a fixed address: it is named, and the machine's own address is taken.
sed "s/10.77.0.10/127.0.1.1/" "$CLUSTER_HOSTS/all" >"$CLUSTER_HOSTS/$(host 0)"
address=$(host 0)
both -n 1 --node-timeout 3 true
ended "127.0.1.1" 0 0 'is 127\.0\.1\.1 on this machine \(see /etc/hosts\).*listens on 10\.77\.0\.10'
ended "127.0.1.1" 1 0 ''
cp "$CLUSTER_HOSTS/all" "$CLUSTER_HOSTS/$(host 0)"
both -n 2 "$tell"
ended "by name" 0 0 ''
ended "by name" 1 0 ''
told "by name" 2 2
address=nobody.example
node 1 -n 1 --node-timeout 2 true
ended "an unknown name" 1 125 'nobody\.example'
address=10.77.0.10

# A PyTorch script as it is: the same weights as on one machine.
python=
for candidate in python3 /usr/bin/python3; do
    [ -n "$python" ] || ! $candidate -c 'import torch.distributed' 2>/dev/null || python=$(command -v $candidate)
done
if [ -n "$python" ]; then
    export PYTHON_EXEC="$python" OMP_NUM_THREADS=1 TMPDIR="$work"
    both -n 2 "$here/tests/launcher/torch_client.py" "$work/two"
    expect "PyTorch on one machine" 0 '' "$ddprun" -n 4 "$here/tests/launcher/torch_client.py" "$work/one"
    ended "PyTorch on two nodes" 0 0 ''
    ended "PyTorch on two nodes" 1 0 ''
    cmp "$work/one" "$work/two" || fail "PyTorch: other weights on two nodes"
else
    not_run "a PyTorch script: install python3-torch"
fi
finish
