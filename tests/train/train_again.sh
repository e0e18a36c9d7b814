#!/bin/sh
# SPDX-License-Identifier: MIT
# Training more than once in one process, alone and under ddprun, and after a run that failed.
. "${srcdir:-.}/tests/lib/cli.inc"

again=$top/train_again
set -- --model article --epochs 2 --batch-size 4 --data-size 8
expect "accum" 0 '4 runs: Model weights' "$again" 4 "$@" --acc-steps 2
expect "dp" 0 '4 runs: Model weights' "$again" 4 "$@" --mode dp
expect "after a failure" 0 '2 runs: Model weights' "$again" -2 "$@"
expect "under ddprun" 0 '3 runs: Model weights' "$ddprun" -n 2 "$again" 3 "$@"
finish
