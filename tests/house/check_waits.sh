#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Tests wait for events, and not for ever. In the scripts of tests this refuses
#   - `sleep N` outside a loop that polls: a machine that is busy needs longer than N. What sleeps until it is killed (exec,
#     &, ten seconds and more) is no wait.
#   - a loop on one line that polls and counts no tries: until_true COMMAND has a limit.
# Where time itself is what is tested, or nothing depends on it, a comment says so: `time: WHY`, on the line or on one of the
# three above it.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 99
. ./tests/lib/result.inc

# waits FILE...: the lines that are refused
waits() {
    awk '
        function refuse(why) { printf "%s:%d: %s: %s\n", FILENAME, FNR, why, $0 }
        FNR == 1 { said = -9; held = "" }
        /#.*time: [a-z]/ { said = FNR }
        held != "" { # a line that is only a sleep polls where the loop ends or counts behind it
            if ($0 !~ /^ *(done|fi|[a-z_]+=\$\(\()/) print held
            held = ""
        }
        /^ *#/ || FNR - said <= 3 { next }
        /^ *(until|while) .*; do sleep [0-9.]+; done$/ && !/tries/ { refuse("waits without a limit") }
        /^ *sleep [^ ]+$/ { held = sprintf("%s:%d: waits for a time: %s", FILENAME, FNR, $0); next }
        {
            line = $0
            gsub(/(do|exec|setsid) sleep [^ ;]+/, "", line)
            gsub(/; sleep [0-9.]+; done/, "", line)
            gsub(/sleep [1-9][0-9]+/, "", line)
            gsub(/sleep [^ ]+ &/, "", line)
            if (line ~ /(^|[^a-z_.])sleep [0-9.$"]/) refuse("waits for a time")
        }' "$@"
}

for file in $(find tests -name "*.sh" -o -name "*.inc" | grep -vE "^tests/(house/check_|chaos|mutants)|gemm_test" | sort); do
    count=$((count + 1))
    refused=$(waits "$file")
    [ -z "$refused" ] || fail "$refused"
done
finish
