#!/bin/sh
# SPDX-License-Identifier: MIT
# How long tests take. Automake's driver for one test, which adds to the test's results (its .trs file) when it began and
# ended, and the CPU seconds of all that it waited for; and what reads these:
#   clock.sh report TABLE LOG...   the twenty slowest, the sum, and tests that take more than twice what TABLE says
#   clock.sh update TABLE LOG...   the table anew: tests that did not run, or not well, keep their entry
set -u

case $1 in
report | update)
    verb=$1 table=$2
    shift 2
    for log in "$@"; do
        [ ! -r "${log%.log}.trs" ] || echo "${log%.log}.trs"
    done | LC_ALL=C awk -v verb="$verb" -v table="$table" '
        function seconds(text, part) { split(text, part, /[ms]/); return part[1] * 60 + part[2] }
        # The largest of the tests that are left, by CPU seconds.
        function slowest(name, best) {
            best = ""
            for (name in cpu) if (!(name in told) && (best == "" || cpu[name] > cpu[best])) best = name
            told[best]
            return best
        }
        BEGIN { while ((getline line <table) > 0) if (split(line, field) == 2 && line !~ /^#/) entry[field[1]] = field[2] }
        {
            trs = $0; name = $0; sub(/\.trs$/, "", name); result = ""
            while ((getline line <trs) > 0) {
                count = split(line, field)
                if (field[1] == ":test-result:") result = field[2]
                if (field[1] == ":clock:") { wall[name] = field[3] - field[2]
                    if (!tests++ || field[2] < begin) begin = field[2]
                    if (field[3] > end) end = field[3] }
                if (field[1] ~ /^[0-9]+m[0-9.]+s$/) cpu[name] = seconds(field[1]) + seconds(field[2])
            }
            close(trs)
            passed[name] = result == "PASS"
        }
        END {
            if (verb == "update") {
                for (name in cpu) if (passed[name]) entry[name] = sprintf("%.1f", cpu[name])
                for (name in entry) print name, entry[name] | "LC_ALL=C sort"
                exit
            }
            for (name in cpu) { sum += cpu[name]
                if (name in entry && passed[name] && cpu[name] > 2 * entry[name] && cpu[name] > entry[name] + 1) slower[name] }
            if (!tests) exit
            printf "The slowest tests: CPU seconds, seconds, CPU seconds in tests/lib/seconds\n"
            for (i = 0; i < 20 && i < tests; i++) { name = slowest()
                printf "%8.1f %8.1f %8s  %s\n", cpu[name], wall[name], name in entry ? entry[name] : "-", name }
            printf "%d tests: %.0f CPU seconds in %.0f seconds\n", tests, sum, end - begin
            for (name in slower) printf "NOTICE: %s took %.1f CPU seconds, more than twice the %s in tests/lib/seconds\n", name, cpu[name], entry[name]
        }'
    exit
    ;;
esac

read -r begin _ </proc/uptime
"$(dirname "$0")/../../build-aux/test-driver" "$@"
status=$?
read -r end _ </proc/uptime
LC_ALL=C
while [ "$1" != --trs-file ]; do
    shift
done
{
    echo ":clock: $begin $end"
    times
} >>"$2"
exit $status
