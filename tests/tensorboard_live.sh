#!/bin/sh
# SPDX-License-Identifier: MIT
# Event files against TensorBoard's own reader, where Python has it.
. "${srcdir:-.}/tests/cli.inc"
python=${TENSORBOARD_PYTHON:-${PYTHON:-python3}}
grep -q 'define HAVE_PROTOBUF_C 1' config.h || { echo "skipped: built without protobuf-c"; exit 77; }
if ! "$python" -c 'import tensorboard.backend.event_processing.event_accumulator' >/dev/null 2>&1; then
    echo "skipped: $python has no tensorboard package"
    exit 77
fi
need_fashion
expect "a run with both files" 0 "" "$ddprun" -n 2 trainer --steps 8 --hidden 16 --tensorboard "$work/a/b" --log "$work/log"
expect "what TensorBoard reads" 0 "as logged" "$python" "$here/tests/tensorboard_live.py" "$work/a/b" "$work/log"
finish
