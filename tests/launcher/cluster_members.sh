#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun --nnodes MIN:MAX: hosts that die, whose cables are cut, that come while the job runs, that do not fit, and what the
# workers are told; a training that loses and gains hosts ends in the weights of one that was left alone.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/launcher/cluster/hosts.inc"
hosts_up 4
. "$here/tests/launcher/cluster/members.inc"

what="one comes, one dies, another comes"
for one in 0 1; do node $one "$worker"; done
attempt "$what" 0 0 1
node 2 "$worker"
attempt "$what" 1 0 1 2
kill_host 1
attempt "$what" 2 0 2
grep -q "node 1 ($(host 1)) is lost: its ddprun has ended without a word; going on without it" "$work/node.2" ||
    fail "$what: host 2 says: $(cat "$work/node.2")"
node 3 -n 2 "$worker"
attempt "$what" 3 0 2 3 3

what="as many as there may be"
until_true test -s "$work/ended.1"
node 1 "$worker"
sleep 2.5  # time: so long those that come have to wait soon
cut_host 2 # the one that waits takes its place, behind the others
attempt "$what" 4 0 3 3 1
ended "$what" 2 125 "node 0 \($(host 0)\) is lost"
restore_host 2
grep -q 'one that comes now has to wait 2 s' "$work/node.0" || fail "$what: nobody is held back: $(cat "$work/node.0")"

until_true shows '^nodes: 3 now, of 2 to 3; 3 came, 0 left, 2 lost; [0-9.]+ s without workers$' || fail "$what: $(cat "$work/shown")"

what="who does not belong"
node 2 "$worker" -x
ended "$what" 2 125 'runs: .*worker -x, where node 0 runs: .*worker; give the same program'
nodes=2:4
node 2 "$worker"
ended "$what" 2 125 'was told of 4 nodes, node 0 \(.*\) of 3'
nodes=2:3
(
    DDPRUN_KEY=another-key-of-somebody-else
    node 2 --node-timeout 2 "$worker"
    ended "$what" 2 125 'it has another key|another key'
)
[ "$(grep -c 'refused a node; the job does without it' "$work/node.0")" -eq 2 ] || fail "$what: $(cat "$work/node.0")"
attempt "$what" 4 0 3 3 1
all_end 0 0 1 3
grep -qE '^ddprun: 2 nodes for [0-9.]+ s, 3 nodes for [0-9.]+ s, 2 nodes for [0-9.]+ s, 3 nodes for [0-9.]+ s, 3 nodes for [0-9.]+ s; 3 came, 0 left, 2 lost; [0-9.]+ s without workers$' "$work/node.0" ||
    fail "$what: no summary: $(cat "$work/node.0")"

what="one that is asked to leave"
start 0 1 2
asked=$(date +%s%N)
signal TERM 1
ended "$what" 1 75 'SIGTERM: this node leaves the job'
attempt "$what" $((last + 1)) 0 2
# A second passes before: whoever asks all nodes to stop may reach them one after another.
[ $((($(date +%s%N) - asked) / 1000000)) -ge 1000 ] || fail "$what: the others were not given a second to be asked too"
grep -q "node 1 ($(host 1)) was asked to leave" "$work/node.0" || fail "$what: host 0 says: $(cat "$work/node.0")"
until_true shows '^nodes: 2 now, of 2 to 3; 1 came, 1 left, 0 lost; ' || fail "$what: $(cat "$work/shown")"

what="one too many leaves"
signal TERM 2
for one in 0 2; do ended "$what" $one 143 "SIGTERM on node 1 \($(host 2)\): ending 1 worker"; done
hosts_empty "$what"
rm -f "$work/told"
port=$((port + 1))

what="node 0 is asked, or all are" nodes=1:3
for signalled in 0 "2 1 0"; do
    start 0 1 2
    signal TERM $signalled
    for one in 0 1 2; do ended "$what ($signalled)" $one 143 ''; done
    hosts_empty "$what"
    rm -f "$work/told"
    port=$((port + 1))
done

what="one that waits when the job ends" nodes=2:3
start 0 1 2
(
    export DDP_LOG=debug
    node 3 "$worker"
)
until_true grep -q 'node 0 has room for this node to wait' "$work/node.3" || fail "$what: $(cat "$work/node.3")"
all_end 0 0 1 2
ended "$what" 3 0 'the job has ended; this node was not needed'

what="too few are left"
for one in 0 1; do node $one --node-timeout 20 --max-restarts 1 "$worker"; done
attempt "$what" 0 0 1
lost=$(date +%s%N)
kill_host 1
until_true grep -q '1 of at least 2 nodes is there: waiting' "$work/node.0" || fail "$what: $(cat "$work/node.0")"
node 2 --node-timeout 20 --max-restarts 1 "$worker"
attempt "$what" 1 0 2
# Had host 1 lost its connection alone, it would by now know that node 0 lives.
[ $((($(date +%s%N) - lost) / 1000000)) -ge 1000 ] || fail "$what: another node is taken within a second"
echo 7 >"$work/over" # a failure counts: the one restart that there may be
until_true grep -q 'restarting all workers (1 of 1)' "$work/node.0" || fail "$what: no restart: $(cat "$work/node.0")"
all_end 7 0 2

what="nobody comes"
for one in 0 1; do node $one --node-timeout 2 "$worker"; done
attempt "$what" 0 0 1
kill_host 1
ended "$what" 0 125 'only 1 of at least 2 nodes is there, and no other has come within 2 s'
hosts_empty "$what"
rm -f "$work/told"
port=$((port + 1))

[ -e "$top/.libs/libddp-ucx.so" ] || skip "training over nodes: this build has no libddp-ucx.so (install libucx-dev)"

# Not a bit changes: two hosts, one, two again, also without --resume, with the batch of the beginning. The training is as slow as it must be for that.
what=training nodes=1:2
set -- "$trainer" --model article --data-size 700 --shuffle --batch-size 8 --lr 1e-6 --threads 1 --no-eval \
    --steps 6000 --quiet
expect "$what, alone" 0 '' "$@" --acc-steps 4 --save "$work/alone"
set -- "$@" --acc-steps 2 --checkpoint "$work/kept" --checkpoint-every 500 --save "$work/weights" --log "$work/log"
export DDP_FAULTS=slow:rank=0,ms=5 # in the first attempt only
node 0 "$@"
node 1 "$@"
until_true test -e "$work/kept/step-00000500" || fail "$what: no checkpoint: $(cat "$work/node.0")"
kill_host 1
until_true test -e "$work/kept/step-00001000" || fail "$what: does not go on: $(cat "$work/node.0")"
node 1 "$@"
ended "$what" 0 0 'going on without it'
ended "$what" 1 0 ''
grep -qs 'stopped on request' "$work/log" || fail "$what: was not stopped after a step: $(grep event "$work/log")"
cmp "$work/alone" "$work/weights" || fail "$what: other weights"

# The same out of node 0's memory, without a checkpoint: two hosts, one, two, three. When a host is lost, steps since the last copy
# are computed again; when one comes, none.
what="training from memory" nodes=1:3
port=$((port + 1))
i=0
while [ $i -lt 200 ]; do echo "line $i of a text"; i=$((i + 1)); done >"$work/text"
set -- "$trainer" --model gpt2 --data "$work/text" --layers 1 --heads 2 --channels 32 --seq-len 16 --batch-size 1 --global-batch 12 \
    --threads 1 --no-eval --steps 2000 --quiet
expect "$what, alone" 0 '' "$@" --save "$work/alone"
rm -f "$work/log" "$work/weights"
set -- "$@" --copy-every 100 --save "$work/weights" --log "$work/log"
# reached RUN: that start of the workers has made steps
reached() {
    [ "$(grep -s '"event":"run"' "$work/log" | wc -l)" -eq "$1" ] && tail -n 1 "$work/log" | grep -q '"step":[1-9][0-9][0-9]'
}
DDP_FAULTS=slow:rank=0,ms=5
node 0 "$@"
node 1 "$@"
until_true reached 1 || { fail "$what: $(cat "$work/node.0")"; finish; }
kill_host 1
until_true reached 2 || fail "$what: does not go on: $(cat "$work/node.0")"
for one in 1 2; do
    node $one "$@"
    until_true reached $((one + 2)) || fail "$what: host $one does not come: $(cat "$work/node.0")"
done
for one in 0 1 2; do ended "$what" $one 0 ''; done
awk -F '"first_step":|"step":' '/"event":"run"/ && last { print ($2 + 0 <= last ? "again" : "on") } /"event":"step"/ { last = $2 + 0 }' \
    "$work/log" | tr '\n' ' ' >"$work/starts"
grep -q '^\(again\|on\) on on $' "$work/starts" || fail "$what: starts with steps that were done: $(cat "$work/starts")"
cmp "$work/alone" "$work/weights" || fail "$what: other weights"
hosts_empty "$what"

# One that comes with other data, or without any, fails before anything is done again: the others go on, and it waits longer each time.
what="data of another kind" nodes=1:3
port=$((port + 1))
cat >"$work/there" <<'END'
#!/bin/sh
cd "${0%/there}/data-$(hostname)" && exec "$@"
END
chmod +x "$work/there"
for one in 0 1 2; do mkdir "$work/data-$(host $one)"; done
cp "$work/text" "$work/data-$(host 0)"
sed 's/line/word/' "$work/text" >"$work/data-$(host 1)/text"
set -- "$work/there" "$trainer" --model gpt2 --data text --layers 1 --heads 2 --channels 32 --seq-len 16 --batch-size 1 --global-batch 12 \
    --threads 1 --no-eval --steps 2000 --quiet --save "$work/weights" --log "$work/log"
rm -f "$work/log" "$work/weights"
node 0 "$@"
until_true reached 1 || { fail "$what: $(cat "$work/node.0")"; finish; }
node 1 "$@"
ended "$what" 1 2 'the data are not the same on node 1 \(.*\) as on node 0'
node 2 "$@"
ended "$what" 2 4 'text: cannot open the data: No such file'
ended "$what" 0 0 "node 1 \($(host 1)\) has come and failed; going on without it"
grep -q 'one that comes now has to wait 2 s' "$work/node.0" || fail "$what: nobody is held back: $(cat "$work/node.0")"
cmp "$work/alone" "$work/weights" || fail "$what: other weights"
hosts_empty "$what"

# More workers than shards are of no use: one that comes waits, until it can take the place of another.
what="a spare" nodes=1:3
port=$((port + 1))
set -- "$trainer" --model gpt2 --data "$work/text" --layers 1 --heads 2 --channels 32 --seq-len 16 --batch-size 1 --threads 1 --no-eval \
    --steps 700 --quiet
expect "$what, alone" 0 '' "$@" --acc-steps 2 --save "$work/alone"
rm -f "$work/log" "$work/weights"
set -- "$@" --copy-every 100 --save "$work/weights" --log "$work/log"
node 0 "$@"
node 1 "$@"
until_true reached 1 || { fail "$what: $(cat "$work/node.0")"; finish; }
node 2 "$@"
until_true grep -q 'a node has come and waits: the program can use at most 2 workers' "$work/node.0" || fail "$what: $(cat "$work/node.0")"
kill_host 1
for one in 0 2; do ended "$what" $one 0 ''; done
[ "$(grep -c '"event":"run".*"nodes":2,' "$work/log")" -eq 2 ] || fail "$what: $(grep '"event":"run"' "$work/log")"
cmp "$work/alone" "$work/weights" || fail "$what: other weights"
hosts_empty "$what"
finish
