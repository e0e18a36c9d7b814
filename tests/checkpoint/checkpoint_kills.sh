#!/bin/sh
# SPDX-License-Identifier: MIT
# Training with checkpoints, killed with SIGKILL at random moments and resumed each time, alone and on several workers:
# every checkpoint is whole after every kill, no more is lost than the work since the last one, and the weights at the
# end are those of a run that was left alone. KILLS=N makes it N kills.
. "${srcdir:-.}/tests/lib/cli.inc"
kills=${KILLS:-30}
every=5
steps=2000
dir=$work/dir
common="--model article --data-size 700 --shuffle --batch-size 8 --global-batch 64 --steps $steps --lr 1e-6 --threads 1"

"$trainer" $common --quiet --save "$work/reference" || fail "the run to compare with"

# random LIMIT: a number below it, another sequence each time
seed=$(od -An -tu4 -N 4 /dev/urandom)
random() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 64 % $1))
}

killed=0 runs=0 newest=0 complete=0
while [ $killed -lt "$kills" ] && [ "$failures" -lt 5 ]; do
    runs=$((runs + 1))
    case $((runs % 4)) in
    0) workers=1 start="$trainer" ;;
    1) workers=2 start="$ddprun -n 2 trainer" ;;
    2) workers=1 start="$trainer --mode dp --replicas 2" ;;
    3) workers=4 start="$ddprun -n 4 trainer" ;;
    esac
    rm -f "$work/f"
    $start $common --checkpoint "$dir" --checkpoint-every $every --resume --log-every 1 --save "$work/f" \
        >"$work/out" 2>"$work/err" &
    job=$!
    random 160
    sleep "0.$(printf %03d "$drawn")" # time: a kill may come at any moment
    victim=$job
    # Of a job with workers, mostly one of them, and sometimes the launcher.
    random 4
    if [ $workers -gt 1 ] && [ "$drawn" -gt 0 ]; then
        pids=$(cat "/proc/$job/task/$job/children" 2>/dev/null)
        random 4
        # shellcheck disable=SC2086 # a word a process
        set -- $pids
        [ $# -gt "$drawn" ] && shift "$drawn"
        victim=${1:-$job}
    fi
    kill -9 "$victim" 2>/dev/null
    wait $job 2>/dev/null
    code=$?
    count=$((count + 1))
    # When the launcher was the victim, its workers die a moment later.
    tries=0
    while [ -d "$dir" ] && ! flock -n "$dir" true && [ $tries -lt $((200 * patience)) ]; do
        tries=$((tries + 1))
        sleep 0.01
    done
    if grep -q 'skipped a damaged checkpoint' "$work/err"; then
        fail "kill $killed: $(cat "$work/err")"
    fi
    if [ $code -eq 0 ]; then
        cmp -s "$work/f" "$work/reference" || fail "run $runs: other bits than a run that was left alone"
        complete=$((complete + 1)) newest=0
        rm -rf "$dir"
        continue
    fi
    killed=$((killed + 1))
    [ -d "$dir" ] || continue
    ./checkpoint_tool "$dir" >"$work/found" 2>"$work/why" ||
        fail "kill $killed: $(cat "$work/found" "$work/why"), with $(ls -A "$dir")"
    found=$(cut -d ' ' -f 1 "$work/found")
    [ "$found" -ge 0 ] || found=0 # none yet
    [ "$found" -ge "$newest" ] || fail "kill $killed: step $found is the newest, and was $newest before"
    # The one that was begun last may be lost, but not the one before.
    shown=$(sed -n 's/.*step \([0-9]*\).*/\1/p' "$work/out" | tail -n 1)
    lost=$((${shown:-0} - found))
    [ $lost -le $((2 * every)) ] || fail "kill $killed: step ${shown:-0} was done, the newest checkpoint is that of $found"
    newest=$found
done
"$ddprun" -n 2 trainer $common --checkpoint "$dir" --checkpoint-every 100 --resume --quiet --save "$work/f" >"$work/out" 2>&1 ||
    fail "the last run: $(cat "$work/out")"
cmp -s "$work/f" "$work/reference" || fail "the last run: other bits than a run that was left alone"
echo "$runs runs, $killed kills, $complete runs came to their end"
finish
