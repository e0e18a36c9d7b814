#!/bin/sh
# SPDX-License-Identifier: MIT
# What is shown of NCCL's collectives: who has not arrived at which, and in the trace that they run beside the backward
# pass.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
gpus 3

# A worker stops between two steps; the others wait on their devices, behind a call that returned long ago.
for z in "" --fast; do
    DDP_FAULTS=stop:rank=1,step=50 expect "a stopped worker $z" 124 'rank 1 has not arrived at [a-z-]+\+? [0-9]+; ranks 0 2 have waited' \
        "$ddprun" -n 3 $share --timeout 2 --grace 1 \
        "$trainer" --device cuda --model article --epochs 100000000 --quiet $z
done
DDP_FAULTS=kill:rank=1,step=50 expect "a killed worker" 137 'rank 1 .*was killed by SIGKILL' \
    "$ddprun" -n 3 $share \
    "$trainer" --device cuda --model article --epochs 100000000 --quiet

# spans TRACK: "RANK BEGIN END NAME WHAT", by begin, of a kind of tracks of the devices. WHAT is "back" for an operation of
# the backward pass.
spans() {
    awk -v what="$1" '
        function field(name,    text) {
            if (!match($0, "\"" name "\":\"?[^,}\"]*"))
                return ""
            text = substr($0, RSTART, RLENGTH)
            sub(/^[^:]*:"?/, "", text)
            return text
        }
        /"thread_name"/ && $0 ~ "GPU [0-9]+ " what { track[field("pid") " " field("tid")] = 1 }
        /"ph":"X"/ && (field("pid") " " field("tid")) in track {
            printf "%d %.3f %.3f %s %s\n", field("pid"), field("ts"), field("ts") + field("dur"), field("name"),
                /"gradient of":/ ? "back" : "-"
        }' "$work/trace" | sort -k 1,1n -k 2,2n
}

# overlap OPERATION: in the trace each of two workers shows one such operation a bucket and step on its communicator's track,
# one after another, and some beside operations of the backward pass. What lacks is in the file bad.
gpus 2
make_data
steps=4 buckets=10
overlap() {
    spans compute >"$work/compute"
    spans NCCL >"$work/nccl"
    for rank in 0 1; do
        awk -v rank=$rank -v operation="$1" -v least=$((steps * buckets)) '
            $1 != rank { next }
            FILENAME ~ /compute$/ { begin[++n] = $2; end[n] = $3; back[n] = $5 == "back"; next }
            $2 < last - 0.002 { crossed++ }
            { last = $3 }
            $4 != operation { next }
            { found++; for (i = 1; i <= n; i++) beside += back[i] && begin[i] < $3 && $2 < end[i] }
            END {
                if (found < least || crossed || beside == 0)
                    printf "rank %d: %d of %s, %d beside backward, %d at the same time\n", rank, found, operation, beside,
                        crossed
            }' "$work/compute" "$work/nccl"
    done >"$work/bad"
    [ ! -s "$work/bad" ]
}

# traced NAME OPERATION OPTIONS...: once in a few runs. On a busy machine the threads that play a device may get their turns
# one after another.
traced() {
    name=$1 operation=$2
    shift 2
    for try in 1 2 3 4 5; do
        expect "$name, try $try" 0 '' env DDP_CUDASIM_STREAMS=eager "$ddprun" -n 2 $share "$trainer" --device cuda \
            --data "$work/images" --hidden 256,256,256 --batch-size 16 --bucket-mb 0.05 --steps $steps --no-eval --quiet \
            --trace "$work/trace" "$@"
        ! overlap "$operation" || return
    done
    fail "$name: $(cat "$work/bad")"
}
traced "trace" reduce-scatter --zero 1
traced "trace, replicas" all-reduce --zero 0
traced "trace, fast" all-reduce --zero 0 --fast
finish
