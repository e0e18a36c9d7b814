#!/bin/sh
# SPDX-License-Identifier: MIT
# A table with columns of many words, against the PyTorch installed here: weights after five steps, and predictions.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${PYTHON:-python3}
"$python" -c 'import torch' >/dev/null 2>&1 || skip "$python has no PyTorch"
expect "words" 0 'largest difference' "$python" "${srcdir:-.}/tests/data/words_live.py" ./trainer "$work"
finish
