#!/bin/sh
# SPDX-License-Identifier: MIT
# Bad input to the trainer: one clear line that names the flag or file, the documented exit code, nothing left behind.
. "${srcdir:-.}/tests/lib/cli.inc"

t="$trainer --quiet"
one='--model article --epochs 1'

# Flags: exit code 2.
expect "help" 0 'trainer info PATH' $trainer --help
grep -q 'trainer tokenize IN OUT --tokenizer PATH' "$work/out" || fail "help: it does not name tokenize"
expect "unknown flag" 2 'error: .*--frobnicate: unknown option; see trainer --help all$' $t --frobnicate
expect "stray word" 2 'error: .*banana' $t banana
expect "unknown model" 2 'error: .*--model vgg.*mlp' $t --model vgg
expect "unknown mode" 2 'error: .*--mode ring.*(accum|ddp|dp)' $t --mode ring
expect "no value" 2 'error: .*--epochs' $t --epochs
expect "zero epochs" 2 'error: .*--epochs 0' $t --epochs 0
expect "negative batch" 2 'error: .*--batch[-_]size -1' $t --batch_size -1
expect "overflowing steps" 2 'error: .*--steps 99999999999999999999' $t --steps 99999999999999999999
expect "epochs that overflow" 2 'error: .*--epochs' $t --model article --batch-size 1 --epochs 1000000000000000
expect "seed too large" 2 'error: .*--seed 18446744073709551616: .* 0 to 18446744073709551615' $t --seed 18446744073709551616
expect "negative seed" 2 'error: .*--seed -1: .* 0 to ' $t --seed -1
expect "not a number" 2 'error: .*--lr fast' $t --lr fast
expect "lr nan" 2 'error: .*--lr nan' $t --lr nan
expect "negative momentum" 2 'error: .*--momentum -0.5' $t --momentum -0.5
expect "zero replicas" 2 'error: .*--replicas 0' $t --mode dp --replicas 0
expect "zero threads" 2 'error: .*--threads 0' $t --threads 0
expect "bad augment" 2 'error: .*--augment crop,flop' $t --augment crop,flop
expect "nothing to mix" 2 'error: --augment: mixup and smooth soften labels for .* the model article has another' $t $one --augment mixup
expect "nothing to smooth" 2 'error: --augment smooth: the samples of .* have no labels that are classes' $t --model gpt2 --size d2 \
    --data "$here/NEWS" --val-split 0.1 --augment smooth
expect "an average of what differs" 2 'error: --sync-every 2 and --optimizer ...,ema=' "$ddprun" -n 2 trainer --sync-every 2 --optimizer sgd,ema=0.9 --steps 2
expect "augment without images" 2 'error: article holds no images' $t $one --augment flip
expect "tokens for mlp" 2 'error: .*holds tokens.*mlp.*numbers' $t --model mlp --data "$0"
expect "no labels for mlp" 2 'error: article has no labels.*mlp' $t --dataset article
expect "unknown dataset" 2 'error: .*--dataset mnist.*idx.*cifar' $t --dataset mnist
expect "bad hidden" 2 'error: .*--hidden 5,,5' $t --hidden 5,,5
expect "empty value" 2 'error: .*--save' $t --save ''

# Combinations: exit code 2, and the numbers that would fit.
expect "steps and epochs" 2 'error: --steps and --epochs' $t $one --steps 3
expect "distributed and accum" 2 'error: --distributed .*--mode accum' $t $one --distributed --mode accum
expect "replicas without dp" 2 'error: --replicas .*--mode dp' $t $one --replicas 2
expect "global batch" 2 'error: --global-batch 100 .*96 or 128 would fit' $t $one --global-batch 100 --batch-size 32
expect "global batch, replicas" 2 'error: --global-batch 7 .*6 or 9 would fit' $t $one --mode dp --replicas 3 --global-batch 7 --acc-steps 1
expect "global batch, both" 2 'error: --global-batch 64 contradicts' $t $one --global-batch 64 --batch-size 4 --acc-steps 2
expect "bucket-mb without ddp" 2 'error: --bucket-mb .*--mode ddp' $t $one --bucket-mb 1
expect "too many shards for dp" 2 'error: .*--acc-steps.*16000 shards' $t $one --mode dp --acc-steps 8001
expect "data for article" 2 'error: --data' $t $one --data /tmp
expect "data-size for mlp" 2 'error: --data-size' $t --data-size 3
expect "nesterov alone" 2 'error: --momentum 0,nesterov' $t $one --momentum 0,nesterov
expect "too few samples" 2 'error: 3 samples are too few for 4 shards.*at least 4' \
    $t $one --data-size 3 --acc-steps 4 --drop-last
expect "accum with 2 workers" 2 'error: --mode accum .*2 workers' "$ddprun" -n 2 trainer --quiet $one --mode accum
expect "dp with 2 workers" 2 'error: --mode dp .*2 workers' "$ddprun" -n 2 trainer --quiet $one --mode dp
expect "too many workers" 9 'error: --mode ddp supports at most 64 workers' "$ddprun" -n 65 trainer --quiet $one
expect "no board" 9 'error: .*WORLD_SIZE' env RANK=0 WORLD_SIZE=2 $t $one
expect "device cuda" 9 'error: .*cuda' $t $one --device cuda
expect "devices of the CPU" 9 'error: --devices names GPUs, and --device is cpu' $t $one --device cpu --devices 0
expect "bad devices" 2 'error: --devices 0,x' $t $one --devices 0,x
expect "fast on the CPU" 0 'warning: --fast has no effect on the CPU' $t $one --device cpu --fast
expect "unknown device" 9 'error: .*toaster' $t $one --device toaster

# As many accumulation steps as anybody likes: batches are read ahead by number, not by step.
expect "many shards" 0 '' $t $one --batch-size 1 --acc-steps 40000

# Data files: exit code 4 when missing, 3 when their contents are wrong.
mkdir "$work/data" "$work/empty"
expect "no directory" 4 'error: .*nowhere' $t --data "$work/nowhere"
expect "empty directory" 4 'error: .*empty: no data.*train-images' $t --data "$work/empty"

# idx FILE MAGIC COUNT...: a header in big-endian numbers, then zeros
idx() {
    file=$1 zeros=$2
    shift 2
    for number; do
        printf "\\$(printf %03o $((number >> 24 & 255)))\\$(printf %03o $((number >> 16 & 255)))"
        printf "\\$(printf %03o $((number >> 8 & 255)))\\$(printf %03o $((number & 255)))"
    done >"$file"
    head -c "$zeros" /dev/zero >>"$file"
}
good_data() {
    rm -f "$work"/data/*
    idx "$work/data/train-images-idx3-ubyte" 160 2051 10 4 4
    idx "$work/data/train-labels-idx1-ubyte" 10 2049 10
    idx "$work/data/t10k-images-idx3-ubyte" 48 2051 3 4 4
    idx "$work/data/t10k-labels-idx1-ubyte" 3 2049 3
}
bad_data() {
    expect "$1" "$2" "$3" $t --data "$work/data" --epochs 1
}
good_data
cp -r "$work/data" "$work/good"
expect "good data" 0 '' $t --data "$work/data" --epochs 1 --batch-size 4
expect "seq-len for images" 2 'error: --seq-len belongs to token data' $t --data "$work/good" --seq-len 8
good_data; rm "$work/data/t10k-labels-idx1-ubyte"
bad_data "missing test labels" 4 'error: .*t10k-labels'
good_data; idx "$work/data/train-images-idx3-ubyte" 159 2051 10 4 4
bad_data "truncated" 3 'error: .*train-images'
good_data; idx "$work/data/train-images-idx3-ubyte" 161 2051 10 4 4
bad_data "oversized" 3 'error: .*train-images'
good_data; idx "$work/data/train-images-idx3-ubyte" 160 2052 10 4 4
bad_data "wrong magic" 3 'error: .*train-images'
good_data; idx "$work/data/train-labels-idx1-ubyte" 9 2049 9
bad_data "counts differ" 3 'error: .*(train-labels|train-images).*'
good_data; idx "$work/data/train-images-idx3-ubyte" 0 2051 0 4 4
bad_data "no images" 3 'error: .*train-images'
good_data; idx "$work/data/train-images-idx3-ubyte" 0 2051 2147483647 65535 65535
bad_data "huge dimensions" 3 'error: .*train-images'
good_data; idx "$work/data/t10k-images-idx3-ubyte" 27 2051 3 3 3
bad_data "test images of another size" 3 'error: .*test images of 1x3x3'
good_data; gzip -n "$work/data/train-images-idx3-ubyte"; printf 'xxxx' | dd of="$work/data/train-images-idx3-ubyte.gz" \
    bs=1 seek=12 conv=notrunc 2>/dev/null
bad_data "corrupt gzip" 3 'error: .*train-images-idx3-ubyte.gz'
good_data; gzip -n "$work/data/train-images-idx3-ubyte"; truncate -s -5 "$work/data/train-images-idx3-ubyte.gz"
bad_data "cut gzip" 3 'error: .*train-images-idx3-ubyte.gz'

# Saved weights.
expect "save below a file" 4 'error: .*null/f' $t $one --save /dev/null/f
expect "save over a directory" 4 'error: .*empty' $t $one --save "$work/empty"
mkfifo "$work/fifo"
expect "save over a fifo" 4 'error: .*fifo.*not a regular file' $t $one --save "$work/fifo"
[ -p "$work/fifo" ] || fail "save over a fifo: it is gone"
expect "save" 0 '' $t $one --save "$work/weights"
expect "load" 0 '' $t $one --load "$work/weights"
expect "load, missing" 4 'error: .*missing' $t $one --load "$work/missing"
good_data
expect "load, another model's" 2 'error: --model mlp contradicts --load .*weights, which holds the model article' \
    $t --model mlp --data "$work/data" --load "$work/weights"
head -c 60 "$work/weights" >"$work/cut"
expect "load, truncated" 3 'error: .*cut' $t $one --load "$work/cut"
expect "save, larger" 0 '' $t --data "$work/data" --epochs 1 --save "$work/weights"
cp "$work/weights" "$work/before"
count=$((count + 1))
(
    ulimit -f 512 # blocks: the weights are 1 MB, the board 133 kB. SIGXFSZ has its default here, which kills
    exec $t --data "$work/data" --epochs 1 --seed 9 --save "$work/weights" >/dev/null 2>"$work/err"
)
[ $? -eq 4 ] || fail "full disk: not exit code 4"
cmp -s "$work/weights" "$work/before" || fail "full disk: the old file is damaged"
[ "$(ls "$work" | grep -c tmp)" -eq 0 ] || fail "temporary files are left: $(ls "$work")"
mkdir "$work/locked" && chmod 555 "$work/locked"
if need_modes; then
    expect "locked directory" 4 'error: .*locked/f' $heed_modes $t $one --save "$work/locked/f"
fi

# Targets that are not plain files, and what can only be known at the end unless it is asked before.
long=$(printf '%0300d' 0)
expect "save, long name" 4 'error: .*00: .*File name too long' $t $one --save "$work/$long"
expect "save, longest name" 0 '' $t $one --save "$work/${long%??????????????????????????????????????????????}"
expect "load from a FIFO" 4 'error: .*fifo.*not a regular file' $t $one --load "$work/fifo"
ln -s loop "$work/loop"
expect "save to a loop of links" 4 'error: .*loop' $t $one --save "$work/loop"
ln -s target "$work/link"
expect "save through a link" 0 '' $t $one --save "$work/link"
[ -h "$work/link" ] && [ -s "$work/target" ] || fail "save through a link: the link was replaced"
chmod 600 "$work/target"
expect "save, old permissions" 0 '' $t $one --save "$work/target"
[ "$(stat -c %a "$work/target")" = 600 ] || fail "save: the file's permissions have changed"
good_data; rm "$work/data/train-images-idx3-ubyte"; mkfifo "$work/data/train-images-idx3-ubyte"
bad_data "a FIFO for data" 4 'error: .*train-images.*not a regular file'

# Without data only a directory of the Llama kind is exported.
for from in gpt2 gpt2/model.safetensors; do
    expect "converting $from" 2 'error: --export without --data converts a Hugging Face directory .*, and --load .*gpt2.* is neither: give --data too, to train' \
        $t --load "$here/tests/weights/golden/$from" --export "$work/exported" --threads 2
done

# More than memory holds: refused before the kernel would have to kill.
expect "model too large" 5 'error: out of memory.*parameters' $t --data "$work/good" --hidden 1048576,1048576
good_data; rm "$work/data/train-images-idx3-ubyte"
if idx "$work/data/train-images-idx3-ubyte" 0 2051 10 1000000 1000000 &&
    truncate -s 10000000000016 "$work/data/train-images-idx3-ubyte" 2>/dev/null; then
    bad_data "data too large" 5 'error: .*train-images.*out of memory'
    rm "$work/data/train-images-idx3-ubyte"
fi
expect "shards without end" 0 '' $t --data "$work/good" --hidden 1 --steps 1 --batch-size 1 --acc-steps 40000

# Closed standard streams: the saved file must not take their place.
count=$((count + 1))
$trainer $one --save "$work/closed" <&- >&- 2>&-
[ $? -eq 4 ] || fail "closed standard streams: not exit code 4"
$t $one --save "$work/open" || fail "save"
cmp -s "$work/closed" "$work/open" || fail "closed standard streams: the saved file differs"

# A terminal of 20 columns: the line that is drawn again and again must not wrap.
if command -v script >/dev/null; then
    count=$((count + 1))
    script -qec "stty cols 20; TERM=xterm $trainer --data $work/good --no-eval --hidden 1 --steps 3" /dev/null \
        </dev/null | tr '\r' '\n' | grep '^1/3  loss' >"$work/out"
    [ -s "$work/out" ] || fail "narrow terminal: no progress is shown"
    [ "$(wc -L <"$work/out")" -le 19 ] || fail "narrow terminal: a line of $(wc -L <"$work/out") columns"
else
    not_run "a narrow terminal: there is no script(1)"
fi

# Too little memory, early and late (the sanitizers need all address space there is).
if [ -z "${DDP_SANITIZE:-}" ]; then
    expect "memory for the samples" 5 'error: out of memory' \
        sh -c 'ulimit -v 300000; exec "$@"' sh $t $one --threads 1 --data-size 20000
    expect "more samples than memory" 5 'error: out of memory: --data-size 100000000 .* there are' \
        $t $one --data-size 100000000
    expect "memory for the gradients" 5 'error: out of memory' \
        sh -c 'ulimit -v 800000; exec "$@"' sh $t --data "$work/good" --hidden 9000,9000 \
        --threads 1 --epochs 1
    expect "memory for replicas" 5 'error: out of memory' \
        sh -c 'ulimit -v 600000; exec "$@"' sh $t --data "$work/good" --mode dp --replicas 40 --lanes 40 \
        --hidden 2000,2000 --threads 1 --epochs 1
fi

# A limit on the size of files, which shared memory is under too, is named.
expect "ulimit -f, the board" 5 'File too large \(see ulimit -f\)' sh -c 'ulimit -f 1; exec "$@"' sh $t $one
expect "ulimit -f, the workers" 5 'cannot allocate [01]\.[1-9] MB: File too large \(see ulimit -f\)' \
    sh -c 'ulimit -f 100; exec "$@"' sh "$ddprun" -n 2 trainer --quiet $one

# A name of any length leaves the reason in the message.
expect "a long name" 4 'error: 00000.*000 \.\.\. 0000.*: File name too long' $t --load "$(printf %070000d 0)"
[ "$(wc -c <"$work/out")" -lt 1200 ] || fail "a long name: a message of $(wc -c <"$work/out") bytes"

# Output that cannot be written.
if [ -e /dev/full ]; then
    count=$((count + 1))
    $trainer $one >/dev/full 2>"$work/err"
    [ $? -eq 4 ] || fail "full standard output: not exit code 4"
    count=$((count + 1))
    $trainer --help >/dev/full 2>"$work/err"
    [ $? -eq 4 ] || fail "help to a full standard output: not exit code 4"
    grep -q 'standard output' "$work/err" || fail "help to a full standard output: no message"
fi

# Under ddprun: one message, the worker's code, nobody left.
expect "ddprun, bad flag" 2 'error: .*--frobnicate' "$ddprun" -n 2 trainer --frobnicate
expect "ddprun, save below a file" 4 'error: .*null/f' "$ddprun" -n 2 trainer --quiet $one --save /dev/null/f
expect "ddprun, no such program" 127 'no-such-program' "$ddprun" -n 2 no-such-program

# Memory is refused before it is taken, by what a run is sure to need: also the partial sums of gradients.
expect "a model without end" 5 'error: out of memory: 1 worker with .* there are [0-9.]* GB: use .* 1 array each for 1 lane;' \
    $t --data "$work/good" --hidden 1048576,1048576
memory=$(sed -n 's/.*there are \([0-9.]*\) GB.*/\1/p' "$work/out")
width=$(awk "BEGIN { print int(sqrt($memory * 1e9 / 44)) }") # its weights take an eleventh
# partial_sums LANES ARRAYS COMMAND...: lanes of a worker
partial_sums() {
    lanes=$1 arrays=$2
    shift 2
    expect "partial sums, $*" 5 "error: out of memory: .* in $arrays arrays each for $lanes lanes;" "$@" \
        --quiet --data "$work/good" --hidden "$width,$width" --acc-steps 8000 --batch-size 1 --steps 1 --no-eval --lanes 1024
}
partial_sums 1024 11 "$trainer"
partial_sums 512 10 "$trainer" --mode dp --replicas 2
partial_sums 512 10 "$ddprun" -n 2 trainer

# Options of earlier versions say what takes their place.
while read -r option instead; do
    expect "$option" 2 "error: $option was removed: .*$instead" $t $one "$option"
done <<'END'
--merge use --export PATH,merge
--classes use --shape 3,32,32:10
--local-from use --sync-every H,from=STEP
--outer-lr use --sync-every H,lr=RATE
--outer-momentum use --sync-every H,momentum=M
--sample-length use --sample-every N,length=L
--trace-steps use --trace FILE,steps=A-B
--warmup-epochs use --warmup-steps N
--export-dtype use --export PATH,dtype=bf16
--shard-size use --export PATH,shard=5G
--export-format use --export PATH,format=llmc
--mfu leave it out
--sync-state leave it out
--check_replicas the tests
--shared-weights leave it out
--no-shared-weights leave it out
END
for words in x,merged x,dtype=f32 x,shard=5 x,format=pt ,merge x,; do
    expect "--export $words" 2 "error: --export $words: " $t $one --export "$words"
done

# Options that are useless together: refused when they speak of another task, else told in one line.
# told NAME PATTERN OPTION...: the run is good, and says this in its only line
told() {
    name=$1 pattern=$2
    shift 2
    expect "$name" 0 "warning: $pattern" "$@"
    [ "$(grep -c warning: "$work/out")" -eq 1 ] || fail "$name: not one warning: $(cat "$work/out")"
}
for option in '--prompt x' '--temperature 0.8'; do
    expect "$option" 2 "error: ${option% *} belongs to --generate N" $t $one $option
done
expect "hidden for cnn" 2 'error: --hidden belongs to the model mlp, and the model is cnn' $t --model cnn --hidden 5
told "warm-up" '--warmup-steps: the warm-up of 9 steps is longer than the run, of 2:.* never reaches 0.01' \
    $t --model article --epochs 2 --warmup-steps 9
told "warm-up, 2 workers" '--warmup-steps: .* longer than the run' "$ddprun" -n 2 trainer --quiet $one --warmup-steps 9
told "milestones" '--schedule ...,at=: the last one is at step 8, and the run has 2' \
    $t --model article --epochs 2 --schedule step,at=1:7
told "step size" '--schedule ...,every=: the first fall is at step 8, and the run has 2' \
    $t --model article --epochs 2 --schedule step,every=7
told "trace steps" '--trace ...,steps= begins at 20, and the run ends after step 1: the trace shows none' $t $one --trace "$work/t,steps=20-30"
told "decay" '--weight-decay 0,on= has no effect' $t $one --weight-decay 0,on=matrices
told "val" '--val has no effect with --no-eval' $t --data "$here/tests/data/golden/npy/grey.npy,$here/tests/data/golden/npy/grey-y.npy" \
    --val "$here/tests/data/golden/npy/grey.npy,$here/tests/data/golden/npy/grey-y.npy" --no-eval --hidden 2 --steps 1
expect "generating" 4 'warning: --save, --epochs have no effect with --generate' $t --generate 3 --save x --epochs 3 --load "$work/none"
expect "exactly the run" 0 '' $t --model article --epochs 2 --warmup-steps 2 --schedule step,at=1 \
    --weight-decay 0.1,on=matrices --trace "$work/t,steps=2"
[ ! -s "$work/out" ] || fail "exactly the run: $(cat "$work/out")"

finish
