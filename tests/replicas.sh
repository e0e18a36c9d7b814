#!/bin/sh
# SPDX-License-Identifier: MIT
# A bit that flips in one worker's parameters is found, and the worker named.
. "${srcdir:-.}/tests/cli.inc"
need_fashion
command -v python3 >/dev/null || skip "there is no python3"

common="--hidden 32,16 --batch-size 8 --lr 0 --no-eval --quiet"
expect "the parameters" 0 "" "$trainer" $common --steps 1 --save "$work/weights"
expect "nothing to find" 0 "" "$ddprun" -n 3 trainer $common --steps 40 --check-replicas 1

# spoil NAME RANKS VICTIM PATTERN: on $nodes nodes, which $start starts
start=$ddprun nodes=1
spoil() {
    rm -f "$work/log"
    expect "$1" 8 "$4" python3 "$here/tests/replicas.py" "$2" "$3" "$work/weights" \
        "$start" -n $(($2 / nodes)) "$trainer" $common --epochs 10000 --check-replicas 5 --log "$work/log" --log-every 5
    [ "$got" -ne 77 ] || skip "this process may not write to the memory of its children"
    [ "$(grep -c 'parameters differ between workers' "$work/out")" -eq 1 ] || fail "$1: not one message"
}
spoil "rank 1 of 3" 3 1 'after step [0-9]*[05] rank 1 has other values in fc2.weight than the other 2:'
spoil "rank 0 of 3" 3 0 'after step [0-9]*[05] rank 0 has other values in fc2.weight than the other 2:'
spoil "rank 1 of 2" 2 1 'ranks 0, 1 differ in fc2.weight, and no majority agrees'

# Of pipelines the same stages are compared.
plain=$common common="$common --cut fc2"
spoil "rank 3 of 3 pipelines" 6 3 'after step [0-9]*[05] rank 3 has other values in fc2.weight than the other 2:'
spoil "rank 3 of 2 pipelines" 4 3 'ranks 1, 3 differ in fc2.weight, and no majority agrees'
common=$plain

# Over two nodes both hear which rank it is, and where.
if [ -e "$top/.libs/libddp-ucx.so" ]; then
    . "$here/tests/nodes.inc"
    cat >"$work/nodes" <<END
#!/bin/sh
set -- --nnodes 2 --master-addr 127.0.0.1 --master-port $node_port "\$@"
"$ddprun" --node-rank 1 "\$@" >"$work/node.1" 2>&1 &
"$ddprun" --node-rank 0 "\$@"
code=\$?
wait
exit \$code
END
    chmod +x "$work/nodes"
    start=$work/nodes nodes=2
    differs='after step [0-9]*[05] rank 3 on node 1 \(.*\) has other values in fc2.weight than the other 3:'
    common="$common --device cpu"
    spoil "rank 3 on 2 nodes" 4 3 "$differs"
    expect "rank 3 on 2 nodes, node 1" 0 "$differs" cat "$work/node.1"
fi
finish
