#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Short trainings with several threads in every mode, for ThreadSanitizer (make check-threads in a build with
# --enable-tsan); without it, that they work.
set -eu
PATH=${abs_top_builddir:-$PWD}:$PATH
[ -e /usr/share/datasets/fashion-mnist ] || { echo "skipped: dataset-fashion-mnist is not installed"; exit 77; }
set -- --steps 3 --batch-size 16 --hidden 32 --threads 2 --no-eval
trainer "$@" --acc-steps 4
trainer "$@" --mode dp --replicas 2 --acc-steps 2
ddprun --nproc 2 trainer "$@" --acc-steps 2
