#!/bin/sh
# SPDX-License-Identifier: MIT
# Tables from a file to predictions beside its rows: numbers and classes, the figures that are reported, resuming, the best
# checkpoint, weights that need nothing else; and one clear line for each table that cannot be learned from.
. "${srcdir:-.}/tests/lib/cli.inc"

# price = 3 area + 10 for a garden, in thousands; a gap every 9 rows; class: which of two is larger
awk 'BEGIN { print "area,garden,id,price,kind"
    for (i = 0; i < 120; i++) {
        a = i * 37 % 101; g = i % 3 ? "no" : "yes"; known = i % 9 != 0; kind = a >= 50 ? "large" : "\"small, \"\"cosy\"\"\""
        printf "%s,%s,r%d,%.1f,%s\n", known ? a : "", g, i, 1000 * (3 * (known ? a : 50) + 10 * (g == "yes")), kind } }' >"$work/t.csv"
head -n 1 "$work/t.csv" >"$work/new.csv"
printf '50,no,x,,\r\n\n50,yes,"y, z",,\n0,maybe,w,,\n' >>"$work/new.csv"
t="$trainer --threads 1 --data $work/t.csv"
price="$t --target price --ignore id,kind"
kind="$t --target kind --ignore id,price"

# --- numbers: learned, and the errors are in their own unit
expect "numbers" 0 '^data .*, 96 samples of 3 numbers, to predict one' $price --val-split 0.2 --epochs 200 --lr 0.01 --save "$work/w" --log "$work/log"
grep -q "note: 1[0-9] missing values of 'area' become the median, [45]" "$work/out" || fail "numbers: missing values: $(cat "$work/out")"
tail -n 20 "$work/out" | grep -E '^test loss 0\.0[0-9]+, R2 0\.9[0-9]+, mean squared error [0-9.e+]+, mean absolute error [0-9.]+$' >/dev/null ||
    fail "numbers: not learned: $(cat "$work/out")"
logged() { grep '"evaluation"' "$work/log" | tail -n 1 | grep -o "\"$1\":[^,}]*" | cut -d: -f2; }
expect "numbers, predicted" 0 '^predictions of 3 samples' $trainer --load "$work/w" --data "$work/new.csv" --predict "$work/p.csv"
# Rows as they were, whatever ends them, and a column more: about 150000 and 10000 more, and a word that is not known.
sed 's/[^,]*$//' "$work/p.csv" >"$work/rows"
printf 'area,garden,id,price,kind,\n50,no,x,,,\n50,yes,"y, z",,,\n0,maybe,w,,,\n' | cmp -s - "$work/rows" || fail "predicted: $(cat "$work/p.csv")"
awk -F, 'NR == 1 { ok = $NF == "prediction" } NR == 2 { a = $NF; ok = ok && a > 135000 && a < 165000 } NR == 3 { ok = ok && $NF > a + 5000 && $NF < a + 15000 }
    END { exit !ok }' "$work/p.csv" || fail "predicted values: $(cat "$work/p.csv")"

# The figures are those of the predictions: of the same rows, as pandas would compute them.
expect "numbers, the test part" 0 '' $price --val-split 0.2 --load "$work/w" --predict "$work/part.csv"
awk -F, 'NR > 1 { d = $4 - $NF; s += d * d; a += d < 0 ? -d : d; y += $4; yy += $4 * $4; n++ }
    END { printf "%.9g\n%.9g\n%.9g\n", s / n, a / n, 1 - s / (yy - y * y / n) }' "$work/part.csv" >"$work/figures"
{ logged test_squared_error; logged test_absolute_error; logged test_r2; } >"$work/logged"
near 3 1e-4 "$work/figures" "$work/logged" relative || fail "figures: $(paste "$work/figures" "$work/logged")"

# --- the same on two workers, and after a stop; the best checkpoint is the one that the rule says
steps="--val-split 0.2 --global-batch 32 --batch-size 16"
expect "one worker" 0 '' $price $steps --epochs 4 --save "$work/one"
expect "two workers" 0 '' "$ddprun" -n 2 $price $steps --epochs 4 --save "$work/two"
expect "two epochs" 0 '' $price $steps --steps 6 --checkpoint "$work/run" --schedule constant --keep 3,best
expect "resumed" 0 'resum' "$ddprun" -n 2 $price $steps --steps 12 --checkpoint "$work/run" --schedule constant --resume --extend --save "$work/resumed"
expect "in one go" 0 '' $price $steps --steps 12 --schedule constant --save "$work/whole"
cmp "$work/one" "$work/two" || fail "two workers: other weights"
cmp "$work/resumed" "$work/whole" || fail "resumed: other weights"
expect "a checkpoint predicts" 0 '' $trainer --load "$work/run/best" --data "$work/new.csv" --predict "$work/best.csv"

# --- classes: their names come back, with probabilities
expect "classes" 0 '^data .*, 120 samples of 3 numbers in 2 classes' $kind --val "$work/t.csv" --epochs 60 --lr 0.01 --save "$work/c"
expect "classes, predicted" 0 '' "$ddprun" -n 2 $trainer --threads 1 --load "$work/c" --data "$work/t.csv" --predict "$work/c.csv"
[ "$(head -n 1 "$work/c.csv")" = "area,garden,id,price,kind,prediction,probability" ] || fail "classes: $(head -n 1 "$work/c.csv")"
right=$(grep -cE ',(large,large|"small, ""cosy""","small, ""cosy"""),[01]' "$work/c.csv")
[ "$right" -ge 100 ] || fail "classes: $right of 120 are right: $(head "$work/c.csv")"
gzip -c "$work/t.csv" >"$work/t.csv.gz"
expect "compressed" 0 '' $trainer --threads 1 --load "$work/c" --data "$work/t.csv.gz" --predict "$work/z.csv"
cmp "$work/c.csv" "$work/z.csv" || fail "a compressed table has other predictions"

# --- columns of many words: an embedding; what each means is learned, and an unknown one has a row of its own
awk 'BEGIN { print "a,town,team,y"
    for (i = 0; i < 1200; i++) {
        a = i * 37 % 101; town = i * 7 % 90; team = i % 66
        printf "%d,town%d,team%d,%d\n", a, town, team, a + 100 * (town * 31 % 17) + 50 * (team % 2) } }' >"$work/words.csv"
printf 'a,town,team\n50,town1,team1\n50,nowhere,team1\n50,town1,team2\n' >"$work/new_words.csv"
words="$trainer --threads 1 --data $work/words.csv --target y --val-split 0.2 --batch-size 32"
expect "many words" 0 '^data .*, 960 samples of 3 numbers' $words --epochs 25 --save "$work/many" --log "$work/log"
awk -v r2="$(logged test_r2)" 'BEGIN { exit !(r2 > 0.98) }' || fail "many words: R2 $(logged test_r2)"
expect "many words, what is saved" 0 '^model  .* words=2 word_rows=158 word_width=20$' "$trainer" info "$work/many"
expect "many words, predicted" 0 '' $trainer --load "$work/many" --data "$work/new_words.csv" --predict "$work/p.csv"
awk -F, 'NR > 1 { p[NR] = $NF } END { exit !(p[2] > 1450 && p[2] < 1560 && p[2] != p[4] && p[3] > 300 && p[3] < 1400) }' \
    "$work/p.csv" || fail "many words, predicted: $(cat "$work/p.csv")"
for dtype in fp32 bf16; do
    steps="--steps 8 --global-batch 32 --batch-size 8 --no-eval --schedule constant --dtype $dtype"
    expect "many words, 1 worker" 0 '' $words $steps --batch-size 8 --save "$work/one"
    expect "many words, 4 workers" 0 '' "$ddprun" -n 4 $words $steps --zero 2 --recompute --save "$work/four"
    expect "many words, a pipeline" 0 '' "$ddprun" -n 2 $words $steps --mode pipeline --stages 2 --save "$work/pipeline"
    expect "many words, half of it" 0 '' $words $steps --steps 4 --checkpoint "$work/half$dtype"
    expect "many words, resumed" 0 'resum' $words $steps --checkpoint "$work/half$dtype" --resume --extend --save "$work/resumed"
    for other in four pipeline resumed; do
        cmp "$work/one" "$work/$other" || fail "many words, $dtype: other weights: $other"
    done
done
expect "many words, --normalize" 2 'error: --normalize belongs to numbers, and .* has words' $words --normalize

expect "info of weights" 0 '^  predicts   price, mean [0-9.]+, deviation [0-9.]+$' "$trainer" info "$work/w"
grep -q '^  columns    area garden$' "$work/out" || fail "info: $(cat "$work/out")"
expect "info of checkpoints" 0 '^model       mlp dims=3 hidden=32,32$' "$trainer" info "$work/run"

# --- what cannot be
bad() { # NAME CODE PATTERN OPTIONS, with the table in bad.csv: in a pipeline a failure would not count
    name=$1 code=$2 pattern=$3
    shift 3
    expect "$name" "$code" "^trainer: error: $pattern" $trainer --threads 1 --data "$work/bad.csv" "$@"
    [ "$(grep -c error "$work/out")" -eq 1 ] || fail "$name: $(cat "$work/out")"
}
expect "no target" 2 'error: .*is a table: name the column to predict with --target COLUMN: it has area, garden, id, price, kind$' $t
expect "unknown target" 2 "error: --target: .* has no column 'rent': it has area, garden, id" $t --target rent
expect "unknown column" 2 "error: --ignore: .* has no column 'ID'" $t --target price --ignore ID
expect "words of many values" 2 "error: .*column 'id' has 120 different words in 120 rows, such as 'r0', too many .*: leave it out with --ignore 'id'" $t --target price
expect "the option without a table" 2 'error: --target belongs to tables' $trainer --data "$here/tests/data/golden/npy/keras-stored.npz" --target y
awk 'BEGIN { print "n,y"; for (i = 0; i < 70; i++) print i "," i; print "x,1" }' >"$work/bad.csv"
bad "a word among numbers" 2 \
    ".*column 'n' holds numbers, but line 72 says 'x'" --target y
expect "another target" 2 "error: --target kind: the model that is loaded predicts 'price'" $t --load "$work/w" --target kind
cut -d, -f2- "$work/t.csv" >"$work/short.csv"
expect "a column is missing" 3 "error: .*short.csv: the column 'area' is missing, which the model learned from" \
    $trainer --load "$work/w" --data "$work/short.csv" --predict "$work/no.csv"
printf 'a,y\n1,2\n1,2,3\n' >"$work/bad.csv"
bad "a ragged row" 3 '.*line 3 has 3 fields, and the table has 2 columns' --target y
printf 'a,y\n1,"2\n3,4\n' >"$work/bad.csv"
bad "a quote that is not closed" 3 '.*line 2: a quote is never closed' --target y
yes a, | head -n 70000 | tr -d '\n' >"$work/bad.csv"
bad "many columns" 3 '.*more than 65536 columns' --target y
printf '\377\376a\0,\0y\0\n\0' >"$work/bad.csv"
bad "UTF-16" 3 '.*the text is UTF-16.*iconv -f UTF-16' --target y
printf 'a,y\nGr\374n,1\n' >"$work/bad.csv"
bad "Latin-1" 3 '.*line 2: byte 0xfc is not UTF-8: .*iconv -f WINDOWS-1252' --target y
printf 'a,y\n1,5\n2,5\n' >"$work/bad.csv"
bad "a target of one value" 2 ".*the target 'y' has the same value in all rows, '5'" --target y
printf 'a,y\n1,1.5\n2,2.5\n3,inf\n' >"$work/bad.csv"
bad "a target with a word among numbers" 2 \
    ".*the target 'y' holds numbers, but line 4 says 'inf': correct it, or take the row out" --target y
{ echo a,y && seq 9 | sed 's/$/,u/' && seq 11 | sed 's/$/,7/'; } >"$work/mixed.csv"
expect "classes that are numbers and words" 0 '20 samples .* in 2 classes' $trainer --threads 1 --data "$work/mixed.csv" --target y --plan
printf 'a,y\n1,5\n2,nan\n' >"$work/bad.csv"
bad "a target that is missing" 2 ".*line 3: the target 'y' is missing: it says nan" --target y
printf 'a,y\n2024-01-31,5\n2024-02-01,6\n' >"$work/bad.csv"
bad "dates" 2 ".*column 'a' holds dates, such as 2024-01-31 in line 2: leave it out with --ignore 'a'" --target y
{ echo a,y && seq 99 | sed 's/$/,u/' && echo 5,v; } >"$work/bad.csv"
bad "a class of the test part alone" 2 ".*the class 'v' of 'y' is in the test part alone" --target y --val-split 99
sed 's/,v$/,w/' "$work/bad.csv" >"$work/other.csv"
bad "a class of the test set alone" 2 ".*other.csv: line 101: the class 'w' of 'y' is not one of the 2" --target y --val "$work/other.csv"

# --- labels of NumPy arrays that are numbers are learned as such
npy() { # NAME DTYPE SHAPE: the bytes of standard input
    { printf '\223NUMPY\001\000v\000'; printf '%-117s\n' "{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"; cat; } >"$work/$1"
}
seq 400 | tr -d '\n' | head -c 400 | npy x.npy '|u1' 100,4
for i in $(seq 100); do printf '\\000\\000\\000\\000\\000\\000\\%03o\\100' $((i % 40)); done >"$work/escaped"
printf "$(cat "$work/escaped")" | npy y.npy '<f8' 100,
expect "NumPy, numbers as labels" 0 '^test loss .*, R2 -?[0-9.]+, mean squared error' $trainer --threads 1 --data "$work/x.npy,$work/y.npy" --val-split 10 --hidden 8 --epochs 2
expect "NumPy, another model" 2 'error: the model resnet learns classes, and .* has numbers for labels: use --model mlp' \
    $trainer --model resnet --data "$work/x.npy,$work/y.npy"
finish
