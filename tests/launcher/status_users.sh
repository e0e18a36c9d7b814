#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun status shows a user's own jobs, and nobody else's.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/signals.inc"
. "${srcdir:-.}/tests/lib/cli.inc"
chmod 777 "$work"
switch="setpriv --reuid 61872 --regid 61872 --clear-groups"
[ "$(id -u)" = 0 ] || skip "another user's jobs: this takes root"
$switch "$ddprun" --version >/dev/null 2>&1 || skip "another user's jobs: no other user can run $ddprun"

"$ddprun" -n 1 sh -c ': >"$0"; exec sleep 60' "$work/up" 2>/dev/null &
job=$!
$switch "$ddprun" -n 1 sh -c ': >"$0"; exec sleep 60' "$work/other" 2>/dev/null &
other=$!
trap 'status=$?; kill $job $other 2>/dev/null; wait; rm -rf "$work"; no_skip_after_failure $status' EXIT
tries=3000
until [ -e "$work/up" ] && [ -e "$work/other" ] || [ $((tries -= 1)) -eq 0 ]; do sleep 0.02; done

expect "one's own job" 0 "^job $job:" "$ddprun" status
! grep -q "^job $other:" "$work/out" || fail "another user's job is shown"
expect "another user's job by its number" 1 "status $other: you have no such job" "$ddprun" status $other
expect "the other user's own job" 0 "^job $other:" $switch "$ddprun" status
! grep -q "^job $job:" "$work/out" || fail "a job is shown to another user"
expect "a job by its number, for another user" 1 "status $job: you have no such job" $switch "$ddprun" status $job
finish
