#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun --nnodes MIN:MAX: node 0 dies, hangs, or is cut off. Whoever is left goes on with another node 0, in at most one part of
# the network.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster/hosts.inc"
hosts_up 4
. "$here/tests/launcher/cluster/members.inc"

what="node 0 dies, and the next is cut off"
start 0 1 2
kill_host 0
attempt "$what" $((last + 1)) 1 2
grep -q 'this is node 0 now; nodes that come are to be given --master-addr 10.77.0.11 --master-port' "$work/node.1" || fail "$what: $(cat "$work/node.1")"
first=1
node 3 "$worker"
attempt "$what" $((last + 2)) 1 2 3
first=0
cut_host 1
attempt "$what" $((last + 3)) 2 3
ended "$what" 1 125 '2 nodes are silent, and may go on without this one'
restore_host 1
all_end 0 2 3

what="node 0 is stopped"
start 0 1 2
signal STOP 0
attempt "$what" $((last + 1)) 1 2
signal CONT 0
ended "$what" 0 125 'has not answered for 5 s; ending all nodes'
all_end 0 1 2

what="one waits when node 0 dies"
start 0 1 2
(
    export DDP_LOG=debug
    node 3 "$worker"
)
until_true grep -q 'node 0 has room for this node to wait' "$work/node.3" || fail "$what: $(cat "$work/node.3")"
kill_host 0
until_true grep -q "$(host 3)" "$work/told" # at once, or after a start without it; before node 2 or behind it
all_there 3
for one in 1 2 3; do grep -q "^$last .* $(host $one)\$" "$work/told" || fail "$what: $(cat "$work/told")"; done
grep -q "node 0 ($(host 0)) is lost: .*; this node waits for the next node 0" "$work/node.3" || fail "$what: $(cat "$work/node.3")"
all_end 0 1 2 3

what="of two nodes, the other dies" nodes=1:3
start 0 1
kill_host 0
attempt "$what" $((last + 1)) 1
all_end 0 1

what="of two nodes, the other is cut off"
start 0 1
cut_host 0
ended "$what" 1 125 'this node reaches 1 of 2 nodes that may be there, itself included: too few'
attempt "$what" $((last + 1)) 0
restore_host 0
all_end 0 0

what="all die but one"
start 0 1 2
kill_host 0
kill_host 1
until_true grep -q "^[0-9]* 0/1 0/1 $(host 2)" "$work/told" || fail "$what: $(cat "$work/node.2")"
all_end 0 2

[ -e "$top/.libs/libddp-ucx.so" ] || skip "training over nodes: this build has no libddp-ucx.so (install libucx-dev)"

# The other nodes have the last copy too: steps since then are computed again, and not a bit changes.
what="training, from another node's memory" nodes=1:2
i=0
while [ $i -lt 200 ]; do echo "line $i of a text"; i=$((i + 1)); done >"$work/text"
set -- "$trainer" --model gpt2 --data "$work/text" --layers 1 --heads 2 --channels 32 --seq-len 16 --batch-size 1 --global-batch 12 \
    --threads 1 --no-eval --steps 500 --quiet
expect "$what, alone" 0 '' "$@" --save "$work/alone"
set -- "$@" --copy-every 100 --save "$work/weights" --log "$work/log"
DDP_FAULTS=slow:rank=0,ms=5 # in the first attempt only
export DDP_FAULTS
node 0 "$@"
node 1 "$@"
until_true grep -qs '"step":2[0-9][0-9]' "$work/log" || fail "$what: $(cat "$work/node.0")"
kill_host 0
ended "$what" 1 0 'this is node 0 now'
awk -F '"first_step":|"step":' '/"event":"run"/ { first = $2 + 0 } END { exit !(first > 100) }' "$work/log" ||
    fail "$what: begins before the copy: $(grep '"event":"run"' "$work/log")"
cmp "$work/alone" "$work/weights" || fail "$what: other weights"
hosts_empty "$what"

# Node 0 dies before the workers of one that has come have begun: its memory has nothing of the run, whose checkpoints are there.
what="training, from checkpoints of the lost node's"
port=$((port + 1))
cat >"$work/late" <<'END_OF_WORKER'
#!/bin/sh
[ "$(hostname)" = "$LATE" ] || exec "$@"
: >"${0%late}waits"
while [ ! -e "${0%late}goes" ]; do sleep 0.02; done # time: ddprun ends it
exec "$@"
END_OF_WORKER
chmod +x "$work/late"
LATE=$(host 1)
export LATE
set -- "$@" --checkpoint "$work/checkpoints" --checkpoint-every 50
rm -f "$work/log" "$work/weights"
node 0 "$work/late" "$@"
until_true grep -qs '"event":"checkpoint","step":100,' "$work/log" || fail "$what: $(cat "$work/node.0")"
node 1 "$work/late" "$@"
until_true test -e "$work/waits" || fail "$what: $(cat "$work/node.1")"
kill_host 0
: >"$work/goes"
ended "$what" 1 0 'this is node 0 now'
awk -F '"first_step":|"step":' '/"event":"run"/ { first = $2 + 0 } END { exit !(first > 100) }' "$work/log" ||
    fail "$what: begins before the checkpoint: $(grep '"event":"run"' "$work/log")"
cmp "$work/alone" "$work/weights" || fail "$what: other weights"
hosts_empty "$what"

# A new job is another run, and finds them.
node 0 "$@"
ended "a new run in their directory" 0 2 'there are checkpoints already'
finish
