#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Dependencies run one way. Reads every #include of src, kernels and launcher and fails on one that goes up,
# sideways or round in a circle. The table is the rule: a room, then the rooms it may include; each room may name
# only rooms of the lines above its own, so the table cannot hold a circle.
set -eu
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}"
edges=$(mktemp)
trap 'rm -f "$edges"' EXIT
result=0
table='
core:
job: core
launcher: job core
kernels/cpu: core
kernels/cuda: core
kernels: kernels/cpu kernels/cuda core
device: kernels kernels/cpu core
data: core
comm: job device kernels core
cuda: comm job device kernels kernels/cuda core
optim: device kernels core
graph: device kernels core
model: optim graph device kernels core
mode: model graph comm optim data device job kernels core
weights: model graph core
checkpoint: weights graph core
report: mode graph comm optim data core
train: report checkpoint weights mode model graph comm optim data device job kernels core
trainer: train core
'
find src kernels launcher \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' \) ! -name '*.pb-c.*' | sort | tr '\n' '\0' |
    xargs -0 awk -v table="$table" -v edges="$edges" '
    function room(path) {
        sub(/^src\//, "", path)
        if (path !~ /\//)
            return path == "ddp.h" ? "ddp.h" : "trainer"
        sub(/\/[^\/]*$/, "", path)
        return path in known || path !~ /^kernels/ ? path : "kernels"
    }
    function fail(text) {
        printf "%s:%d: %s\n", FILENAME, FNR, text
        bad = 1
    }
    BEGIN {
        rows = split(table, row, "\n")
        for (i = 1; i <= rows; i++) {
            if (split(row[i], half, ":") < 2)
                continue
            from = half[1]
            count = split(half[2], lower, " ")
            for (j = 1; j <= count; j++) {
                if (!(lower[j] in known)) {
                    printf "table: %s names %s, which stands below it\n", from, lower[j]
                    bad = 1
                }
                allowed[from, lower[j]] = 1
            }
            known[from] = 1
        }
    }
    FNR == 1 {
        from = room(FILENAME)
        if (!(from in known) && from != "ddp.h")
            fail("room \"" from "\" is not in the table of check_layers.sh")
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        name = $0
        sub(/^[^"]*"/, "", name)
        sub(/".*/, "", name)
        if (name == "config.h" || name == "ddp.h")
            next
        includes++
        if (name !~ /\//) {
            fail("\"" name "\": write \"room/header.h\"")
            next
        }
        to = room(name)
        if (to != from && !((from, to) in allowed))
            fail(from " may not include " to " (\"" name "\")")
        # For the search for circles between files.
        file = FILENAME
        sub(/^src\//, "", file)
        print file, name > edges
    }
    END {
        printf "%d includes read\n", includes
        if (includes == 0)
            bad = 1
        exit bad
    }' || result=$?
tsort "$edges" >/dev/null || { echo 'headers include each other in a circle (see tsort above)'; result=1; }
exit "$result"
