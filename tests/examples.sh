#!/bin/sh
# SPDX-License-Identifier: MIT
# The examples do what their first lines say, as built here against libddp alone.
. "${srcdir:-.}/tests/cli.inc"

weights='Model weights: \[0\.9472, 0\.9440, 0\.9527, 0\.9687, 0\.9570, 0\.9343, 0\.9411, 0\.9186\]'
expect "train, alone" 0 "$weights" "$top/examples/train"
expect "train, 2 workers" 0 "$weights" "$ddprun" -n 2 "$top/examples/train"
expect "overlap, alone" 0 '1 ranks, last bucket: 7$' "$top/examples/overlap"
expect "overlap, 4 workers" 0 '4 ranks, last bucket: 34$' "$ddprun" -n 4 "$top/examples/overlap"
finish
