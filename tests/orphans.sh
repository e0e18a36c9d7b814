#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun killed at random moments, in a directory in which nothing may be left.
test -x ./ddprun && test -x ./orphans || { echo "run in the build directory"; exit 99; }
TMPDIR=$(mktemp -d) || exit 99
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
./orphans "${KILLS:-64}" ${SEED:+"$SEED"} || exit
left=$(ls -A "$TMPDIR")
test -z "$left" || { echo "FAIL: left in TMPDIR: $left"; exit 1; }
