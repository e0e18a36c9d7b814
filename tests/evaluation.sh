#!/bin/sh
# SPDX-License-Identifier: MIT
# What evaluation says is what training would: with a rate of 0 and the same samples in both sets, the loss of one whole
# batch in training is that of all evaluation's batches, short ones too; dropout drops nothing; batch norm goes by its
# running statistics, which by then are those of the batch.
. "${srcdir:-.}/tests/cli.inc"

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
agrees "gpt2, two workers" 1e-4 "$without" "$ddprun" -n 2 trainer $gpt2 --dropout 0
finish
