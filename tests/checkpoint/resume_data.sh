#!/bin/sh
# SPDX-License-Identifier: MIT
# A run goes on only with the data that it began with: other samples in the same number are refused, the same ones in
# other files are not. And the facts of a long schedule are compared to the end.
. "${srcdir:-.}/tests/lib/cli.inc"

t="$trainer --quiet --threads 1 --no-eval"
refused='step-00000002: cannot resume.* another run: fingerprint of the data [0-9a-f]{16} \(now [0-9a-f]{16}\)\. To start.*--load'

# --- images, plain and compressed; 500 samples, of which 256 are looked at
mkdir "$work/plain" "$work/other"
header() { printf "\\0\\0\\010\\00$1\\0\\0\\001\\364"; }
{ header 3 && printf '\0\0\0\4\0\0\0\4' && seq 100000 | head -c 8000; } >"$work/plain/train-images-idx3-ubyte"
{ header 1 && seq 100000 | tr '0-9\n' '\000-\011\000' | head -c 500; } >"$work/plain/train-labels-idx1-ubyte"
cp "$work"/plain/t* "$work/other"
images="$t --hidden 8 --batch-size 50 --lr 1e-3 --schedule constant"
expect "images" 0 '' $images --steps 2 --data "$work/plain" --checkpoint "$work/c"
expect "the same images" 0 '' $images --data "$work/plain" --resume-from "$work/c" --steps 3
mkdir "$work/gz"
for file in "$work"/plain/*; do gzip -c "$file" >"$work/gz/${file##*/}.gz"; done
expect "compressed images" 0 '' $images --data "$work/gz" --resume-from "$work/c" --steps 3
# other FILE OFFSET: in place of one byte another
other() { printf '\007' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
other "$work/other/train-images-idx3-ubyte" 4444 # a pixel changes the mean
expect "another pixel" 2 "$refused" $images --data "$work/other" --resume-from "$work/c" --steps 3
cp "$work"/plain/t* "$work/other"
head -c 8 "$work/plain/train-labels-idx1-ubyte" >"$work/labels"
tail -c +9 "$work/plain/train-labels-idx1-ubyte" | tail -c 490 >>"$work/labels"
tail -c +9 "$work/plain/train-labels-idx1-ubyte" | head -c 10 >>"$work/labels"
cp "$work/labels" "$work/other/train-labels-idx1-ubyte"
expect "other labels" 2 "$refused" $images --data "$work/other" --resume-from "$work/c" --steps 3
expect "other images, 2 workers" 2 'fingerprint of the data' "$ddprun" -n 2 $images --global-batch 50 --batch-size 25 \
    --data "$work/other" --checkpoint "$work/d" --steps 2 --resume-from "$work/c"

# --- images in files
"$top/image_tool" "$work/images" 3 20 0 3 1 || exit 99
folder="$t --model cnn --image-size 16 --batch-size 4 --schedule constant"
expect "images in files" 0 '' $folder --steps 2 --data "$work/images" --checkpoint "$work/i"
cp -R "$work/images" "$work/moved"
expect "the same images elsewhere" 0 '' $folder --steps 3 --data "$work/moved" --resume-from "$work/i"
expect "images of another size" 2 'cannot resume' $folder --steps 3 --data "$work/images" --resume-from "$work/i" --image-size 17
cp "$work/moved/stripes-1/004.png" "$work/moved/stripes-1/006.png"
expect "another image" 2 "$refused" $folder --data "$work/moved" --resume-from "$work/i" --steps 3
cp "$work/images/stripes-1/006.png" "$work/moved/stripes-1/006.png"
rm "$work/moved/stripes-2/003.jpg"
expect "an image less" 2 'cannot resume' $folder --data "$work/moved" --resume-from "$work/i" --steps 3

# --- tokens
i=0
while [ $i -lt 100 ]; do
    echo "line $i of this text"
    i=$((i + 1))
done >"$work/text"
tokens="$t --model gpt2 --layers 1 --heads 1 --channels 8 --seq-len 8 --batch-size 2 --schedule constant"
expect "tokens" 0 '' $tokens --steps 2 --data "$work/text" --checkpoint "$work/k"
cp "$work/text" "$work/copy"
expect "a copy" 0 '' $tokens --steps 3 --data "$work/copy" --checkpoint "$work/k" --resume
tr 'x' 'z' <"$work/text" >"$work/changed"
refused=$(echo "$refused" | sed 's/00000002/00000003/')
expect "another text" 2 "$refused" $tokens --steps 3 --data "$work/changed" --checkpoint "$work/k" --resume

# --- milestones that differ in the last of them
article="$t --model article --data-size 2000 --batch-size 1"
many=$(seq -s : 900000001 900000015)
expect "milestones" 0 '' $article --steps 2 --schedule "step,at=$many:900000017" --checkpoint "$work/m"
expect "the same milestones" 0 '' $article --steps 3 --schedule "step,at=$many:900000017" --resume-from "$work/m"
expect "another last milestone" 2 'schedule step, .* \(now step, ' \
    $article --steps 3 --schedule "step,at=$many:900000018" --resume-from "$work/m"
finish
