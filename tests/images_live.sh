#!/bin/sh
# SPDX-License-Identifier: MIT
# Images that the Pillow installed here writes and scales, with other pixels each time.
python=${PILLOW_PYTHON:-${PYTHON:-python3}} modules=numpy,PIL
. "${srcdir:-.}/tests/fresh.inc"
fresh_cases image_files.py
./check_images
