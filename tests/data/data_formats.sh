#!/bin/sh
# SPDX-License-Identifier: MIT
# The trainer on each format: found by its name, learned from, and one clear line when files change under it.
. "${srcdir:-.}/tests/lib/cli.inc"

t="$trainer --batch-size 4 --hidden 8 --steps 3 --threads 1"
golden=$here/tests/data/golden/npy

# The plan names the data and their number.
expect "NumPy, two files" 0 '^data .*grey-y.npy, 4 samples' $t --data "$golden/grey.npy,$golden/grey-y.npy"
expect "NumPy archive" 0 '^test accuracy' $t --data "$golden/keras-stored.npz"
expect "NumPy archive, compressed" 0 '^test accuracy' $t --data "$golden/medmnist-deflated.npz"
expect "NumPy, no labels" 2 'error: .*version-1.npy has no labels' $t --data "$golden/version-1.npy"
expect "NumPy, a test set" 0 '^test accuracy' $t --data "$golden/grey.npy,$golden/grey-y.npy" \
    --val "$golden/grey.npy,$golden/grey-y.npy"
expect "NumPy, missing labels" 4 'error: .*none.npy' $t --data "$golden/grey.npy,$golden/none.npy"
expect "NumPy archive, capitals" 0 '^test accuracy' $t --data "$golden/names-capitals.npz"
expect "NumPy archive, other names" 3 'error: .*has weights float32 of \(4, 3\); ids int64 of \(4,\); .*call the samples' \
    $t --data "$golden/none-fits.npz"

# Texts: directories, JSON lines, compressed ones. The same text in four forms ends in the same weights.
text="$trainer --model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 16 --batch-size 4 --steps 5 --threads 1 --quiet"
mkdir -p "$work/texts/deep" "$work/sets/train" "$work/sets/val"
seq 1000 | tr '\n' ' ' >"$work/texts/a.txt"
seq 2000 3000 | tr '\n' ' ' >"$work/texts/deep/b.txt"
{ cat "$work/texts/a.txt" && echo && cat "$work/texts/deep/b.txt"; } >"$work/joined.txt"
gzip -c "$work/joined.txt" >"$work/joined.txt.gz"
for file in texts/a.txt texts/deep/b.txt; do printf '{"text": "%s"}\n' "$(cat "$work/$file")"; done >"$work/lines.jsonl"
gzip -c "$work/lines.jsonl" >"$work/lines.jsonl.gz"
first=
same "a text" $text --data "$work/joined.txt"
same "a directory of texts" $text --data "$work/texts"
same "a text, compressed" $text --data "$work/joined.txt.gz"
same "JSON lines" $text --data "$work/lines.jsonl"
same "JSON lines, compressed" $text --data "$work/lines.jsonl.gz"
same "a pattern of texts" $text --data "$work/joined.tx?"

# Parquet is not read as text.
mkdir -p "$work/hub/data" && printf 'PAR1' | tee "$work/x.parquet" >"$work/hub/data/train-00000-of-00001.parquet"
expect "Parquet" 3 'error: .*x.parquet: Parquet is not read: convert each file to JSON lines, with' $text --data "$work/x.parquet"
expect "Parquet for the test" 3 'error: .*x.parquet: Parquet is not read' $text --data "$work/joined.txt" --val "$work/x.parquet"
expect "a directory of Parquet" 3 'error: .*hub: Parquet is not read' $text --data "$work/hub"

cp "$work/texts/a.txt" "$work/sets/train"
cp "$work/texts/deep/b.txt" "$work/sets/val"
expect "directories for both sets" 0 'note: .*sets: 1 text, 3893 bytes for training, 1 for evaluation' \
    $trainer --model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 16 --steps 2 --data "$work/sets"
grep -q '^test ' "$work/out" || fail "directories for both sets: no evaluation"
echo '{"text": 3}' >>"$work/lines.jsonl"
expect "a bad line" 3 'error: .*lines.jsonl: line 3: no text in it' $text --data "$work/lines.jsonl"
mkdir "$work/nothing"
expect "an empty directory" 4 'no data found in this directory. Looked for: .*\*.txt, \*.jsonl' $text --data "$work/nothing"
head -c 3000000 /dev/zero | tr '\0' 'x' | gzip >"$work/large.txt.gz"
expect "what is in memory is in the plan" 0 '^data .*large.txt.gz, .* 3.0 MB in memory of each worker' \
    $trainer --model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 64 --data "$work/large.txt.gz" --plan

# CIFAR: records of a label and 3072 pixels; here all zero.
mkdir "$work/cifar"
cifar() {
    head -c $((3073 * 400)) /dev/zero >"$work/cifar/data_batch_1.bin"
    head -c $((3073 * 100)) /dev/zero >"$work/cifar/data_batch_2.bin"
    head -c $((3073 * 10)) /dev/zero >"$work/cifar/test_batch.bin"
}
cifar
expect "CIFAR" 0 '^data .*cifar, 500 samples' $t --data "$work/cifar"
expect "CIFAR, augmented" 0 '^test accuracy' $t --data "$work/cifar" --augment crop,flip --data-threads 2
expect "no regions of other data" 2 'error: --augment resized: regions are cut out of image files' $t --data "$work/cifar" --augment resized
expect "CIFAR, another name" 3 'error: .*data_batch_1.bin' "$trainer" --data "$work/cifar/data_batch_1.bin" --dataset tokens --tokens gpt2
expect "IDX asked for" 4 'error: .*cifar/train-labels' $t --data "$work/cifar" --dataset idx
expect "a test set of its own" 2 'error: --val' $t --data "$work/cifar" --val "$work/cifar"
truncate -s -1 "$work/cifar/test_batch.bin"
expect "CIFAR, cut" 3 'error: .*test_batch.bin: truncated' $t --data "$work/cifar"

# Directories of images: classes that only their stripes tell apart, PNG and JPEG, each of a size of its own.
write_images() { "$top/image_tool" "$@" || exit 99; }
mkdir "$work/stripes"
write_images "$work/stripes/train" 4 60 0 3 1
write_images "$work/stripes/val" 4 25 0 3 2
images="$trainer --model cnn --batch-size 16 --threads 1 --data $work/stripes"
expect "images, one step" 0 '^data .*stripes/train, 240 samples of 3 x 24 x 24 in 4 classes' $images --image-size 24 --steps 1
expect "images learned" 0 '^test accuracy (9[0-9]|100)\.' $images --image-size 24 --epochs 3
expect "images, 2 workers, a size of two sides" 0 '3 x 20 x 30 in 4 classes' "$ddprun" -n 2 $images --image-size 20x30 --steps 3 --data-threads 2
# Without a model named: a small residual network, which learns with what is chosen.
expect "images, all chosen" 0 '^test accuracy (9[0-9]|100)\.' "$trainer" --threads 1 --data "$work/stripes" --image-size 16 --epochs 3
grep -q '^model *resnet, 27[0-9]* parameters' "$work/out" && grep -q '^update *adamw' "$work/out" &&
    grep -q '^batch *8 samples' "$work/out" && grep -q '^steps *90 (30 an epoch), learning rate 0.0003 cosine' "$work/out" ||
    fail "images, all chosen: $(cat "$work/out")"
# The batch is smaller where images are few: 480 to a worker take 16, and what is given stays.
for chosen in "1600 32 1000 50" "480 16 900 30" "240 8 900 30" "80 8 900 10" "40 8 500 5"; do
    set -- $chosen
    mkdir "$work/few" && write_images "$work/few" 4 $(($1 / 4)) 8 3 1
    expect "images, $1: a batch" 0 "^batch *$2 samples x 1 shard" "$trainer" --data "$work/few" --plan --no-eval
    grep -q "^steps *$3 ($4 an epoch)" "$work/out" || fail "images, $1: $(cat "$work/out")"
    rm -r "$work/few"
done
expect "images, epochs that are given" 0 '^steps *60 \(30 an epoch\)' "$trainer" --data "$work/stripes" --image-size 8 --plan --epochs 2
expect "images, 2 workers and a chosen batch" 0 '' "$ddprun" -n 2 "$trainer" --threads 1 --data "$work/stripes" --image-size 8 --steps 2 --no-eval \
    --hash-every 1 --log "$work/chosen.jsonl" --quiet
expect "images, computed again" 0 '' "$trainer" verify "$work/chosen.jsonl"
expect "images, a batch that is given" 0 '^batch *32 samples' "$trainer" --data "$work/stripes" --image-size 8 --plan --batch-size 32
expect "images, a global batch that is given" 0 '= global batch 64$' "$trainer" --data "$work/stripes" --image-size 8 --plan --global-batch 64
expect "images, a larger network" 0 '^model *resnet, 111[0-9]* parameters' "$trainer" --threads 1 --data "$work/stripes" --image-size 65 --plan
expect "images, augmented" 0 '^test accuracy' $images --image-size 24 --steps 2 --augment crop,flip
drawn="--image-size 16 --steps 3 --no-eval --augment resized=0.2,flip,jitter --quiet"
expect "images, regions and colours" 0 '' $images $drawn --acc-steps 2 --save "$work/one.w"
expect "images, regions and colours, 2 workers" 0 '' "$ddprun" -n 2 $images $drawn --data-threads 2 --save "$work/two.w"
cmp "$work/one.w" "$work/two.w" || fail "images, regions and colours: other weights with 2 workers"
for size in 10 10,reduced 10,reduced; do # most are then decoded at half their size
    rm -f "$work/d.w"
    expect "images, --image-size $size" 0 '' $images --image-size "$size" --steps 2 --no-eval --quiet --save "$work/d.w" --augment resized=0.9
    cksum <"$work/d.w" >>"$work/sizes"
done
[ "$(sort "$work/sizes" | uniq | wc -l)" -eq 2 ] || fail "images, reduced: $(cat "$work/sizes")"
expect "images, smaller" 2 'error: --image-size 10,small: must be a side' $images --image-size 10,small
expect "images of many sizes" 3 'error: .*stripes/train/stripes-0/.* and .*/stripes-0/000.png is .* --image-size N or HxW' $images
expect "images, no size" 2 'error: --image-size' $images --image-size 24x
expect "images, a size for other data" 2 'error: --image-size belongs to directories of images' $t --data "$work/cifar" --image-size 24
expect "images, a test set cut off" 0 '^test accuracy' $images/train --image-size 8 --steps 2 --val-split 0.1
touch "$work/stripes/train/stripes-1/notes.txt"
expect "images, another file" 0 'ignored 1 file: not an image.*stripes-1/notes.txt' $images --image-size 8 --steps 1
count=$((count + 1))
[ "$(grep -c 'ignored 1 file' "$work/out")" -eq 1 ] || fail "images, another file: not told once"
expect "images, other file, 2 workers" 0 '' "$ddprun" -n 2 $images --image-size 8 --steps 1
count=$((count + 1))
[ "$(grep -c 'ignored 1 file' "$work/out")" -eq 1 ] || fail "images, another file: not told once by 2 workers"
mkdir "$work/stripes/train/empty"
expect "images, an empty class" 3 'error: .*train/empty: this class has no images' $images --image-size 8
rmdir "$work/stripes/train/empty"
# New images, without labels, get the names of the training set's classes.
mkdir "$work/new"
cp "$work"/stripes/val/stripes-2/00[0-4].* "$work/new"
expect "images to predict with" 0 '' $images --image-size 24 --epochs 3 --no-eval --quiet --save "$work/stripes.w"
expect "images, predicted" 0 '^predictions of 5 samples' $images --image-size 24 --val "$work/new" --load "$work/stripes.w" \
    --predict "$work/new.csv"
count=$((count + 1))
[ "$(grep -c '^[0-4],00[0-4]\.[pngj]*,stripes-2,' "$work/new.csv")" -ge 4 ] || fail "images, predicted: $(cat "$work/new.csv")"
# The weights know all that is needed: names, scale and size.
expect "images, predicted from weights" 0 '' $trainer --threads 1 --data "$work/new" --load "$work/stripes.w" --predict "$work/alone.csv"
cmp "$work/new.csv" "$work/alone.csv" || fail "images, predicted from weights: other predictions: $(cat "$work/alone.csv" "$work/out")"
expect "images for any size" 0 '' $images/train --model resnet --image-size 8 --steps 1 --quiet --save "$work/resnet.w"
expect "images of another size" 0 'warning: the model learned from images of 8 x 8, and those of .*new are 12 x 12' \
    $trainer --threads 1 --data "$work/new" --load "$work/resnet.w" --predict "$work/alone.csv" --image-size 12
expect "images, info" 0 '^  size       24 24$' "$trainer" info "$work/stripes.w"
grep -q '^  classes    stripes-0 stripes-1 stripes-2 stripes-3$' "$work/out" || fail "images, info: $(cat "$work/out")"
expect "images without labels, no evaluation" 0 'new has no labels, so nothing is evaluated' $images --image-size 8 --steps 1 \
    --val "$work/new"
# Grey ones of one size; the labels' names do not matter to the model.
write_images "$work/grey" 2 20 28 1 3
expect "images, grey" 0 '40 samples of 1 x 28 x 28 in 2 classes' $t --model mlp --data "$work/grey"
expect "images, grey ones for a model of colours" 0 'note: .*grey: 40 of 40 images are grey and get three equal channels$' \
    $trainer --threads 1 --data "$work/grey" --load "$work/stripes.w" --predict "$work/grey.csv"
expect "images, grey ones are learned" 0 '' $t --model mlp --data "$work/grey" --steps 1 --quiet --save "$work/grey.w"
expect "images, colours for a model of grey ones" 0 'note: .*new: 5 of 5 images have colours and become grey' \
    $trainer --threads 1 --data "$work/new" --load "$work/grey.w" --predict "$work/grey.csv"
# A damaged one is named, by one line, whoever comes upon it; of a test set when it is evaluated.
truncate -s 200 "$work/stripes/val/stripes-2/007.jpg"
expect "images, a damaged one" 3 'error: .*val/stripes-2/007.jpg: cannot decode this JPEG image: the file is truncated' \
    $images --image-size 24 --steps 3 --data-threads 3
count=$((count + 1))
[ "$(grep -c 'error:' "$work/out")" -eq 1 ] || fail "images, a damaged one: not told once"
expect "images, none without labels" 2 'error: .*stripes-0 has no labels' $t --model mlp --data "$work/stripes/train/stripes-0" --image-size 8

# Shrunk while it is learned: one line, exit code 4; no signal.
shrink() {
    name=$1
    shift
    cifar
    count=$((count + 1))
    rm -f "$work/log"
    timeout $((60 * patience)) "$@" --quiet --data "$work/cifar" --batch-size 1 --hidden 8 --steps 1000000000 --threads 1 \
        --log "$work/log" >"$work/out" 2>"$work/err" &
    pid=$!
    until_true grep -qs '"step"' "$work/log" || fail "$name: no step is done"
    truncate -s 3073 "$work/cifar/data_batch_1.bin"
    wait $pid
    got=$?
    [ $got -eq 4 ] || fail "$name: exit code $got, expected 4"
    grep -q 'error: .*data_batch_1.bin: the file has changed while it was in use: it had 1229200 bytes and now has 3073' \
        "$work/err" || { fail "$name: no message"; head -n 5 "$work/err"; }
}
shrink "a file that shrinks" "$trainer" --no-eval
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "a file that shrinks: $(wc -l <"$work/err") lines"
shrink "a file that shrinks, many threads" "$trainer" --no-eval --data-threads 4
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "a file that shrinks, many threads: $(wc -l <"$work/err") lines"
shrink "a file that shrinks, 2 workers" "$ddprun" -n 2 trainer --no-eval
finish
