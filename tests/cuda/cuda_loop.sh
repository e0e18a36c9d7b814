#!/bin/sh
# SPDX-License-Identifier: MIT
# A program's own loop on GPUs: weights in and out and gradients (loop_client), hooks and the program's state in checkpoints,
# own data and a rate of its own, to the bits of runs without such a loop, in every mode, with recorded steps and without.
# Operations of the program's own, which run on the CPU alone, are refused.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/cuda/cuda.inc"
. "$here/tests/train/loop_weights.inc"
gpus 4
make_data
common="--device cuda --batch-size 1 --global-batch 8 --no-eval --quiet"
mlp="--data $work/images --hidden 33,17 $common"
gpt2="--model gpt2 --data $work/text --seq-len 8 --layers 1 --heads 2 --channels 16 --dropout 0.1 $common"
resnet="--model resnet --size 20 --data $work/images --device cuda --batch-size 2 --global-batch 8 --no-eval --quiet --lr 1e-3"

# --- weights and gradients by name ---
# Each mode meets each model; with all but resnet, which takes long, dp does everything.
modes() {
    case $action in
    put_first)
        [ "$title" = resnet ] || run "one by one" "env DDP_CUDA_GRAPHS=0" "$@"
        run ddp "$ddprun -n 2 $share" "$@" --bucket-mb 0.005 --zero 1
        ;;
    put_late)
        run accum 1 "$@"
        run "ddp, replicas" "$ddprun -n 4 $share" "$@" --zero 0
        ;;
    dumped)
        run "ddp, one by one" "env DDP_CUDA_GRAPHS=0 $ddprun -n 2 $share" "$@" --zero 1
        ;;
    explained)
        run accum 1 "$@"
        run ddp "$ddprun -n 2 $share" "$@" --bucket-mb 0.005 --zero 1
        ;;
    esac
    if [ "$title" != resnet ] || [ $action = put_late ]; then
        replicas 4
        run dp 1 "$@" $dp
    fi
}
weights "mlp" $mlp --optimizer adamw --weight-decay 0.1
gradients "mlp, clipped" 0.05 $mlp --momentum 0 --clip-grad-norm 0.05
weights "gpt2 in bf16" $gpt2 --dtype bf16
gradients "gpt2 in bf16" "" $gpt2 --dtype bf16 --optimizer sgd --momentum 0 --lr 0.1
weights "resnet" $resnet
modes() {
    run "fast" "$ddprun -n 4 $share" "$@" --fast --zero 1
    run "fast, replicas" "$ddprun -n 4 $share" "$@" --fast --zero 0
}
gradients "mlp" "" $mlp --momentum 0

# --- hooks, a rate that the program sets, its state in checkpoints ---
hooks=$top/hooks_client
# What all ranks have seen: one line if it is the same.
sum() { sed -n 's/^\(\[[0-9]*\]: \)*\(sum [^,]*\),.*/\2/p' "$work/out" | sort -u; }
# sums NAME COMMAND...: as same; and the program has seen the same numbers
sums() {
    name=$1
    same "$@"
    [ "$(sum)" = "$seen" ] || fail "$name: $(sum), in a run of its own $seen"
}
set -- --device cuda --data "$work/images" --hidden 33,17 --batch-size 4 --global-batch 16 --steps 8 --eval-every 3 --quiet
for dtype in fp32 bf16; do
    first=
    same "$dtype: no loop" "$trainer" "$@" --dtype $dtype --schedule step,every=1,gamma=0.5
    export HALVE_AFTER=4 # the first epoch
    set -- "$@" --dtype $dtype --schedule constant
    same "$dtype: run" "$hooks" run "$@"
    seen=$(sum)
    [ -n "$seen" ] || fail "$dtype: no hook was called"
    sums "$dtype: loop" "$hooks" loop "$@"
    sums "$dtype: loop, one by one" env DDP_CUDA_GRAPHS=0 "$hooks" loop "$@"
    sums "$dtype: loop, 4 workers" "$ddprun" -n 4 $share "$hooks" loop "$@" --zero 1
    sums "$dtype: loop, 2 workers, replicas" "$ddprun" -n 2 $share "$hooks" loop "$@" --zero 0
    replicas 2
    sums "$dtype: loop, dp" "$hooks" loop "$@" $dp
    one=$hooks two="$ddprun -n 2 $share $hooks"
    [ $dtype = fp32 ] && begins="one two" || begins="two one"
    for goes_on in "$ddprun -n 4 $share $hooks loop" "$hooks loop $dp"; do
        [ "${begins%% *}" = one ] && start=$one || start=$two
        begins=${begins#* }
        rm -rf "$work/dir"
        STOP_AFTER=5 expect "$dtype: $start, stopped" 75 'save' $start loop "$@" --checkpoint "$work/dir"
        sums "$dtype: $start, then $goes_on" $goes_on "$@" --checkpoint "$work/dir" --resume
        grep -q 'restored 8 bytes' "$work/out" || fail "$dtype: no state was restored by $goes_on"
    done
    unset HALVE_AFTER
    expect "$dtype: calls from hooks" 0 ' calls as they should be, 0 not' "$ddprun" -n 2 $share "$hooks" misuse "$@" --checkpoint "$work/$dtype"
done

# --- own data, and the example of a loop ---
cd "$work" || exit 99
"$top/own_data_tool" npy || exit 99
first=
set -- --device cuda --batch-size 8 --global-batch 32 --hidden 9 --steps 12 --val-split 0.2 --normalize --seed 5 --dtype bf16
same "from files" "$trainer" --data x.npy,y.npy "$@"
grep '^test' out >evaluations
for kind in arrays read; do
    same "$kind" "$top/own_data_tool" $kind "$@"
    grep '^test' out | cmp - evaluations || fail "$kind: other evaluations than from files"
done
same "read, 2 workers" "$ddprun" -n 2 $share "$top/own_data_tool" read "$@"
grep '^test' out | cmp - evaluations || fail "2 workers: other evaluations than from files"
first=
set -- --data images --device cuda --hidden 16 --steps 8 --batch-size 4 --global-batch 16 --lr 1 --eval-every 4
same "own loop" "$top/examples/own_loop" "$@"
grep '^after' out >lines
same "own loop, 2 workers" "$ddprun" -n 2 $share "$top/examples/own_loop" "$@"
grep '^after' out | cmp - lines || fail "own loop: 2 workers show other lines"
same "own loop, dp" "$top/examples/own_loop" "$@" $dp

# --- operations of the program's own ---
says="error: (model: )?swish is the program's own operation, which runs on the CPU(, in float32)?: use --device cpu$"
set -- --data images --steps 1 --batch-size 2 --global-batch 8 --no-eval --quiet
for start in "" "$ddprun -n 2 $share"; do
    for more in "" --plan "--dtype bf16"; do
        expect "own operation, $start $more" 9 "$says" $start "$top/examples/own_op" "$@" --device cuda $more
        [ "$(grep -c swish out)" = 1 ] || fail "own operation, $start $more: said $(grep -c swish out) times"
    done
done
expect "own operation, on the CPU" 0 '' "$top/examples/own_op" "$@" --device cpu
finish
