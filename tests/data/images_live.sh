#!/bin/sh
# SPDX-License-Identifier: MIT
# Images that the Pillow installed here writes and scales, with other pixels each time.
python=${PILLOW_PYTHON:-${PYTHON:-python3}} modules=numpy,PIL
. "${srcdir:-.}/tests/lib/fresh.inc"
fresh_cases data/golden/image_files.py
./check_images
