#!/bin/sh
# SPDX-License-Identifier: MIT
# --sync-every: where each step is synchronised it is plain DDP; otherwise a run repeats its bits, whatever looks at the
# average in between; what does not go together is refused.
. "${srcdir:-.}/tests/lib/cli.inc"
make_data

mlp="--model mlp --hidden 24 --data $work/images --batch-size 2 --steps 11 --seed 3 --quiet --threads 1"

# Nothing is local: the bits of DDP.
first=
same "3 workers" "$ddprun" -n 3 trainer $mlp --no-eval
same "3 workers, every step" "$ddprun" -n 3 trainer $mlp --no-eval --sync-every 1
same "3 workers, local too late" "$ddprun" -n 3 trainer $mlp --no-eval --sync-every 4,from=11
first=
same "1 worker" "$trainer" $mlp --no-eval
same "1 worker, its own average" "$ddprun" -n 1 trainer $mlp --no-eval --sync-every 4

# The same bits again, with any look at the average; other ones than DDP's.
adam="--optimizer adam --clip-grad-norm 0.1"
options="--sync-every 3,from=5 $adam"
first=
same "3 workers $options" "$ddprun" -n 3 trainer $mlp $options --no-eval
same "3 workers $options, evaluated" "$ddprun" -n 3 trainer $mlp $options --eval-every 1 --verbose
cp "$work/first" "$work/local"
first=
same "3 workers, DDP" "$ddprun" -n 3 trainer $mlp $adam --no-eval
count=$((count + 1))
cmp -s "$work/first" "$work/local" && fail "3 workers $options: the bits of DDP"

# A text is written in between, and evaluations are made.
first=
set -- "$ddprun" -n 2 trainer --model gpt2 --data "$work/text" --seq-len 16 --layers 1 --heads 2 --channels 16 --dropout 0.1 --val-split 0.2 \
    --sample-every 2,length=5 --batch-size 2 --dtype bf16 --seed 3 --threads 1 --steps 5 --sync-every 3
same "gpt2" "$@" --no-eval
same "gpt2, evaluated" "$@" --eval-every 2

# The plan and the log know how much less travels: 11 steps have 3 averages instead of 11 sums.
for every in 1 4; do
    rm -f "$work/log$every"
    expect "every $every" 0 '' "$ddprun" -n 2 trainer $mlp --no-eval --zero 0 --sync-every $every --log "$work/log$every"
done
bytes() { sed -n 's/.*"exchange_bytes":\([0-9.]*\).*/\1/p' "$1"; }
count=$((count + 1))
awk -v one="$(bytes "$work/log1")" -v four="$(bytes "$work/log4")" 'BEGIN { d = four * 11 / 3 - one; exit !(one > 0 && d * d < 1e-6) }' ||
    fail "a step exchanges $(bytes "$work/log4") bytes instead of $(bytes "$work/log1")"
expect "local too late" 0 'warning: --sync-every ...,from=11: the run ends after step 11: no step is local' "$ddprun" -n 2 trainer $mlp --no-eval \
    --sync-every 4,from=11
expect "the plan" 0 '^sync     each of the first 2 steps, then every 4 steps: weights averaged, outer SGD with rate 0.7, momentum 0$' \
    "$ddprun" -n 2 trainer ${mlp%--quiet*} --no-eval --sync-every 4,from=2,lr=0.7
# Beside what rank 0 writes, each other worker holds an array on its way there: 8 and 2 of 7.4 kB.
expect "the memory of checkpoints" 0 '^ *copies +58.9 kB +73.6 kB$' \
    "$ddprun" -n 3 trainer ${mlp%--quiet*} --no-eval --sync-every 4 --checkpoint "$work/none" --plan

# A loss that is not finite ends the run, or is left out by all.
set -- "$ddprun" -n 2 trainer $mlp --hidden 300,300,300 --sync-every 4 --no-eval --lr 1e6 --clip-grad-norm 0 --schedule constant
expect "NaN" 10 'error: the loss is' "$@" --nan stop
expect "NaN, left out" 0 'updates were skipped' "$@" --nan skip

# Rank 1 alone meets a sample whose loss is not finite: all leave the update out, and the weights stay what they were.
npy() { printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '$1', 'fortran_order': False, 'shape': $2, }"; }
{
    npy '<f4' '(4, 2)'
    printf '\0\0\200\077\0\0\0\0\0\0\0\0\0\0\200\077\0\0\200\077\0\0\200\077\377\377\177\177\377\377\177\177'
} >"$work/x.npy"
{
    npy '<i8' '(4,)'
    printf '\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
} >"$work/y.npy"
set -- "$ddprun" -n 2 trainer --model mlp --hidden 50,50 --data "$work/x.npy,$work/y.npy" --no-shuffle --batch-size 2 --steps 1 --no-eval --seed 3
first=
same "no update" "$@" --lr 0 --nan skip
same "an update that rank 1 cannot make" "$@" --lr 0.1 --nan skip --sync-every 2
grep -q '1 of 1 updates were skipped' "$work/out" || fail "nothing was left out: $(cat "$work/out")"

# A run that was interrupted, at a synchronisation (8) and between two (6), ends in the same bits; check_same_bits has each
# kind of state.
first=
set -- "$ddprun" -n 2 trainer $mlp --no-eval --schedule constant --optimizer adam --sync-every 4
same "with checkpoints" "$@" --checkpoint "$work/ck" --checkpoint-every 1 --keep 0
for step in 06 08; do
    same "from step $step" "$@" --resume-from "$work/ck/step-000000$step"
done

# On other numbers of workers a run goes on from a synchronisation alone; there the optimizer's state is the mean.
set -- $mlp --no-eval --schedule constant --optimizer adam --sync-every 4 --global-batch 12
rm -rf "$work/ck"
expect "3 workers" 0 '' "$ddprun" -n 3 trainer "$@" --checkpoint "$work/ck" --checkpoint-every 1 --keep 0
expect "2 workers between" 2 \
    'step-00000006: it has the weights of 3 workers .* this run has 2: resume on 3, or from .* such as step 4 or 8' \
    "$ddprun" -n 2 trainer "$@" --resume-from "$work/ck/step-00000006"
for step in 04 08 11; do
    expect "2 workers from step $step" 0 '' "$ddprun" -n 2 trainer "$@" --resume-from "$work/ck/step-000000$step" --steps 12
done
expect "other steps" 2 'sync every 4 .now 3.' "$ddprun" -n 3 trainer "$@" --sync-every 3 --resume-from "$work/ck/step-00000004"
expect "no local steps" 2 'sync every 4 .now unknown.' "$ddprun" -n 3 trainer "$@" --sync-every 1 --resume-from "$work/ck/step-00000004"

# A checkpoint's weights are the average, as --save would write it.
expect "saved after 6 steps" 0 '' "$ddprun" -n 3 trainer "$@" --steps 6 --save "$work/saved"
count=$((count + 1))
cmp -s "$work/saved" "$work/ck/step-00000006/model.safetensors" || fail "a checkpoint has other weights than the average"

refused() {
    pattern=$1
    shift
    expect "$*" 2 "error: $pattern" "$@" --no-eval
    count=$((count + 1))
    [ "$(grep -c error: "$work/out")" = 1 ] || fail "$*: more than one line: $(cat "$work/out")"
}
set -- "$ddprun" -n 2 trainer $mlp
refused '--sync-every 0: ' "$@" --sync-every 0
refused '--sync-every 99999999999999999999: ' "$@" --sync-every 99999999999999999999
refused '--sync-every 4: each worker .*--zero 0' "$@" --sync-every 4 --zero 1
refused '--sync-every 4 and --sync-batch-norm' "$@" --sync-every 4 --sync-batch-norm
for part in from=3 lr=1 momentum=0; do
    refused "--sync-every 1: ${part%=*}= needs an average after more steps than 1" "$@" --sync-every 1,$part
done
refused '--sync-every ...,momentum=1: must be a number from 0 to 0.9999' "$@" --sync-every 4,from=3,momentum=1
refused '--sync-every 4,,lr=1: "" is unknown: --sync-every takes' "$@" --sync-every 4,,lr=1
refused '--sync-every belongs to --mode ddp, and the mode is accum' "$trainer" $mlp --sync-every 4
refused '--sync-every belongs to --mode ddp, and the mode is dp' "$trainer" $mlp --mode dp --replicas 2 --sync-every 4
finish
