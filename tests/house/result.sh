#!/bin/sh
# SPDX-License-Identifier: MIT
# Scripts of this folder never skip after a failure, nor pass when a part of them could not run.
. "${srcdir:-.}/tests/lib/cli.inc"

# ends NAME STATUS PATTERN COMMANDS: a script of these commands
ends() {
    # shellcheck disable=SC2016  # the script's shell expands them
    printf '. "$srcdir/tests/lib/cli.inc"\n%s\n' "$4" >"$work/script"
    srcdir=$here expect "$1" "$2" "$3" sh "$work/script"
}

ends "a check" 0 '^2 checks, 0 failed, 0 parts not run$' 'expect a 0 "" true; expect b 1 "" false; finish'
ends "a failure" 1 '^FAIL: a: exit code 1' 'expect a 0 "" false; expect b 0 "" true; finish'
ends "no check" 1 '^FAIL: nothing was checked$' 'finish'
ends "a part that cannot run" 77 '^NOT RUN: no disk$' 'expect a 0 "" true; not_run no disk; finish'
ends "a part that cannot run, and a failure behind it" 1 '^FAIL: a' 'not_run no disk; expect a 0 "" false; finish'
ends "a skip" 77 '^NOT RUN: no disk$' 'skip no disk; echo this is not reached; exit 0'
ends "a skip after a check" 77 '' 'expect a 0 "" true; skip no disk'
ends "a skip after a failure" 1 '^FAIL: a' 'expect a 0 "" false; skip no disk'
ends "exit 77" 77 '' 'exit 77'
ends "exit 77 after a failure" 1 '^FAIL: skipped after a failure$' 'expect a 0 "" false; exit 77'
ends "another exit status after a failure" 99 '' 'expect a 0 "" false; exit 99'
finish
