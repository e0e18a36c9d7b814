#!/bin/sh
# SPDX-License-Identifier: MIT
# Memory runs out at any moment: the trainer ends with exit code 5 and one message, or succeeds; it never dies and never
# hangs. Under a limit of address space, which threads meet too, and with single allocations that fail, and
# all after them (fail_alloc.c). TRIES of each command; no_memory_long.sh has more.
. "${srcdir:-.}/tests/lib/cli.inc"
if [ -n "${DDP_SANITIZE:-}" ]; then
    echo "SKIP: the sanitizers have allocators of their own, and need all address space there is"
    exit 77
fi
tries=${TRIES:-5}
failing=$top/tests/train/.libs/fail_alloc.so
[ -r "$failing" ] || { echo "no $failing"; exit 99; }

i=0
while [ $i -lt 150 ]; do
    echo "line $i of a text"
    i=$((i + 1))
done >"$work/text"
gpt2="--model gpt2 --layers 1 --heads 2 --channels 16 --seq-len 16 --batch-size 2 --steps 2 --schedule constant"
gpt2="--quiet --device cpu --threads 2 --data $work/text $gpt2"
mkdir "$work/in" "$work/plain"
"$trainer" $gpt2 --save "$work/in/w" --export "$work/in/model.safetensors" --checkpoint "$work/in/c" || fail "training"
printf '\0\0\010\003\0\0\0\012\0\0\0\4\0\0\0\4%160d' 7 >"$work/plain/train-images-idx3-ubyte"
printf '\0\0\010\001\0\0\0\012\0\0\0\0\0\1\1\1\1\1' >"$work/plain/train-labels-idx1-ubyte"
printf '\0\0\010\003\0\0\0\2\0\0\0\4\0\0\0\4%32d' 7 >"$work/plain/t10k-images-idx3-ubyte"
printf '\0\0\010\001\0\0\0\2\0\1' >"$work/plain/t10k-labels-idx1-ubyte"
mkdir "$work/in/parts" # a model with an index
cp "$work/in/model.safetensors" "$work/in/parts/part.safetensors"
cp "$work/in/config.json" "$work/in/parts"
head -c 9000 "$work/in/model.safetensors" | grep -ao '"transformer\.[^"]*"' | sed 's/$/: "part.safetensors"/' | paste -sd , |
    sed 's/^/{"weight_map": {/; s/$/}}/' >"$work/in/parts/model.safetensors.index.json"
mkdir "$work/texts"
gzip -c "$work/text" >"$work/texts/a.txt.gz"
sed 's/.*/{"text": "& \\u00e9"}/' "$work/text" >"$work/texts/b.jsonl"

"$top/image_tool" "$work/images" 2 6 0 3 1 || exit 99

# The commands, by name; they write to $work/o, which begins as a copy of $work/begin.
command_of() {
    case $1 in
    article) echo "--model article --steps 2" ;;
    gpt2) echo "$gpt2 --checkpoint $work/o/c --checkpoint-every 1 --save $work/o/w --export $work/o/model.safetensors" \
        "--log $work/o/log --tensorboard $work/o/tb --trace $work/o/trace --acc-steps 2" ;;
    llmc) echo "$gpt2 --export $work/o/m.bin --optimizer sgd --dropout 0.1 --dtype bf16" ;;
    resume) echo "$gpt2 --checkpoint $work/o/c --resume --steps 4" ;;
    config) echo "$gpt2 --config $work/in/config.json --load $work/in/model.safetensors" ;;
    dp) echo "$gpt2 --mode dp --replicas 2 --acc-steps 2" ;;
    npz) echo "--quiet --batch-size 4 --hidden 8 --steps 3 --threads 2 --data $here/tests/data/golden/npy/keras-deflated.npz" ;;
    idx) echo "--data $work/plain --hidden 8 --steps 3 --batch-size 4 --plan --verbose" ;;
    texts) echo "$gpt2 --data $work/texts --val-split 0.2" ;;
    split) echo "--quiet --batch-size 2 --hidden 8 --steps 3 --threads 2 --normalize --val-split 1" \
        "--data $here/tests/data/golden/npy/names-sklearn.npz" ;;
    images) echo "--quiet --dataset images --data $work/images --val $work/images --image-size 8 --batch-size 4 --model mlp --hidden 8" \
        "--steps 3" ;;
    load) echo "${gpt2%--model*} --load $work/in/c --batch-size 2 --steps 2" ;;
    parts) echo "${gpt2%--model*} --load $work/in/parts --batch-size 2 --steps 2" ;;
    generate) echo "--generate 5 --prompt abc --load $work/in/w" ;;
    esac
}

# try NAME COMMAND...: a run that ends well or with code 5
died=0 refused=0 good=0
try() {
    what=$1
    shift
    count=$((count + 1))
    rm -rf "$work/o"
    mkdir "$work/o"
    case $what in resume*) cp -r "$work/in/c" "$work/o/c" ;; esac
    timeout $((60 * patience)) "$@" >"$work/out" 2>"$work/err"
    got=$?
    case $got in
    0) good=$((good + 1)) ;;
    5)
        refused=$((refused + 1))
        [ "$(grep -c 'error: .*memory' "$work/err")" -eq 1 ] && [ "$(grep -c 'error:' "$work/err")" -eq 1 ] ||
            fail "$what: not one message: $(head -n 5 "$work/err")"
        ;;
    *)
        died=$((died + 1))
        fail "$what: exit code $got: $(head -n 3 "$work/err")"
        ;;
    esac
}

# --- allocations that fail

for name in ${COMMANDS:-article gpt2 llmc resume config dp npz idx texts split images load parts generate}; do
    set -- "$trainer" $(command_of $name)
    for all in '' FAIL_ALLOC_ALL=1; do
        # libtool's script must not be what fails: the program is started by itself.
        set_up="env $all LD_LIBRARY_PATH=$top/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LD_PRELOAD=$failing"
        shift
        program=$top/.libs/trainer
        [ -x "$program" ] || program=$trainer
        set -- "$program" "$@"
        rm -f "$work/calls"
        try "$name" $set_up FAIL_ALLOC_COUNT="$work/calls" "$@"
        [ "$got" -eq 0 ] || fail "$name: exit code $got where nothing fails"
        calls=$(cat "$work/calls")
        [ "${calls:-0}" -gt 50 ] || fail "$name: $calls allocations were seen"
        k=0
        while [ $k -lt "$tries" ] && [ $k -lt "$calls" ]; do
            at=$((1 + (calls - 1) * k / (tries - 1)))
            try "$name $all, allocation $at of $calls" $set_up FAIL_ALLOC=$at "$@"
            k=$((k + 1))
        done
    done
done
echo "allocations: $good runs were good, $refused ended with 5, $died otherwise"

# --- address space

# From the least in which the program starts at all (the dynamic linker is not ours).
space=30000
until sh -c "ulimit -v $space; exec \"\$@\"" sh "$top/ddprun" --version >/dev/null 2>&1; do space=$((space + 1000)); done
export LD_LIBRARY_PATH="$top/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
until sh -c "ulimit -v $space; exec \"\$@\"" sh "$program" --version >/dev/null 2>&1 || [ $space -gt 1000000 ]; do
    space=$((space + 1000))
done
good=0 refused=0
for name in ${COMMANDS:-gpt2 dp llmc}; do
    k=0
    while [ $k -lt $((2 * tries)) ]; do
        kib=$((space + 1000 + k * 240000 / (2 * tries)))
        # shellcheck disable=SC2016 # for the inner shell
        try "$name, $kib KiB" sh -c 'ulimit -v "$0"; exec "$@"' $kib "$program" $(command_of $name)
        k=$((k + 1))
    done
done
echo "address space from $space KiB: $good runs were good, $refused ended with 5, $died otherwise"
[ "$refused" -gt 0 ] || fail "memory never ran out"
finish
