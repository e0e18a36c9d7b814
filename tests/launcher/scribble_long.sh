#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/launcher/scribble.sh with hundreds of rounds.
[ "${DDP_LONG:-}" = 1 ] || { echo "skipped: takes minutes, runs in make check-long"; exit 77; }
ROUNDS=600 exec "${srcdir:-.}/tests/launcher/scribble.sh"
