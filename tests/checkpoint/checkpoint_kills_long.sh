#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/checkpoint/checkpoint_kills.sh with hundreds of kills.
[ "${DDP_LONG:-}" = 1 ] || { echo "skipped: takes minutes, runs in make check-long"; exit 77; }
KILLS=300 exec "${srcdir:-.}/tests/checkpoint/checkpoint_kills.sh"
