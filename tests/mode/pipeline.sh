#!/bin/sh
# SPDX-License-Identifier: MIT
# --mode pipeline: the bits of accumulation, for any number of stages and replicas of them, in one process and in several,
# also where a run is resumed in another mode; what looks at the whole model finds it; what makes no sense is refused.
. "${srcdir:-.}/tests/lib/cli.inc"
make_data

# check_same_bits has all models, splits and dtypes.
first=
set -- --model mlp --hidden 33,17,9 --data "$work/images" --optimizer adamw --clip-grad-norm 0.05 --batch-size 2 --global-batch 16 \
    --steps 4 --seed 3 --no-eval --quiet --threads 1 --schedule constant
same "accumulation" "$trainer" "$@"
same "2 stages" "$ddprun" -n 2 trainer "$@" --mode pipeline --checkpoint "$work/pipe" --checkpoint-every 2
same "3 stages, one process, given cuts" "$trainer" "$@" --cut fc2,fc3
same "4 stages, from 2" "$ddprun" -n 4 trainer "$@" --stages 4 --resume-from "$work/pipe/step-00000002"

# More shards than the lanes there are otherwise.
first=
gpt2="--model gpt2 --data $work/text --seq-len 12 --layers 2 --heads 2 --channels 16 --batch-size 1 --seed 3 --quiet --threads 1"
same "12 shards: accumulation" "$trainer" $gpt2 --no-eval --steps 3 --acc-steps 12 --lanes 16
same "12 shards: 2 stages" "$ddprun" -n 2 trainer $gpt2 --no-eval --steps 3 --acc-steps 12 --lanes 16 --stages 2
# alike NAME PATTERN COMMAND...: the lines that match are those of the first one in the group
alike() {
    name=$1 pattern=$2
    shift 2
    expect "$name" 0 "$pattern" "$@"
    grep -oE "$pattern" "$work/out" >"$work/lines"
    [ -n "$told" ] || cp "$work/lines" "$work/told"
    told=$name
    cmp -s "$work/lines" "$work/told" || fail "$name: $(head -n 2 "$work/lines"), expected $(head -n 2 "$work/told")"
}

# Evaluations, texts and predictions are of the whole model.
gpt2="${gpt2% --quiet*} --threads 1 --val-split 0.2 --steps 4 --global-batch 8 --sample-every 2,length=20 --prompt line"
told=
lines='test loss [0-9.]+.*|^line.*'
alike "looks: accumulation" "$lines" "$trainer" $gpt2 --eval-every 2
alike "looks: 2 stages" "$lines" "$ddprun" -n 2 trainer $gpt2 --eval-every 2 --stages 2
alike "looks: 2 x 2" "$lines" "$ddprun" -n 4 trainer $gpt2 --eval-every 2 --stages 2
alike "looks: one process" "$lines" "$trainer" $gpt2 --eval-every 2 --stages 3
mlp="--model mlp --hidden 24,12 --data $work/images --batch-size 4 --global-batch 16 --seed 3 --threads 1"
expect "a model" 0 '' "$trainer" $mlp --steps 3 --no-eval --save "$work/model" --quiet
expect "predictions" 0 '' "$trainer" $mlp --load "$work/model" --predict "$work/one.csv" --quiet
for stages in 2 3; do
    expect "predictions of $stages stages" 0 '' "$ddprun" -n $stages trainer $mlp --load "$work/model" --predict "$work/all.csv" --quiet \
        --mode pipeline
    cmp -s "$work/one.csv" "$work/all.csv" || fail "predictions of $stages stages differ"
done
told=
for start in "$trainer" "$ddprun -n 2 trainer --mode pipeline" "$ddprun -n 4 trainer --stages 2"; do
    alike "confusion: $start" 'accuracy.*|confusion.*|^[0-9].*%$' $start $mlp --load "$work/model" --eval-only --verbose
done

# The best checkpoint, and copies of the weights for other programs.
expect "best" 0 'best .*best, which is' "$ddprun" -n 2 trainer $mlp --stages 2 --steps 6 --eval-every 2 --checkpoint "$work/best" --keep 3,best
set -- $gpt2 --no-eval --quiet
expect "export" 0 '' "$trainer" "$@" --export "$work/one.safetensors"
expect "export of 2 stages" 0 '' "$ddprun" -n 2 trainer "$@" --stages 2 --export "$work/two.safetensors"
cmp -s "$work/one.safetensors" "$work/two.safetensors" || fail "2 stages export other weights"

# A loss that is not finite: the operation and the shard that accumulation names.
first='the loss is (nan|inf) at step [0-9]+: first in the output of linear, tensor fc[123] .*'
told=
nan="$mlp --lr 1e6 --schedule constant --no-eval --steps 40"
for start in "$trainer" "$ddprun -n 2 trainer --stages 2" "$ddprun -n 4 trainer --stages 2" "$trainer --stages 3"; do
    expect "not finite: $start" 10 "error: $first" $start $nan
    grep -oE "$first" "$work/out" | sed 's/ (rank.*)//' >"$work/lines"
    [ -n "$told" ] || cp "$work/lines" "$work/told"
    told=$start
    [ "$(wc -l <"$work/lines")" = 1 ] && cmp -s "$work/lines" "$work/told" ||
        fail "not finite: $start: $(cat "$work/lines"), expected $(cat "$work/told")"
done

# What is shown: stages in the plan, the bubble beside the idle share, shards once in the log.
expect "plan" 0 '^ +0 +fc1' "$trainer" --plan --stages 3 --model mlp --hidden 9,7 --shape 12 --acc-steps 6
for line in '^workers  1 replica x 3 stages' '^stages   3, the later ones begin at [a-z0-9]+, [a-z0-9]+; bubble 25 % of a step$' \
    'a replica\) = global batch 384$' '^memory .* in stage 0$' '^memory .* in stage 2$' '^  stage  operations  '; do
    grep -qE "$line" "$work/out" || fail "plan: no line: $line"
done
expect "plan of given cuts" 0 'begin at fc2, fc3; bubble' "$trainer" --plan --cut fc2,fc3 --model mlp --hidden 9,7 --shape 12
expect "table" 0 '^[* ] pipeline +4 ' "$trainer" --plan-memory 2G --stages 2 --model gpt2 --size d4
rm -f "$work/log"
expect "summary" 0 'pipeline bubble 20 % of a step, stages idle for [0-9]+ % .measured.' "$ddprun" -n 2 trainer $mlp --mode pipeline --no-eval \
    --steps 3 --log "$work/log"
for field in '"stages":2' '"mode":"pipeline"' '"global_batch":16' '"shards":4'; do
    grep -q "$field" "$work/log" || fail "log: no $field"
done

# refused PATTERN COMMAND...
refused() {
    pattern=$1
    shift
    expect "$*" 2 "error: .*$pattern" "$@"
    count=$((count + 1))
    [ "$(grep -c error: "$work/out")" = 1 ] || fail "$*: more than one line: $(cat "$work/out")"
}
mlp="$mlp --no-eval --quiet --steps 1"
run="$ddprun -n 4 trainer $mlp"
refused 'takes 3 workers, one for each stage, and ddprun started 4: give ddprun --nproc 3 or 6' $run --stages 3
refused 'takes 5 workers.*started 4: give ddprun --nproc 5,' $run --stages 5
refused '--stages 1: must be a whole number from 2 to 64' $run --stages 1
refused '--stages 65: ' $run --stages 65
refused '--stages belongs to --mode pipeline, and the mode is ddp' $run --mode ddp --stages 2
refused '--cut belongs to --mode pipeline, and the mode is dp' "$trainer" $mlp --mode dp --cut fc2
refused '--distributed means --mode ddp' $run --distributed --mode pipeline
refused '--zero 1 splits .*--mode ddp, and the mode is pipeline' $run --stages 2 --zero 1
refused '--sync-every belongs to --mode ddp' $run --stages 2 --sync-every 2
refused '--sync-batch-norm needs .*--mode pipeline' $run --stages 2 --sync-batch-norm
refused '--replicas belongs to --mode dp' $run --stages 2 --replicas 2
refused '--bucket-mb belongs to --mode ddp' $run --stages 2 --bucket-mb 1
refused 'too few for [0-9]+ stages' "$trainer" $mlp --stages 20
refused '--cut nothing: no operation reads a parameter of a layer nothing' "$trainer" $mlp --cut nothing
refused '--cut fc3,fc2: fc2 is not behind' "$trainer" $mlp --cut fc3,fc2
refused '--cut fc2: 1 names for 3 stages' "$trainer" $mlp --cut fc2 --stages 3
refused 'share wte.weight, .* 12 shards needs a lane, .* 8: use --lanes 12' "$ddprun" -n 2 trainer $gpt2 --no-eval --global-batch 12 --stages 2
expect "with 8 lanes" 0 '' "$trainer" $gpt2 --no-eval --schedule constant --global-batch 12 --steps 1 --checkpoint "$work/lanes"
refused 'the checkpoint has 8: resume in another mode, or .* --lanes 12' "$ddprun" -n 2 trainer $gpt2 --no-eval --schedule constant --global-batch 12 --stages 2 \
    --resume-from "$work/lanes"
expect "fewer shards than stages" 0 'note: 2 shards cannot keep 3 stages busy: each waits for 50 % of the time' "$trainer" $mlp --stages 3 \
    --global-batch 8
finish
