#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/train/no_memory.sh with hundreds of tries.
[ "${DDP_LONG:-}" = 1 ] || { echo "skipped: takes minutes, runs in make check-long"; exit 77; }
TRIES=150 exec "${srcdir:-.}/tests/train/no_memory.sh"
