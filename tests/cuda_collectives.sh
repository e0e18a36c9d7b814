#!/bin/sh
# SPDX-License-Identifier: MIT
# What is shown of NCCL's collectives: who has not arrived at which, and in the trace that they run beside the backward
# pass.
. "${srcdir:-.}/tests/cli.inc"
. "$here/tests/cuda.inc"
gpus 3

# A worker stops between two steps; the others wait on their devices, behind a call that returned long ago.
for z in "" --fast; do
    expect "a stopped worker $z" 124 'rank 1 has not arrived at [a-z-]+\+? [0-9]+; ranks 0 2 have waited' \
        "$ddprun" -n 3 $share --inject stop:rank=1,step=50 --timeout 2 --grace 1 \
        "$trainer" --device cuda --model article --epochs 100000000 --quiet $z
done
expect "a killed worker" 137 'rank 1 .*was killed by SIGKILL' \
    "$ddprun" -n 3 $share --inject kill:rank=1,step=50 \
    "$trainer" --device cuda --model article --epochs 100000000 --quiet

# The spans of the devices' tracks: "BEGIN END" of each, by track. Simulated streams run at once, so that they overlap.
spans() {
    awk -v what="$1" '
        function field(name,    text) {
            if (!match($0, "\"" name "\":[^,}]*"))
                return ""
            text = substr($0, RSTART, RLENGTH)
            sub(/^[^:]*:/, "", text)
            return text
        }
        /"thread_name"/ && $0 ~ "GPU [0-9]+ " what { track[field("pid") " " field("tid")] = 1 }
        /"ph":"X"/ && (field("pid") " " field("tid")) in track {
            printf "%d %.3f %.3f\n", field("pid"), field("ts"), field("ts") + field("dur")
        }' "$work/trace"
}
if [ -r "$fashion/train-images-idx3-ubyte.gz" ]; then
    gpus 2
    count=$((count + 1))
    DDP_CUDASIM_STREAMS=eager "$ddprun" -n 2 $share --inject exit:rank=0,step=6,code=3 "$trainer" --device cuda --model mlp \
        --batch-size 32 --bucket-mb 1 --quiet --trace "$work/trace" --trace-steps 1-4 >"$work/out" 2>&1
    spans compute >"$work/compute"
    spans NCCL >"$work/nccl"
    [ -s "$work/compute" ] && [ -s "$work/nccl" ] || fail "trace: no spans of the devices: $(head -n 5 "$work/out")"
    awk 'NR == FNR { pid[NR] = $1; begin[NR] = $2; end[NR] = $3; n = NR; next }
        { for (i = 1; i <= n; i++) if (pid[i] == $1 && begin[i] < $3 && $2 < end[i]) found++ }
        END { exit !found }' "$work/compute" "$work/nccl" || fail "trace: no collective runs beside computing"
fi
finish
