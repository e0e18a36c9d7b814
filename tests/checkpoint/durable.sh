#!/bin/sh
# SPDX-License-Identifier: MIT
# What a power cut must not take: a file is synced before it gets its name, and the directory with the name after that,
# for checkpoints, --save and --export. durable_log.c sees the calls.
. "${srcdir:-.}/tests/lib/cli.inc"
library=$top/.libs/libdurable_log.so
[ -f "$library" ] || { echo "no $library" && exit 99; }
common='--model article --data-size 64 --batch-size 8 --global-batch 16 --lr 1e-4 --threads 1 --quiet'
gpt2="--model gpt2 --data $here/HACKING.md --seq-len 8 --layers 1 --heads 1 --channels 8 --batch-size 2 --steps 1 --threads 1 --no-eval --quiet"

# durable NAME NAMED COMMAND...: all is durable, and at least NAMED files or directories got a name
durable() {
    name=$1 names=$2
    shift 2
    count=$((count + 1))
    rm -f "$work/log"
    DURABLE_LOG=$work/log LD_PRELOAD=$library ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" \
        timeout $((120 * patience)) "$@" >"$work/out" 2>&1 || fail "$name: exit code $?: $(head -n 5 "$work/out")"
    awk -v names="$names" '
        function bad(what) { print "FAIL: line " NR ": " what; failed = 1 }
        $1 == "make" { parent[$2] = $3; dirty[$3] = 1; delete dirty[$2] }
        $1 == "write" { dirty[$2] = 1 }
        $1 == "sync" {
            delete dirty[$2]
            for (i in named) if (named[i] == $2) delete named[i]
        }
        $1 == "name" {
            total++
            if ($2 in dirty) bad("named before it was synced")
            for (i in parent) if (parent[i] == $2 && i in dirty) bad("named before a file in it was synced")
            delete parent[$2]
            named[$2] = $3
        }
        END {
            for (i in named) bad("no sync of the directory after inode " i " got its name")
            if (total < names) bad(total + 0 " of " names " names")
            exit failed
        }' "$work/log" >"$work/found" || fail "$name: $(cat "$work/found")"
}

durable "--save" 1 "$trainer" $common --steps 2 --save "$work/f"
durable "--save, over a file" 1 "$trainer" $common --steps 2 --save "$work/f"
durable "checkpoints" 3 "$trainer" $common --steps 6 --checkpoint "$work/a/b" --checkpoint-every 2
durable "checkpoints of workers" 3 "$ddprun" -n 2 trainer $common --steps 6 --checkpoint "$work/c" --checkpoint-every 2
rm "$work/c/step-00000006/state.json"
durable "a checkpoint over a damaged one" 1 "$trainer" $common --steps 6 --checkpoint "$work/c" --resume
durable "the best one" 4 "$trainer" $(echo "$gpt2" | sed 's/--no-eval//') --steps 2 --eval-every 1 --checkpoint "$work/b" --keep 3,best
[ -L "$work/b/best" ] || fail "the best one: there is no link"
mkdir "$work/hf"
durable "--export hf" 2 "$trainer" $gpt2 --export "$work/hf/model.safetensors"
durable "--export llmc" 1 "$trainer" $gpt2 --export "$work/x.bin"
finish
