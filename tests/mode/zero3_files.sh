#!/bin/sh
# SPDX-License-Identifier: MIT
# Files of a model that no node has all of (--zero 3, a pipeline over nodes): the bytes of a run that has it, no more memory on
# the node that writes than the plan says, and nothing half-written on a full disk.
# shellcheck disable=SC2086 # options
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/lib/nodes.inc"
make_data
gpt2="--model gpt2 --data $work/text --layers 2 --heads 2 --channels 64 --seq-len 12 --device cpu --seed 3 --threads 1 --batch-size 1 --no-eval"
gpt2="$gpt2 --global-batch 4 --lanes 4 --steps 2 --optimizer adamw --schedule constant"

# files NAME DIR COMMAND...: what a run writes; compared with the first one of a group
files() {
    name=$1 dir=$work/$2
    shift 2
    count=$((count + 1))
    mkdir "$dir" || exit 99
    "$@" --checkpoint "$dir/cp" --checkpoint-every 1 --save "$dir/saved" >"$work/out" 2>&1 ||
        fail "$name: exit code $?: $(head -n 5 "$work/out")"
    (cd "$dir" && find . -type f ! -name state.json | LC_ALL=C sort | xargs sha256sum) >"$work/sums"
    [ -n "$first" ] || cp "$work/sums" "$work/first"
    first=$name
    [ "$(wc -l <"$work/sums")" -gt 4 ] && cmp -s "$work/sums" "$work/first" || fail "$name: other files than the first: $(head -n 8 "$work/sums")"
    left=$(find "$dir" -name '.*' | head -n 3)
    [ -z "$left" ] || fail "$name: left behind: $left"
}
first=
files "accumulation" a "$trainer" $gpt2 --export "$work/a/exported.safetensors,format=hf"
files "2 x 1" b nodes 2 1 "$trainer" $gpt2 --zero 3 --bucket-mb 0.02 --export "$work/b/exported.safetensors,format=hf"
files "2 + 1" c nodes 2 2,1 "$trainer" $gpt2 --zero 3 --bucket-mb 0.02 --export "$work/c/exported.safetensors,format=hf"
files "2 stages" d nodes 2 1 "$trainer" $gpt2 --mode pipeline --export "$work/d/exported.safetensors,format=hf"
llama="--model llama --size d2 --data $work/text --seq-len 12 --device cpu --seed 3 --threads 1 --no-eval --batch-size 1 --global-batch 4 --steps 2"
first=
files "llama: accumulation" e "$trainer" $llama --export "$work/e/model,dtype=bf16"
files "llama: 2 x 1" f nodes 2 1 "$trainer" $llama --zero 3 --export "$work/f/model,dtype=bf16"
first=
momentum="--optimizer sgd --momentum 0.9" # one array of state, in one bucket
files "gguf: accumulation" g "$trainer" $gpt2 $momentum --export "$work/g/model.gguf"
files "gguf: 2 x 1" h nodes 2 1 "$trainer" $gpt2 $momentum --zero 3 --export "$work/h/model.gguf"

# A full disk: the checkpoint before stays, and there is nothing else. The file of state has 39000
# blocks of 512 bytes, shared memory fewer than 27000.
gpt2="$gpt2 --channels 256 --zero 3"
count=$((count + 1))
average="--optimizer adamw,ema=0.9"
nodes 2 1 "$trainer" $gpt2 $average --checkpoint "$work/disk" --steps 1 >"$work/out" 2>&1 || fail "one step: $(head -n 5 "$work/out")"
ends "a full disk" 4 2 1 sh -c 'ulimit -f 30000; exec "$@"' sh "$trainer" $gpt2 $average --checkpoint "$work/disk" --resume
said "a full disk" 'step-00000002: cannot write: File too large'
count=$((count + 1))
[ "$(ls -A "$work/disk")" = step-00000001 ] || fail "a full disk: there is $(ls -A "$work/disk")"

# peak OPTION...: kB of the largest process of node 0, without files, with them, and resumed; the weights have 25 MB, and so has
# their average, half of it on that node
peak() {
    nodes 2 1 python3 -c 'import os, sys
child = os.fork()
child or os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(child, 0)
print("peak", used.ru_maxrss, flush=True)
sys.exit(os.waitstatus_to_exitcode(status))' "$trainer" $gpt2 --layers 8 --seq-len 4 --bucket-mb 1 "$@" | sed -n 's/.*peak \([0-9]*\)$/\1/p'
}
if [ -n "${DDP_SANITIZE:-}" ]; then
    not_run "memory: a sanitizer hides it"
else
    count=$((count + 1))
    peak >"$work/peaks"
    peak $average --checkpoint "$work/large" --checkpoint-every 1 --save "$work/large.safetensors" >>"$work/peaks"
    rm -r "$work/large/step-00000002"
    peak $average --checkpoint "$work/large" --resume --save "$work/resumed.safetensors" >>"$work/peaks"
    # shellcheck disable=SC2046 # three numbers
    set -- $(cat "$work/peaks")
    [ "$1" -gt 30000 ] && [ "$2" -lt $(($1 + 27000)) ] && [ "$3" -lt $(($1 + 27000)) ] ||
        fail "memory: peak in kB without files, with them, and resumed: $*"
    cmp "$work/large.safetensors" "$work/resumed.safetensors" || fail "memory: resumed, other weights"
    [ "$(wc -c <"$work/large.safetensors")" -gt 25000000 ] || fail "memory: the file is small"
fi
finish
