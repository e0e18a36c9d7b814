#!/bin/sh
# SPDX-License-Identifier: MIT
# ddpreport: tables and pictures of runs, the comparison, bad input.
. "${srcdir:-.}/tests/lib/cli.inc"
report=$top/ddpreport
make_data
images="-d $work/images --hidden 8 --batch-size 4 --threads 1 --no-eval"
log=$work/run.jsonl

# A run that is killed and resumed is one, with its checkpoints.
$trainer $images --steps 60 --log "$log" --checkpoint "$work/ck" --checkpoint-every 20 --quiet || fail "the first training"
sed -i '/"step":5[0-9]/d; /"event":"end"/d; /"step":60/d' "$log"
printf '{"event":"step","st' >>"$log"
rm -rf "$work/ck/step-00000060"
$trainer $images --steps 60 --log "$log" --checkpoint "$work/ck" --checkpoint-every 20 --quiet --resume ||
    fail "the second training"
expect "a restarted run" 0 '^run +accum x1 +60/60 .* 1 +done$' "$report" "$log"
grep -q 'run.jsonl:[0-9]*: this line is truncated and was ignored' "$work/out" || fail "a restarted run: no word of the line cut off"
grep -q '"event":"checkpoint","step":20,' "$log" || fail "no checkpoint in the log"

# Bad input: one line each, and the exit code of its kind.
bad() {
    expect "$@"
    [ "$(grep -c '^ddpreport: error: ' "$work/out")" -eq 1 ] || fail "$1: not one line of error"
}
: >"$work/empty"
head -c 1500 "$log" | tail -c 1000 >"$work/middle"
sed 's/"format":1/"format":2/' "$log" >"$work/later"
bad "no log" 2 'no log is named' "$report"
bad "a missing log" 4 'missing.jsonl: cannot read' "$report" "$work/missing.jsonl"
bad "an empty log" 3 'empty: the file is empty' "$report" "$work/empty"
bad "the middle of a log" 3 'middle:1: ' "$report" "$work/middle"
bad "a text" 3 'text:1: not a line of a log' "$report" "$work/text"
bad "another version" 3 'later:1: a log of format 2, and this ddpreport reads format 1' "$report" "$work/later"
bad "a directory" 4 'images' "$report" "$work/images"
bad "an unwritable page" 4 'nowhere/a.html' "$report" "$log" -o "$work/nowhere/a.html"
bad "another kind of picture" 2 'must end in .html, .svg or .png' "$report" "$log" -o "$work/a.gif"
head -c $(($(wc -c <"$log") - 30)) "$log" >"$work/cut"
expect "a log that is cut off" 0 'cut:[0-9]*: this line is truncated' "$report" "$work/cut"

ln -s "$log" "$work/link.html"
bad "an output that is read" 2 'link.html: this is the file .*run.jsonl, which is read' "$report" "$log" -o "$work/link.html"
# Numbers that cannot be drawn are not known; a regression has no accuracy.
sed 's/"loss":[0-9.]*/"loss":-1e308/; s/"time":[0-9.e]*/"time":1e300/' "$log" >"$work/huge.jsonl"
expect "huge numbers" 0 '^huge +accum x1 +60/60 +- ' "$report" "$work/huge.jsonl" --x time
echo '{"event":"evaluation","step":60,"epoch":1,"time":1.0,"test_loss":0.5,"samples":64,"seconds":0.1}' | cat "$log" - >"$work/mse.jsonl"
expect "no accuracy" 0 '^mse .* 0.5000 +- ' "$report" "$work/mse.jsonl"

# Without gnuplot the table stands, and a message says what to install.
mkdir "$work/bin"
bad "no gnuplot" 9 'install Debian.s package gnuplot-nox' env PATH="$work/bin" "$report" "$log" --terminal
grep -q '^run ' "$work/out" || fail "no gnuplot: no table"
for program in 'echo "bad thing" >&2; exit 3' 'exit 0'; do
    printf '#!/bin/sh\n%s\n' "$program" >"$work/bin/gnuplot"
    chmod +x "$work/bin/gnuplot"
    bad "a gnuplot that does: $program" 1 'gnuplot failed with exit status 3: bad thing|gnuplot has drawn nothing' \
        env PATH="$work/bin:$PATH" "$report" "$log" -o "$work/failed.svg"
    [ ! -e "$work/failed.svg" ] || fail "a gnuplot that does: $program: it leaves a picture"
done
# One that hangs is ended with what it has started.
count=$((count + 1))
printf '#!/bin/sh\nsleep 600 &\necho $! >"%s"\nwait\n' "$work/below" >"$work/bin/gnuplot"
env PATH="$work/bin:$PATH" "$report" "$log" -o "$work/failed.svg" >"$work/out" 2>&1 &
pid=$!
until_true test -s "$work/below" || fail "a gnuplot that hangs: it does not begin"
kill -TERM $pid
wait $pid
[ $? -eq 143 ] || fail "a gnuplot that hangs: ended by SIGTERM with another status"
ended() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.*Z' "/proc/$1/status"; }
until_true ended "$(cat "$work/below")" || { fail "a gnuplot that hangs: what it has started is left"; kill "$(cat "$work/below")"; }

if command -v gnuplot >/dev/null; then
    for axis in step tokens time; do
        expect "the terminal, $axis" 0 'loss \(nats\)' "$report" "$log" --terminal --x $axis
        [ "$(wc -L <"$work/out")" -le 110 ] || fail "the terminal: lines of $(wc -L <"$work/out")"
    done
    expect "the loss of a regression" 0 '^ +loss *[|]? *$' "$report" "$work/mse.jsonl" --terminal
    expect "a picture" 0 '' "$report" "$log" -o "$work/a.svg"
    grep -q '^<svg' "$work/a.svg" && grep -q 'prefers-color-scheme' "$work/a.svg" || fail "a picture: no SVG"
    grep -q '_plot_[0-9a-z]*<' "$work/a.svg" && fail "a picture: gnuplot's names of curves"
    expect "a bitmap" 0 '' "$report" "$log" -o "$work/a.png"
    [ "$(head -c 4 "$work/a.png" | tail -c 3)" = PNG ] || fail "a bitmap: no PNG"
    # The picture of README.md can be made from the logs in the tree.
    expect "the picture of README.md" 0 '' env DDP_PICTURE="$work/modes.svg" sh "$here/doc/modes.sh"
    for file in "$work/modes.svg" "$here/doc/modes.svg"; do
        [ "$(wc -c <"$file")" -lt 61440 ] || fail "$file: $(wc -c <"$file") bytes"
        for word in accumulation DataParallel DDP evaluation Loss Throughput; do
            grep -qF ">$word<" "$file" || grep -qF ">$word <" "$file" || fail "$file: no \"$word\""
        done
    done
    # Ticks have the values that they show, and none is shown twice; a small loss is seen to fall.
    head -n 1 "$log" >"$work/ticks.jsonl"
    awk 'BEGIN { for (i = 1; i <= 300; i++) printf "{\"event\":\"step\",\"step\":%d,\"time\":%d,\"loss\":%g,\"learning_rate\":%g,\"seconds\":0.1,\"samples_per_second\":%d}\n", i, i, 0.7 * exp(-i / 30), 0.0107 * (1 - i / 300), 900000 + 2500 * i }' >>"$work/ticks.jsonl"
    ticks() { # of the terminal, in one line
        sed -n 's/^ *\([0-9.]\{1,\}[kMG]\{0,1\}\) *[|+].*/\1/p' "$work/out" | tr '\n' ' '
    }
    expect "ticks" 0 '' "$report" "$work/ticks.jsonl" --terminal
    case $(ticks) in
    *' 0.012 0.01 0.008 0.006 0.004 0.002 0 2M 1.5M 1M 500k 0 ') ;;
    *) fail "ticks: $(ticks)" ;;
    esac
    expect "a logarithmic axis" 0 '' "$report" "$work/ticks.jsonl" --terminal --log-scale
    case $(ticks) in
    '1 0.1 0.01 0.001 '*) ;;
    *) fail "a logarithmic axis: $(ticks)" ;;
    esac
    expect "a logarithmic axis, a picture" 0 '' "$report" "$work/ticks.jsonl" --log-scale -o "$work/log.svg"
    grep -q '>0.01 *<' "$work/log.svg" || fail "a logarithmic axis, a picture: no 0.01"
    sed 's/"loss":[0-9.e-]*/"loss":0/' "$work/ticks.jsonl" >"$work/zero.jsonl"
    expect "a logarithmic axis of zeros" 0 'learning rate' "$report" "$work/zero.jsonl" --terminal --log-scale -o "$work/zero.svg"
else
    not_run "pictures: gnuplot is not installed"
fi

# The comparison: all end in the same weights, and nothing is left behind.
mkdir "$work/tmp"
small="$trainer -d $work/images --hidden 8 --batch-size 4"
compare="env TMPDIR=$work/tmp $report compare --steps 10 --repeats 2"
$compare --workers 1,2 -- $small >"$work/table" 2>"$work/messages" || { fail "compare: exit code $?"; cat "$work/messages"; }
count=$((count + 1))
for row in 'accumulation 1 x 2 +\(baseline\)' 'DataParallel 2 x 1 +equal' 'DDP 2 x 1 +equal' 'accumulation 1 x 4 +\(baseline\)' 'DDP 2 x 2 +equal'; do
    grep -qE "^$row +[0-9]" "$work/table" || fail "compare: no row $row"
done
grep -qE '^DDP 2 x 1 +[0-9.]+ k?B +[0-9.]+ k?B +[0-9.]+ k?B +[0-9.]+ k?B +[0-9.]+ k?B +[0-9.]+ MB$' "$work/table" || fail "compare: no memory"
[ -z "$(ls "$work/tmp")" ] || fail "compare: it leaves $(ls "$work/tmp")"
# Local steps: other weights, of half of the bytes every 4 steps for they are not shared, and the same in each repeat.
local="env TMPDIR=$work/tmp $report compare --steps 12 --repeats 2 --workers 1,2 --sync-every"
expect "local steps" 0 '^DDP 2 x 1, every 4 +by design ' $local 4 -- $small
sent() { awk -F '  +' -v row="$1" '$1 == row && NF > 9 { split($8, size, " "); print size[1] * (size[2] == "kB" ? 1000 : 1) }' "$work/out"; }
awk -v ddp="$(sent 'DDP 2 x 1')" -v local="$(sent 'DDP 2 x 1, every 4')" 'BEGIN { exit !(ddp > 0 && local / ddp > 0.4 && local / ddp < 0.6) }' ||
    fail "local steps: $(sent 'DDP 2 x 1, every 4') bytes a step beside $(sent 'DDP 2 x 1')"
cat >"$work/other" <<END
#!/bin/sh
case "\$*" in *--sync-every*) exec $trainer "\$@" --seed \$PPID ;; esac
exec $trainer "\$@"
END
chmod +x "$work/other"
bad "local steps that differ" 8 'weights differ that must be equal' $local 4 -- "$work/other" -d "$work/images" --hidden 8 --batch-size 4
grep -qE '^DDP 2 x 1, every 4 +DIFFER ' "$work/out" || fail "local steps that differ: not in the table"
bad "rounds that are not whole" 2 '--sync-every 5: 12 steps .* use --steps 15' $local 5 -- $small
bad "a single round" 2 '--sync-every 12: 12 steps .* use --steps 24' $local 12 -- $small
bad "no local steps" 2 '--sync-every 1: ' $local 1 -- $small
bad "local steps of the trainer" 2 "--sync-every decides .* ddpreport compare --sync-every LIST" $compare -- trainer --sync-every 4
# A program whose weights differ: the second worker of DDP is given another seed.
cat >"$work/other" <<END
#!/bin/sh
[ "\${WORLD_SIZE:-1}" -eq 1 ] && exec $trainer "\$@"
exec $trainer "\$@" --seed 1
END
chmod +x "$work/other"
bad "weights that differ" 8 'weights differ that must be equal' $compare --workers 1,2 -- "$work/other" -d "$work/images" --hidden 8 --batch-size 4
grep -qE '^DDP 2 x 1 +DIFFER ' "$work/out" || fail "weights that differ: not in the table"
bad "a trainer that fails" 4 'compare: one step to begin with: the training ended with exit status 4, for the reason above' \
    $compare -- "$trainer" -d "$work/nowhere"
bad "no such program" 127 'the training ended with exit status 127' $compare -- "$work/nowhere"
bad "a program that is no trainer" 2 'compare: true has written no --log' $compare -- true
bad "an option of ours" 2 "the trainer's --mode decides what is compared" $compare -- trainer --mode=dp
bad "a letter of ours" 2 "the trainer's --steps decides" $compare -- trainer -s 5
bad "no program" 2 'compare: no program is named' $compare
expect "further ways" 0 '^pipeline, 2 stages +equal ' $compare --workers 1,2 --also zero0,zero2,pipeline,wire -- $small
for row in 'DDP 2 x 1, zero 0 +equal' 'DDP 2 x 1, zero 2 +equal' 'accumulation 1 x 2, wire +.baseline.' 'DDP 2 x 1, wire +equal'; do
    grep -qE "^$row " "$work/out" || fail "further ways: no row $row"
done
bad "another way" 2 'must be some of zero0, zero2, pipeline and wire' $compare --also zero0,zero -- $small
bad "two types" 2 '--also wire compares .* leave the trainer.s --dtype out' $compare --also wire -- $small --dtype bf16
bad "one worker" 2 'one worker alone' $compare --workers 1 -- $small
bad "a batch that cannot be cut" 2 'cannot be cut into 2 shards.*--global-batch 6' $compare --workers 1,2 -- "$trainer" -d "$work/images" --hidden 8 --global-batch 5
bad "an unwritable comparison" 4 'nowhere/a.html' $compare -o "$work/nowhere/a.html" -- $small
[ -z "$(ls "$work/tmp")" ] || fail "compare: after failures it leaves $(ls "$work/tmp")"
# Ended by a signal it ends the training, and leaves nothing.
count=$((count + 1))
TMPDIR=$work/tmp "$report" compare --steps 100000 --workers 1,2 -- $small >"$work/out" 2>&1 &
pid=$!
until_true sh -c "ls $work/tmp/*/trace >/dev/null 2>&1" || fail "compare: it does not begin"
kill -TERM $pid
wait $pid
[ $? -eq 143 ] || fail "compare: ended by SIGTERM with another status"
[ -z "$(ls "$work/tmp")" ] || fail "compare: after SIGTERM it leaves $(ls "$work/tmp")"
# Its page needs no gnuplot, and says first whether the weights are equal.
expect "a compared page" 0 '' env PATH="$work/bin:$PATH" $compare --workers 1,2 -o "$work/c.html" -- $small
for colour in 0 1 4; do # of computing, communication and waiting
    [ "$(grep -c "<i class=\"c$colour\" style=\"width:[0-9.]*%\" title=" "$work/c.html")" -ge 3 ] || fail "a compared page: no bars of colour $colour"
done
[ "$(grep -c '<div class="bars">' "$work/c.html")" -eq 3 ] || fail "a compared page: $(grep -c '<div class="bars">' "$work/c.html") pictures, not 3"
grep -q '^<tr><th scope="row">DDP 2 x 2</th><td>equal</td>' "$work/c.html" || fail "a compared page: equal weights are not in the second column"
finish
