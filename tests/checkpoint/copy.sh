#!/bin/sh
# SPDX-License-Identifier: MIT
# A job that ddprun may restart goes on from its copy in memory: with the same weights, hashes and checkpoints, and what a program
# keeps of its own; a job that may not be has none. What is lost is told.
. "${srcdir:-.}/tests/lib/cli.inc"
faults=
small="--model article --data-size 300 --shuffle --batch-size 4 --global-batch 16 --steps 60 --lr 1e-6 --optimizer adam --threads 1"
train() { # train NAME START... -- OPTION...: with what ddprun takes, and what trainer takes
    name=$1
    shift
    start=
    while [ "$1" != -- ]; do
        start="$start $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # words
    DDP_FAULTS=$faults expect "$name" 0 "${pattern-}" "$ddprun" -n 2 $start "$trainer" $small --save "$work/saved" "$@"
    cmp -s "$work/saved" "$work/whole" || fail "$name: other weights than of a run that was left alone"
}
# shellcheck disable=SC2086
expect "left alone" 0 '' "$ddprun" -n 2 "$trainer" $small --save "$work/whole" --log "$work/whole.log" --hash-every 20
[ "$(grep -c 'restarts\|copies' "$work/out")" = 0 ] || fail "without restarts there are copies: $(cat "$work/out")"

# --- losses ---
kill='--max-restarts 2'
faults=kill:rank=1,step=30
pattern='^restarts 1, which cost [4-6] steps, computed again, and [0-9.]+ s$'
train "every 8 steps" $kill -- --copy-every 8 --log "$work/log" --hash-every 20
grep -q '^resumed from the copy in memory: 24 of 60 steps are done' "$work/out" || fail "it does not begin after step 24: $(cat "$work/out")"
grep -q '"event":"end".*"status":"success".*"restarts":1,"steps_again":[4-6],"restart_seconds":' "$work/log" ||
    fail "the log's end: $(tail -n 1 "$work/log")"
hash_of() { sed -n 's/.*"event":"hash","step":60,.*"weights":"\([0-9a-f]*\)".*/\1/p' "$1"; }
[ -n "$(hash_of "$work/log")" ] && [ "$(hash_of "$work/log")" = "$(hash_of "$work/whole.log")" ] || fail "another hash after step 60"
pattern='^restarts from two copies of the state in memory, .* as often as 2 % of the time allows'
train "as time says" $kill --
pattern='^restarts 1, which cost'
faults=stop:rank=1,step=30
train "stopped" --max-restarts 2 --timeout 3 -- --copy-every 8
pattern='^resumed from the copy in memory: 24 of 60'
faults=kill:rank=0,step=30
train "rank 0" --max-restarts 1 -- --copy-every 8
pattern='^restarts 1, which cost [0-9]* steps'
faults=kill:rank=1,step=20
train "before the first copy" --max-restarts 1 -- --copy-every 25
faults=kill:rank=1,step=30
! grep -q resumed "$work/out" || fail "it resumes from a copy that cannot be"
pattern=
expect "local steps, left alone" 0 '' "$ddprun" -n 2 "$trainer" $small --sync-every 5,lr=0.7,momentum=0.9 --save "$work/local"
cp "$work/whole" "$work/kept"
cp "$work/local" "$work/whole"
pattern='^resumed from the copy in memory: 24 of 60'
train "local steps" $kill -- --sync-every 5,lr=0.7,momentum=0.9 --copy-every 8
cp "$work/kept" "$work/whole"

# One that is damaged counts as nothing: the weights that the restart left to it are drawn after all.
cat >"$work/damage" <<'END'
#!/bin/sh
copy=/proc/self/fd/$DDPRUN_COPY_FD
[ "$RANK$TORCHELASTIC_RESTART_COUNT" != 01 ] ||
    head -c $(($(stat -L -c %s "$copy") - 4096)) /dev/zero | dd of="$copy" bs=4096 seek=1 conv=notrunc status=none
exec "$@"
END
chmod +x "$work/damage"
pattern='the copy in memory cannot be used: '
train "a damaged copy" $kill "$work/damage" -- --copy-every 8

# --- with checkpoints: whichever has more steps, and is written by then; the directory is the run's own after a restart ---
pattern='^restarts 1, which cost'
train "a copy beside checkpoints" $kill -- --copy-every 8 --checkpoint "$work/dir" --checkpoint-every 20 --keep 0
[ "$(ls "$work/dir" | tr '\n' ' ')" = "step-00000020 step-00000040 step-00000060 " ] || fail "other checkpoints: $(ls "$work/dir")"
rm -r "$work/dir"
# The checkpoint of step 40 begins when that of step 20 is written.
pattern="^resumed from $work/dir/step-000000[24]0: [24]0 of 60"
faults=kill:rank=1,step=45
train "a checkpoint that is newer" --max-restarts 1 -- --copy-every 50 --checkpoint "$work/dir" --checkpoint-every 20 --keep 0
rm -r "$work/dir"
# shellcheck disable=SC2016,SC2086
expect "lost when all is done" 0 '^resumed from .*: all 60 steps are done' "$ddprun" -n 2 --max-restarts 1 \
    sh -c '"$@" && [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]' sh "$trainer" $small --checkpoint "$work/dir"
# shellcheck disable=SC2086
expect "a directory of another run" 2 'there are checkpoints already' "$ddprun" -n 2 $kill "$trainer" $small --checkpoint "$work/dir"

# A disk that is full when a checkpoint is due after a loss: what was written before is whole.
cat >"$work/limited" <<'END'
#!/bin/sh
[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || cat /dev/zero >"${0%limited}disk/zeros" 2>/dev/null
exec "$@"
END
chmod +x "$work/limited"
mkdir "$work/disk"
if unshare -rm mount -t tmpfs -o size=256k none "$work/disk" 2>/dev/null; then
    # shellcheck disable=SC2016,SC2086 # for the inner shell
    DDP_FAULTS=kill:rank=1,step=30 expect "a full disk after a loss" 4 'error: .*disk/.*: No space left' unshare -rm sh -c \
        'mount -t tmpfs -o size=256k none "$0" && "$@"; code=$?; ls "$0/dir" >"$0.list"; exit $code' "$work/disk" "$ddprun" -n 2 \
        $kill "$work/limited" "$trainer" $small --copy-every 8 --checkpoint "$work/disk/dir" --checkpoint-every 20 --keep 0
    [ "$(cat "$work/disk.list")" = step-00000020 ] || fail "a full disk after a loss: checkpoints: $(cat "$work/disk.list")"
else
    not_run "a full disk: no file system can be mounted here"
fi

# --- a pipeline with replicas ---
faults=kill:rank=1,step=30
awk 'BEGIN { for (i = 0; i < 300; i++) printf "the square of %d is %d\n", i, i * i }' >"$work/text"
small="--model gpt2 --layers 2 --heads 1 --channels 16 --data $work/text --seq-len 8 --batch-size 2 --global-batch 8 --no-eval
    --steps 60 --threads 1"
# shellcheck disable=SC2086
expect "a pipeline, left alone" 0 '' "$ddprun" -n 2 "$trainer" $small --save "$work/whole"
pattern='^resumed from the copy in memory: 24 of 60'
train "a pipeline" $kill -n 4 --oversubscribe -- --mode pipeline --stages 2 --copy-every 8

# --- what is refused, and what there is no room for ---
# shellcheck disable=SC2086
expect "no restarts" 2 'error: .*--copy-every: only ddprun --max-restarts N keeps a copy' "$ddprun" -n 2 "$trainer" $small --copy-every 8
# time: whether training has begun or not, each attempt ends alike
# shellcheck disable=SC2086
expect "used up" 137 'restarting all workers \(1 of 1\)' "$ddprun" -n 2 --max-restarts 1 sh -c \
    '"$0" "$@" & sleep 0.3; kill -KILL $$' "$trainer" $small
# shellcheck disable=SC2086
expect "the plan" 0 'copies  +[0-9.]+ .B' "$ddprun" -n 2 --max-restarts 1 "$trainer" $small --copy-every 8 --plan
grep -q 'made in turn every 8 steps' "$work/out" || fail "the plan does not say how often: $(cat "$work/out")"
finish
