#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/launcher/flood.sh with a gigabyte.
[ "${DDP_LONG:-}" = 1 ] || { echo "skipped: takes minutes, runs in make check-long"; exit 77; }
MEGABYTES=1024 exec "${srcdir:-.}/tests/launcher/flood.sh"
