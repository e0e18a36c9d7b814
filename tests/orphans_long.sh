#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/orphans.sh with hundreds of kills.
[ "${DDP_LONG:-}" = 1 ] || { echo "skipped: takes a minute, runs in make check-long"; exit 77; }
KILLS=480 exec "${srcdir:-.}/tests/orphans.sh"
