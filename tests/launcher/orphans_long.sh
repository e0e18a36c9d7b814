#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/launcher/orphans.sh with 2,000 kills: half of them where there is a control group, half where there is none.
[ "${DDP_LONG:-}" = 1 ] || { echo "skipped: takes minutes, runs in make check-long"; exit 77; }
KILLS=1000 exec "${srcdir:-.}/tests/launcher/orphans.sh"
