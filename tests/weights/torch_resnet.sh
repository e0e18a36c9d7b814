#!/bin/sh
# SPDX-License-Identifier: MIT
# --load: residual networks as torchvision and timm save them, with a head for other classes or for the same ones.
. "${srcdir:-.}/tests/lib/cli.inc"
tool=$(realpath "$here/tests/weights/torch_resnet.py")
"$top/image_tool" "$work/three" 3 2 8 3 1 && "$top/image_tool" "$work/two" 2 2 8 3 2 || exit 99
few="$trainer --threads 1 --batch-size 2 --steps 1 --no-eval"
cd "$work" || exit 99

expect "a network of ours" 0 '^model *resnet, 111[0-9]* parameters' $few --data three --size 18 --image-size 8 --save ours.w
python3 "$tool" make ours.w torch.w && python3 "$tool" make ours.w headless.w without=fc. &&
    python3 "$tool" make ours.w shallow.w without=layer3.1 || exit 99

# Nothing is learned, and the norms' statistics alone move.
still="$few --lr 0 --image-size 8 --save again.w --quiet"
differs() {
    count=$((count + 1))
    python3 "$tool" compare ours.w again.w | grep -v running_ | tr '\n' ' ' >differs
    [ "$(cat differs)" = "$2" ] || fail "$1: these differ: $(cat differs)"
}
expect "as many classes" 0 '' $still --data three --load torch.w
differs "as many classes" ""
expect "other classes" 0 '' $still --data two --load torch.w
differs "other classes" "fc.bias fc.weight "
expect "without a head" 0 '' $still --data three --load headless.w
differs "without a head" "fc.bias fc.weight "
expect "a new head is told" 0 '^weights *with a new head, of 2 classes' $few --data two --load torch.w --image-size 8
expect "224 pixels by default" 0 '4 samples of 3 x 224 x 224 in 2 classes' $few --data two --load torch.w --plan
same="--batch-size 2 --threads 1 --steps 1 --no-eval --quiet --image-size 8 --data two --load torch.w"
expect "2 workers" 0 '' "$ddprun" -n 2 trainer $same --save two.w
expect "1 worker" 0 '' $trainer $same --acc-steps 2 --save again.w
cmp two.w again.w || fail "2 workers: other weights than 1"
# What is saved has a head of its own, and is not open to others any more.
expect "saved" 2 'two has samples of .* in 2 classes, and the resnet that --load ours.w holds is for samples of' \
    $few --data two --load ours.w --image-size 8

expect "another depth" 3 'shallow.w: a residual network that is not known here' $few --data two --load shallow.w
expect "info" 0 '^model *resnet .* layers=18 first=3' "$trainer" info torch.w
rm -f -- *.w

expect "bottlenecks" 0 '^model *resnet, 23[0-9]* parameters' $few --data three --size 50 --image-size 8 --save ours.w
python3 "$tool" make ours.w torch.w || exit 99
expect "bottlenecks, info" 0 '^model *resnet .* layers=50 first=3' "$trainer" info torch.w
finish
