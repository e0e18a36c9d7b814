#!/bin/sh
# SPDX-License-Identifier: MIT
# What evaluation says is what training would: with a rate of 0 and the same samples in both sets, the loss of one whole
# batch in training is that of all evaluation's batches, short ones too; dropout drops nothing; batch norm goes by its
# running statistics, which by then are those of the batch. The figures are the same for any number of workers.
. "${srcdir:-.}/tests/lib/cli.inc"

cat "$here"/src/mode/*.c "$here"/src/graph/*.c >"$work/text"
# npy SHAPE: the header of an array of bytes
npy() {
    printf '\223NUMPY\001\000\166\000'
    printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $1, }"
}
# images COUNT: so many pictures with labels; what trains and is evaluated on them
images() {
    { npy "($1, 3, 8, 8)" && head -c $(($1 * 192)) "$work/text"; } >"$work/x$1.npy"
    { npy "($1,)" && tr -cd a-z <"$work/text" | tr 'a-z' '\000\000\000\000\000\000\000\000\001' | head -c "$1"; } >"$work/y$1.npy"
    echo "--data $work/x$1.npy,$work/y$1.npy --val $work/x$1.npy,$work/y$1.npy --batch-size $1"
}

# field EVENT NAME: the last one
field() {
    grep "\"event\":\"$1\"" "$work/log" | tail -n 1 | sed "s/.*\"$2\":\([-0-9.e+]*\).*/\1/"
}

# agrees NAME TOLERANCE EXPECTED COMMAND...: the last evaluation's loss; EXPECTED "train": that of the last step
agrees() {
    name=$1 tolerance=$2 expected=$3
    shift 3
    rm -f "$work/log"
    expect "$name" 0 '' "$@" --lr 0 --weight-decay 0 --log "$work/log" --quiet
    evaluated=$(field evaluation test_loss)
    [ "$expected" != train ] || expected=$(field step loss)
    awk -v a="$evaluated" -v b="$expected" -v t="$tolerance" 'BEGIN { exit !(a > 0 && b > 0 && a - b < t * b && b - a < t * b) }' ||
        fail "$name: evaluation says $evaluated, expected $expected"
}

agrees "mlp" 1e-4 train "$trainer" --model mlp $(images 300) --steps 1
agrees "resnet" 1e-2 train "$trainer" --model resnet $(images 50) --steps 80
gpt2="--model gpt2 --data $work/text --seq-len 16 --layers 1 --heads 2 --channels 16 --batch-size 4 --steps 1"
agrees "gpt2" 1 5 "$trainer" $gpt2 --dropout 0
without=$evaluated
agrees "gpt2, dropout" 1e-6 "$without" "$trainer" $gpt2 --dropout 0.5
agrees "gpt2, two workers" 1e-12 "$without" "$ddprun" -n 2 trainer $gpt2 --dropout 0
agrees "gpt2, three workers" 1e-12 "$without" "$ddprun" -n 3 trainer $gpt2 --dropout 0
agrees "gpt2, two replicas" 1e-12 "$without" "$trainer" $gpt2 --dropout 0 --mode dp --replicas 2
images=$(images 800 | sed 's/--batch-size 800/--batch-size 30 --steps 1/')
agrees "images" 1 2 "$trainer" $images
agrees "images, three workers" 1e-12 "$evaluated" "$ddprun" -n 3 trainer $images

# --- when, and on what ------------------------------------------------------------------------------------------

# evaluated NAME STEPS SAMPLES COMMAND...: evaluations after these steps, "4 8 10", on so many samples each
evaluated() {
    name=$1 steps=$2 samples=$3
    shift 3
    rm -f "$work/log"
    expect "$name" 0 '' "$@" --log "$work/log"
    found=$(sed -n 's/.*"event":"evaluation","step":\([0-9]*\).*"samples":\([0-9]*\).*/\1 \2/p' "$work/log" | tr '\n' ' ')
    wanted=$(for step in $steps; do printf '%s %s ' "$step" "$samples"; done)
    [ "$found" = "$wanted" ] || fail "$name: steps and samples of evaluations are $found, not $wanted"
}
few="--model mlp --hidden 4 --threads 1"
data=$(images 300 | sed 's/--batch-size.*//')
for workers in 1 2 3; do
    run="$ddprun -n $workers trainer $few $data"
    evaluated "no options, $workers" '1' 300 $run --steps 1
    evaluated "every 4 steps, $workers" '4 8 10' 300 $run --steps 10 --eval-every 4
    grep -q '^step 8/10: test accuracy ' "$work/out" || fail "every 4 steps: a line does not name its step: $(cat "$work/out")"
    evaluated "every 5 steps, $workers" '5 10' 300 $run --steps 10 --eval-every 5
    evaluated "every 50 steps, $workers" '10' 300 $run --steps 10 --eval-every 50
    evaluated "3 batches, $workers" '1' 60 $run --steps 1 --eval-steps 3 --batch-size 20
    evaluated "3 batches of the default size, $workers" '1' 192 $run --steps 1 --eval-steps 3
    evaluated "3 batches of a global batch, $workers" '1' 192 $run --steps 1 --eval-steps 3 --global-batch 12
    evaluated "more than there are, $workers" '1' 300 $run --steps 1 --eval-steps 300
done
evaluated "epochs" '15 30' 300 "$trainer" $few $data --epochs 2 --batch-size 20
grep -q '^test accuracy [0-9.]* %, test loss [0-9.]*$' "$work/out" || fail "epochs: the line: $(cat "$work/out")"
evaluated "epochs, every 10 steps" '10 20 30' 300 "$trainer" $few $data --epochs 2 --batch-size 20 --eval-every 10
grep -qE '"test_perplexity|"test_bits' "$work/log" && fail "a classifier has a perplexity"

# In the midst of an epoch, batch norm's statistics included; and it leaves no trace in the training.
resnet="$(images 300 | sed 's/--batch-size.*//') --model resnet --batch-size 10 --global-batch 40 --steps 7 --threads 1 --quiet"
rm -f "$work/shown"
for start in "$trainer" "$ddprun -n 2 trainer" "$ddprun -n 4 trainer --zero 0" "$trainer --mode dp --replicas 2"; do
    name=${start#"$top/"}
    rm -f "$work/log"
    expect "$name" 0 '' $start $resnet --eval-every 3 --log "$work/log" --save "$work/f"
    sed -n 's/.*"event":"evaluation",\("step":[0-9]*\),.*\("test_loss":.*\),"seconds".*/\1 \2/p' "$work/log" >"$work/figures"
    [ -e "$work/shown" ] || { mv "$work/figures" "$work/shown" && cp "$work/shown" "$work/figures"; }
    [ "$(wc -l <"$work/figures")" -eq 3 ] && cmp -s "$work/shown" "$work/figures" || fail "$name: other figures: $(cat "$work/shown" "$work/figures")"
    expect "$name, no evaluation" 0 '' $start $resnet --no-eval --save "$work/g"
    cmp -s "$work/f" "$work/g" || fail "$name: evaluations change the weights"
done

# --- language models --------------------------------------------------------------------------------------------

rm -f "$work/log"
expect "a language model" 0 'test accuracy [0-9.]+ %, test loss [0-9.]+, perplexity [0-9.]+, [0-9]\.[0-9]{4} bits per byte$' \
    "$ddprun" -n 2 trainer $gpt2 --steps 60 --lr 0.01 --eval-every 30 --eval-steps 5 --log "$work/log" \
    --tensorboard "$work/board"
if grep -q 'define HAVE_PROTOBUF_C 1' config.h; then
    for tag in test/loss test/accuracy test/perplexity test/bits_per_byte; do
        [ "$(grep -aco "$tag" "$work"/board/events*)" -gt 0 ] || fail "TensorBoard has no $tag"
    done
fi
# e to the power of the loss, and the loss over the logarithm of 2
for name in test_loss test_perplexity test_bits_per_byte; do
    field evaluation $name
done | tr '\n' ' ' | awk '{ p = exp($1) / $2; b = $1 / log(2) / $3; exit !(p > 0.999999 && p < 1.000001 && b > 0.999999 && b < 1.000001) }' ||
    fail "perplexity or bits per byte is not that of the loss: $(tail -n 2 "$work/log")"
# The bytes that other tokens stand for are not known.
head -c 4000 "$work/text" >"$work/words"
expect "words" 0 'test loss [0-9.]+, perplexity [0-9.]+$' "$trainer" $gpt2 --data "$work/words" --val "$work/words" --tokens uint16 --vocab-size 32768
finish
