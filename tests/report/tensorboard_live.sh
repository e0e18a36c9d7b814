#!/bin/sh
# SPDX-License-Identifier: MIT
# Event files against TensorBoard's own reader, where Python has it.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${TENSORBOARD_PYTHON:-${PYTHON:-python3}}
grep -q 'define HAVE_PROTOBUF_C 1' config.h || { echo "skipped: built without protobuf-c"; exit 77; }
if ! "$python" -c 'import tensorboard.backend.event_processing.event_accumulator' >/dev/null 2>&1; then
    echo "skipped: $python has no tensorboard package"
    exit 77
fi
need_fashion
expect "a run with both files" 0 "" "$ddprun" -n 2 trainer --steps 8 --hidden 16 --tensorboard "$work/a/b" --log "$work/log"
expect "what TensorBoard reads" 0 "as logged" "$python" "$here/tests/report/tensorboard_live.py" "$work/a/b" "$work/log"
# Texts that a language model writes during training.
yes "one two three four" | head -n 200 >"$work/text"
expect "a run with texts" 0 "" "$trainer" --model gpt2 --size d2 --data "$work/text" --seq-len 16 --steps 4 --no-eval \
    --sample-every 2 --samples 2 --sample-length 30 --tensorboard "$work/texts" --log "$work/texts.log"
expect "what TensorBoard reads" 0 "as logged" "$python" "$here/tests/report/tensorboard_live.py" "$work/texts" "$work/texts.log"
finish
