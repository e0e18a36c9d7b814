#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Dependencies run one way. Reads every #include of src, kernels, launcher, reporter and bench and fails on one that goes up,
# sideways or round in a circle. The table is the rule: a room, then the rooms it may include; each room may name
# only rooms of the lines above its own, so the table cannot hold a circle. Files do not call each other in a circle
# either: the objects of the build say who uses whose functions in its code; a table of functions is not a call.
set -eu
. "${srcdir:-.}/tests/lib/result.inc"
build=${abs_top_builddir:-$PWD}
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}"
edges=$(mktemp)
calls=$(mktemp)
sources=$(mktemp)
trap 'rm -f "$edges" "$calls" "$sources"' EXIT
find src kernels launcher reporter bench -name '*.c' -o -name '*.cu' >"$sources"
result=0
table='
core:
job: core
launcher: job core
reporter: core
kernels/cpu: core
kernels/cuda: core
kernels: kernels/cpu kernels/cuda core
device: kernels kernels/cpu core
data/text: core
data: data/text core
comm: job device kernels core
cuda: comm job device kernels kernels/cuda core
optim: device kernels core
graph: device kernels core
model: optim graph device kernels core
mode: model graph comm optim data device job kernels core
weights: model graph core
checkpoint: weights graph core
report: mode graph comm optim data core
plan: report checkpoint weights mode model graph optim data data/text device job kernels core
generate: plan weights mode model graph data data/text device core
train: generate plan report checkpoint weights mode model graph comm optim data data/text device job kernels core
trainer: train core
bench: generate model graph comm data device job kernels kernels/cpu core
'
find src kernels launcher reporter bench \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' \) ! -name '*.pb-c.*' | sort | tr '\n' '\0' |
    xargs -0 awk -v table="$table" -v edges="$edges" '
    function room(path) {
        sub(/^src\//, "", path)
        if (path !~ /\//)
            return path ~ /^ddp(_train)?\.h$/ ? "ddp.h" : "trainer"
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
        if (name ~ /^(config|ddp|ddp_train)\.h$/)
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
# CALLER CALLED FUNCTION, by the relocations of code; files by their name in the tree, without the suffix.
# Objects whose source is gone do not count.
calls_of() {
    find src kernels launcher reporter bench -name '*.o' -exec readelf -rsW {} + | awk -v sources="$sources" '
    BEGIN {
        while ((getline name <sources) > 0) {
            sub(/\.c$/, "", name)
            is_source[name] = 1
        }
    }
    /^File: / {
        file = $2
        sub(/\/\.libs/, "", file)
        sub(/\.o$/, "", file)
        sub(/[^\/]*_la-/, "", file)
        sub(/\.(sim|nvcc)$/, ".cu", file)
        files += file in is_source
    }
    !(file in is_source) { next }
    /^Relocation section/ { in_code = $3 ~ /\.text/ }
    /^Symbol table/ { in_code = 0 }
    in_code && / R_/ { used[file, $5] = 1 }
    $4 == "FUNC" && $5 == "GLOBAL" && $7 != "UND" { defined[$8] = defined[$8] " " file }
    END {
        for (use in used) {
            split(use, pair, SUBSEP)
            count = split(defined[pair[2]], owners, " ")
            for (i = 1; i <= count; i++)
                if (owners[i] != pair[1]) {
                    print pair[1], owners[i], pair[2]
                    found++
                }
        }
        printf "%d calls between files in %d objects\n", found, files >"/dev/stderr"
        exit found == 0
    }' | sort -u
}
if ! command -v readelf >/dev/null || ! (cd "$build" && calls_of) >"$calls"; then
    not_run 'circles between files: no readelf, or no objects'
elif ! circle=$(cut -d' ' -f1,2 "$calls" | sort -u | tsort 2>&1 >/dev/null); then
    result=1
    echo 'files call each other in a circle:'
    # The calls between files of one circle.
    echo "$circle" | awk '
    NR == FNR { if (/contains a loop/) loop++; else member[loop, $2] = 1; next }
    { for (i = 1; i <= loop; i++) if ((i, $1) in member && (i, $2) in member) print "    " $1 " calls " $2 ": " $3 "()" }
    ' - "$calls" | sort -u
fi
count=2
[ "$result" -eq 0 ] || fail 'see above'
finish
