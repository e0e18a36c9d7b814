#!/bin/sh
# SPDX-License-Identifier: MIT
# --plan: printed always, without data, without memory, by one worker of many; what it promises is what a run takes: the
# peak of a process within 6 % and 16 MB, the memory of two workers together within 6 % and 32 MB; the largest batch that
# it names is the largest; the table of --plan-memory is readable and true.
. "${srcdir:-.}/tests/lib/cli.inc"
text=$work/text
i=0
while [ $i -lt 300 ]; do
    echo "line $i of a text that a model can learn"
    i=$((i + 1))
done >"$text"

# --- without data, and where it does not fit

for model in mlp cnn resnet gpt2 article; do
    expect "no data, $model" 0 '^  total' "$trainer" --model $model --plan
done
expect "default shape" 0 '^data     none: samples of 3 x 32 x 32, 10 classes' "$trainer" --model resnet --plan
expect "shape" 0 '^data     none: samples of 1 x 20 x 30, 7 classes' "$trainer" --model cnn --plan --shape 1,20,30:7
expect "tokens" 0 '^data     none: samples of 99 tokens, of 300' "$trainer" --model gpt2 --plan --shape 99 --vocab-size 300
expect "epochs of unknown data" 0 '^steps    3 epochs of the data' "$trainer" --model resnet --epochs 3 --plan
expect "steps of unknown data" 0 '^steps    12,' "$trainer" --model resnet --steps 12 --plan
expect "each operation" 0 '^attention ' "$trainer" --model gpt2 --size d2 --plan --verbose
expect "shape of a run" 2 'error: --shape is for --plan, which needs no data' "$trainer" --shape 3,4
expect "shape without end" 2 'error: --shape 3,4:: must be' "$trainer" --plan --shape 3,4:
expect "shape and data" 2 'error: --shape and --data exclude' "$trainer" --plan --shape 4 --data "$text"
expect "a size without its unit" 2 '--plan-memory 80: must be a size with its unit' "$trainer" --plan-memory 80
expect "image of tokens" 2 'error: --shape: the model gpt2 learns from tokens' "$trainer" --model gpt2 --plan --shape 3,4
expect "classes of tokens" 2 'error: --shape: the model gpt2 has a --vocab-size, and no classes' "$trainer" --model gpt2 --plan --shape 9:4
expect "shape of the article" 2 'error: --shape: the model article' "$trainer" --model article --plan --shape 4
expect "no image" 2 'error: --model cnn' "$trainer" --model cnn --plan --shape 4
expect "no size" 2 'error: --plan-memory 80X: must be a size' "$trainer" --plan-memory 80X
expect "wrong path" 4 'error: .*nowhere' "$trainer" --plan --data "$work/nowhere"
expect "leaves nothing" 0 '' "$trainer" --plan --model resnet --checkpoint "$work/none"
[ ! -e "$work/none" ] || fail "a plan has made the directory of checkpoints"

# 1.5 billion parameters in 600 MB of address space: nothing is allocated; of eight workers, one speaks.
big="--model gpt2 --size d48 --shape 1024 --batch-size 4000 --device cpu --plan"
if [ -z "${DDP_SANITIZE:-}" ]; then
    expect "1.5 B" 0 'DOES NOT FIT' sh -c 'ulimit -v 600000; exec "$@"' sh "$trainer" $big
fi
expect "1.5 B, 8 workers" 0 'DOES NOT FIT' "$ddprun" -n 8 trainer $big
[ "$(grep -c 'memory of' "$work/out")" -eq 1 ] || fail "a plan of 8 workers is printed $(grep -c 'memory of' "$work/out") times"
grep -q 'one copy' "$work/out" || fail "workers that share weights are not told so"

# --- as a run takes it

# bytes TEXT: "1.5 MB" as a number
bytes() {
    echo "$1" | awk '{ n = index("kMGT", substr($2, 1, 1)); print $1 * ($2 == "B" ? 1 : 1000 ^ n) }'
}
# total COLUMN COMMAND...: of the plan, 1 of a worker, 2 of the machine
total() {
    column=$1
    shift
    "$@" --plan 2>/dev/null | awk -v c="$column" '/^  total/ { print $(2 * c), $(2 * c + 1); exit }'
}
# close NAME PLANNED MEASURED MB: within 6 % and so many MB
close() {
    count=$((count + 1))
    echo "$1: planned $2, measured $3"
    awk "BEGIN { p = $(bytes "$2"); m = $(bytes "$3"); d = p > m ? p - m : m - p; exit !(p > 0 && m > 0 && d <= 0.06 * m + $4 * 1e6) }" ||
        fail "$1: planned $2, but $3 were taken"
}
# peak NAME OPTION...: of the only process
peak() {
    name=$1
    shift
    planned=$(total 1 "$trainer" "$@")
    measured=$("$trainer" "$@" --log-every 1000 2>&1 | sed -n 's/^memory *\(.*\) at the peak of a worker.*/\1/p')
    close "$name" "$planned" "$measured" 16
}
gpt2="--model gpt2 --size d4 --data $text --device cpu --threads 2 --batch-size 8"
if [ -n "${DDP_SANITIZE:-}" ]; then
    not_run "memory as a run takes it: a sanitizer takes more"
else
    peak "accum" $gpt2 --steps 2
    peak "accum, lanes" $gpt2 --steps 1 --acc-steps 8 --batch-size 2 --no-eval
    peak "accum, short last batch" $gpt2 --layers 1 --channels 128 --seq-len 512 --epochs 1 --batch-size 20
    peak "accum, bf16" $gpt2 --steps 1 --dtype bf16 --seq-len 128 --no-eval
    peak "accum, sgd" $gpt2 --steps 1 --optimizer sgd --no-eval
    peak "dp" $gpt2 --steps 1 --mode dp --no-eval
fi

# ddprun $1 and its workers have so many bytes together, of what they share each its part.
proportional() {
    files=
    for pid in "$1" $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        files="$files /proc/$pid/smaps_rollup"
    done
    # shellcheck disable=SC2086 # words
    cat $files 2>/dev/null | awk '/^Pss:/ { sum += $2 } END { printf "%d B\n", sum * 1024 }'
}
# together NAME OPTION...: two workers
together() {
    name=$1
    shift
    planned=$(total 2 "$ddprun" -n 2 trainer "$@")
    "$ddprun" -n 2 trainer --quiet "$@" >"$work/log" 2>&1 &
    job=$!
    most=0
    while kill -0 $job 2>/dev/null; do
        now=$(proportional $job)
        [ "${now% B}" -le "$most" ] || most=${now% B}
        sleep 0.05
    done
    wait $job || fail "$name: $(head -n 3 "$work/log")"
    close "$name" "$planned" "$most B" 32
}
if [ -n "${DDP_SANITIZE:-}" ] || ! grep -q '^Pss:' /proc/self/smaps_rollup 2>/dev/null; then
    not_run "memory of two workers: the kernel or a sanitizer hides it"
else
    long="$gpt2 --batch-size 4 --steps 2 --no-eval --threads 1"
    together "ddp, one copy" $long
    together "ddp, zero 0" $long --zero 0
    together "ddp, zero 2" $long --zero 2 --bucket-mb 1
    together "ddp, lanes" $long --acc-steps 4 --steps 2
fi

# --- what would fit

# largest OPTION...: the batch that the plan names
largest() {
    "$trainer" "$@" 2>/dev/null | sed -n 's/^largest  --batch-size \([0-9]*\) is the largest that fits.*/\1/p'
}
# (The program itself is not of the same size each time: one per cent more or less is certain.)
for options in "--model resnet" "--model gpt2 --size d2" "--model cnn --mode dp --replicas 3" "--model gpt2 --acc-steps 8 --mode dp"; do
    batch=$(largest $options --device cpu --plan-memory 3G)
    count=$((count + 1))
    for tried in $((${batch:-0} * 99 / 100)) $((${batch:-0} * 101 / 100 + 1)); do
        "$trainer" $options --device cpu --plan-memory 3G --batch-size "$tried" >"$work/out" 2>&1
        fits=no
        grep -q 'DOES NOT FIT' "$work/out" || fits=yes
        right=no
        [ $tried -gt "${batch:-0}" ] || right=yes
        [ $tried -gt 1 ] && [ $fits = $right ] ||
            fail "$options: the largest batch is said to be '$batch', and $tried: $fits"
    done
done

# A run that is refused names a batch that is not.
tall="--model gpt2 --data $text --seq-len 16 --channels 512 --heads 2 --layers 40 --device cpu --no-eval"
if "$trainer" $tall --plan --batch-size 5000 | grep -q 'DOES NOT FIT'; then
    expect "refused" 5 'error: out of memory: 1 worker .* use --batch-size [0-9]* ' "$trainer" $tall --batch-size 5000
    batch=$(sed -n 's/.* use --batch-size \([0-9]*\) .*/\1/p' "$work/out")
    expect "what was named" 0 '^  total' "$trainer" $tall --plan --batch-size "$batch"
    grep -q 'DOES NOT FIT' "$work/out" && fail "--batch-size $batch was named, and does not fit"
    expect "refused, 2 workers" 5 'error: out of memory: 2 workers' "$ddprun" -n 2 trainer $tall --batch-size 5000
    [ "$(grep -c 'error: out of memory' "$work/out")" -eq 1 ] || fail "2 workers say it $(grep -c 'error: out of' "$work/out") times"
else
    not_run "a refused batch: this machine has too much memory"
fi

# --- the table

# table OPTION...: in $work/rows its rows, without the mark
table() {
    expect "table $*" 0 '^what fits' "$trainer" --plan-memory 80G --model gpt2 --size 124M --shape 1024 "$@"
    sed -n '/^what fits/,$p' "$work/out" | grep -E '^[* ] (accum|ddp|dp) ' >"$work/rows"
    awk 'length > 80' "$work/out" | grep -v '^update\|^memory' | grep . && fail "table $*: lines of more than 80 columns"
}
table --device cuda
[ "$(wc -l <"$work/rows")" -eq 20 ] || fail "the table has $(wc -l <"$work/rows") rows"
[ "$(grep -c '^\*' "$work/rows")" -eq 1 ] || fail "not one row is marked"
grep -qE '^\* ddp +8 +1 +bf16 ' "$work/rows" || fail "the marked row is $(grep '^\*' "$work/rows")"
grep -q 'on cuda' "$work/out" || fail "no GPU was planned for"
table --device cuda --mode ddp --zero 0 --dtype fp32
[ "$(grep -cE '^[* ] ddp +[248] +0 +fp32 ' "$work/rows")" -eq 3 ] && [ "$(wc -l <"$work/rows")" -eq 3 ] ||
    fail "the table does not heed the options"
table --device cuda --global-batch 48
awk '{ sub(/^[* ]/, "") } $6 * $5 * $2 != 48 || $7 != 48 { exit 1 }' "$work/rows" || fail "batches do not divide the global batch"
table --device cpu
[ "$(grep -c ' none ' "$work/rows")" -lt 20 ] || fail "nothing fits 80 GB"
expect "nothing fits" 0 '^nothing fits' "$trainer" --plan-memory 1M --model resnet
expect "binary units" 0 '^what fits 2.1 GB' "$trainer" --plan-memory 2GiB --model resnet
finish
