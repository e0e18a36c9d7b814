#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Do the tests find faults? Each tests/mutants/ROOM/NAME.patch plants one in a copy of the source tree, and says above the patch:
#   Fault: what it does
#   Tests: the tests that must fail, run in this order until one does; check_NAME:CASE is one case of a unit test
#   Hangs: SECONDS    (only where the fault makes a test hang: for so long, and then it is caught)
# What fails to compile or does not apply is an error of the table. The tests must pass without the fault.
# A test ends with its first failure. One that hangs, or fails after half the shortest limit of time of a unit test, may only have
# run into a limit on a busy machine: the fault counts as caught when the test passes without it just afterwards.
# Fastest with ccache, which compiles what no fault was planted in once for all copies.
# usage: run.sh [NAME ...]    in the build directory; make check-mutants. MUTANTS_JOBS: copies worked on at once.
# CK_TIMEOUT_MULTIPLIER: patience, 3; more on a machine that others use.
# MUTANTS_GO_ON=1: what mutants/results has of a run that was ended is not tried again, except errors.
# Exit status: 0 when at least 95 % are caught, 77 when a test could not run here, else 1. All output is in mutants/.
set -u
top=$(cd "${srcdir:-.}" && pwd)
table=$top/tests/mutants
make=${MAKE:-make}
work=$PWD/mutants
jobs=${MUTANTS_JOBS:-$(nproc)}
least=95 # per cent
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS DDP_LONG
export CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-3} FIRST_FAILURE=yes # result.inc
limit=$((80 * CK_TIMEOUT_MULTIPLIER)) # seconds a test may take
export CCACHE_BASEDIR=$work CCACHE_NOHASHDIR=1
! command -v ccache >/dev/null || export CC="ccache ${CC:-cc}" CXX="ccache ${CXX:-c++}"

field() { sed -n "/^--- /q; s/^$1: *//p" "$2"; }
patch_of() { find "$table" -name "$1.patch"; }

# --- the copies ---------------------------------------------------------------------------------------------------------

# update COPY: the release's files into the copy, of which only those that differ become newer
update()
{
    local file
    if [ -d "$1" ]; then
        while IFS= read -r file; do
            case $file in
            *.am | *.ac | *.in | *.m4 | configure | build-aux/*) rm -rf "$1" && break ;;
            *) mkdir -p "$(dirname "$1/$file")" && cp "$work/release/$file" "$1/$file" ;;
            esac
        done < <(cd "$1" && md5sum --quiet -c "$work/sums" 2>/dev/null | sed 's/: FAILED.*//')
    fi
    [ -d "$1" ] || cp -a "$work/release" "$1"
}

# prepare WORKER: a configured build, fast to compile
prepare()
{
    local copy=$work/$1
    update "$copy/source" || return
    if [ ! -e "$copy/build/Makefile" ] || [ "$copy/source/configure" -nt "$copy/build/config.status" ]; then
        rm -rf "$copy/build" && mkdir "$copy/build" &&
            (cd "$copy/build" && ../source/configure -q --without-cuda --disable-static CFLAGS=-O1 CXXFLAGS=-O1) || return
    fi
    "$make" -s -j"$jobs" -C "$copy/build" libtested.la libddp.la trainer ddprun ddpreport &&
        programs "$1" >"$copy/programs"
}

# Programs and libraries that tests are made of and that scripts use.
programs()
{
    # shellcheck disable=SC2016 # for make
    printf 'include Makefile\nprint-programs:\n\t@echo $(check_PROGRAMS) $(check_LTLIBRARIES) $(noinst_PROGRAMS) $(pkglib_LTLIBRARIES)\n' |
        "$make" -s -C "$work/$1/build" -f - print-programs
}

# --- one test -----------------------------------------------------------------------------------------------------------

# targets WORKER TEST: what it needs, for make
targets()
{
    local test=$2
    local files=("$work/$1/source/$test")
    case $test in
    check_plugin) echo "$test" && grep -oE 'tests/core/libddp-test[a-z]*\.la' "$work/$1/programs" && return ;;
    check_cuda_* | check_comm_nccl*) echo "$test tests/cudasim/libddp-cuda.la" && return ;;
    check_nodes | check_same_bits) echo "$test" && grep -oE 'libddp-ucx\.la' "$work/$1/programs" && return ;;
    check_*) echo "$test" && return ;;
    tests/house/fuzz_replay.sh) tr ' ' '\n' <"$work/$1/programs" | grep '^replay_' && return ;;
    esac
    grep -q 'cuda\.inc' "${files[0]}" && echo tests/cudasim/libddp-cuda.la libfake_nvml.la
    grep -q 'nodes\.inc' "${files[0]}" && grep -oE 'libddp-ucx\.la' "$work/$1/programs"
    echo libddp.la trainer ddprun ddpreport
    tr ' ' '\n' <"$work/$1/programs" | awk -v script="${files[0]}" '
        BEGIN { while ((getline line <script) > 0) text = text " " line " " }
        { stem = $0; gsub(/^.*\/|\.la$/, "", stem) }
        match(text, "[^[:alnum:]_]" stem "[^[:alnum:]_]")'
}

# Ends what a test left running: what has the mark in its environment.
end_marked()
{
    local environ
    for environ in $(grep -lzsxF "MUTANT=$1" /proc/[0-9]*/environ); do
        kill -KILL "$(basename "$(dirname "$environ")")" 2>/dev/null
    done
}

# end_at_failure WORKER: reads what Check tells of each case, and ends the program after one that failed
end_at_failure()
{
    local result
    while read -r result _; do
        [ "$result" != not ] || break
    done <>"$work/$1/cases"
    touch "$work/$1/failed"
    end_marked "$$.$1"
}

# run_test WORKER TEST SECONDS: leaves PASS, FAIL, SKIP, ERROR, HANG or BUILD in $outcome, and its seconds in $took
run_test()
{
    local build=$work/$1/build test=${2%%:*} status reader environment=("MUTANT=$$.$1")
    [ "$test" = "$2" ] || environment+=("CK_RUN_CASE=${2#*:}")
    rm -f "$build/$test.trs" "$build/$test.log"
    # shellcheck disable=SC2046 # words
    if ! "$make" -s -C "$build" $(targets "$1" "$test") >>"$work/$1/log" 2>&1; then
        outcome=BUILD
        return
    fi
    rm -f "$work/$1/cases" "$work/$1/failed"
    mkfifo "$work/$1/cases"
    end_at_failure "$1" &
    reader=$! took=$SECONDS
    case $test in check_*) environment+=("CK_TAP_LOG_FILE_NAME=$work/$1/cases") ;; esac
    { env "${environment[@]}" timeout --kill-after=5 "$3" "$make" -s -C "$build" "$test.log" >>"$work/$1/log" 2>&1; } 2>/dev/null
    status=$? took=$((SECONDS - took))
    end_marked "$$.$1"
    kill "$reader" 2>/dev/null
    wait "$reader" 2>/dev/null
    outcome=$(sed -n 's/^:test-result: //p' "$build/$test.trs" 2>/dev/null)
    outcome=${outcome%% *}
    case $status in 124 | 137) outcome=HANG ;; esac
    [ ! -e "$work/$1/failed" ] || outcome=FAIL
    [ -n "$outcome" ] || outcome=ERROR
    cat "$build/$test.log" >>"$work/$1/log" 2>/dev/null
}

# --- one fault ----------------------------------------------------------------------------------------------------------

# report NAME RESULT WORDS
report() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$work/results"; printf '%-7s %s: %s\n' "$2" "$1" "$3"; }

# Without a fault each test is run once; the result is kept for all other faults.
passes()
{
    local known=$work/known/${2//\//-}
    if [ ! -e "$known" ]; then
        run_test "$1" "$2" $limit
        [ "$outcome" = PASS ] || run_test "$1" "$2" $limit
        echo "$outcome" >"$known"
    fi
    outcome=$(cat "$known")
}

# cpu_seconds WORKER: leaves in $cpu what this worker's commands took so far
cpu_seconds()
{
    times >"$work/$1/times"
    cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); printf "%.1f", $1 * 60 + $2 + $3 * 60 + $4 }' "$work/$1/times")
}

# plant WORKER NAME
plant()
{
    local source=$work/$1/source patch=$(patch_of "$2") test caught= from seen
    local tests hangs
    tests=$(field Tests "$patch") hangs=$(field Hangs "$patch")
    [ -n "$tests" ] && [ -n "$(field Fault "$patch")" ] || { report "$2" error "the patch does not name its fault and its tests"; return; }
    echo "=== $2" >>"$work/$1/log"
    patch -s -p1 -F0 -d "$source" --dry-run <"$patch" >>"$work/$1/log" 2>&1 || { report "$2" error "the patch does not apply"; return; }
    cpu_seconds "$1"
    from=$cpu
    for test in $tests; do
        passes "$1" "$test"
        case $outcome in
        PASS) ;;
        SKIP) report "$2" "not run" "$test skips here" && return ;;
        *) report "$2" error "$test does not pass without the fault: $outcome" && return ;;
        esac
        patch -s -p1 -F0 -d "$source" <"$patch"
        run_test "$1" "$test" "${hangs:-$limit}"
        patch -s -R -p1 -F0 -d "$source" <"$patch"
        seen=$outcome
        case $outcome:$hangs in
        PASS: | PASS:* | SKIP:*) continue ;;
        HANG:) caught="error	$test hangs, and the patch does not say that it may" && break ;;
        BUILD:*) caught="error	it does not compile" && break ;;
        esac
        if [ "$seen" = HANG ] || [ "$took" -ge $((5 * CK_TIMEOUT_MULTIPLIER)) ]; then
            run_test "$1" "$test" "${hangs:-$limit}"
            [ "$outcome" = PASS ] || { caught="error	$test does not pass without the fault either now: $outcome" && break; }
        fi
        caught="caught	$test ($seen)" && break
    done
    cpu_seconds "$1"
    cpu=$(awk -v a="$from" -v b="$cpu" 'BEGIN { printf "%.1f", b - a }')
    if [ -n "$caught" ]; then
        report "$2" "${caught%%	*}" "${caught#*	}, $cpu CPU seconds"
    else
        report "$2" missed "$tests pass, $cpu CPU seconds"
    fi
}

# The lines of the queue are faults of one group, which share tests; the worker that is free takes the next.
worker()
{
    local number line
    while :; do
        number=$(flock "$work/next" sh -c 'read -r n <"$0" && echo $((n + 1)) >"$0" && echo "$n"' "$work/next")
        line=$(sed -n "${number}p" "$work/queue")
        [ -n "$line" ] || return 0
        for name in $line; do
            plant "$1" "$name"
        done
    done
}

# --- all ----------------------------------------------------------------------------------------------------------------

mkdir -p "$work" && rm -rf "$work/release"
[ -n "${MUTANTS_GO_ON:-}" ] && [ -e "$work/results" ] || : >"$work/results"
sed -i '/\terror\t/d' "$work/results"
if ! "$make" -s distdir distdir="$work/release" >"$work/distdir.log" 2>&1; then
    cat "$work/distdir.log"
    exit 99
fi
chmod -R u+w "$work/release"
(cd "$work/release" && find . -type f -printf '%P\n' | xargs -d '\n' md5sum) >"$work/sums"
[ $# -gt 0 ] || set -- $(find "$table" -name '*.patch' | sed 's,.*/\(.*\)\.patch$,\1,' | sort)
# The faults by their first test, those of one file together; the groups that take longest first.
for name in "$@"; do
    ! grep -q "^$name	" "$work/results" || continue
    patch=$(patch_of "$name")
    printf '%s %s %s\n' "$(field Tests "$patch" | cut -d ' ' -f 1)" "$(sed -n 's/^+++ //p' "$patch" | head -n 1)" "$name"
done | sort | awk -v table="$top/tests/lib/seconds" '
    BEGIN { while ((getline line <table) > 0) if (split(line, field) == 2) seconds[field[1]] = field[2]; line = "" }
    $1 != last { if (line) print weight, line; line = ""; weight = 0; last = $1 }
    { line = line " " $3; sub(/:.*/, "", $1); weight += 2 + seconds[$1] }
    END { if (line) print weight, line }' | sort -rn | cut -d ' ' -f 2- >"$work/queue"
echo 1 >"$work/next"
groups=$(wc -l <"$work/queue")
[ "$jobs" -le "$groups" ] || jobs=$groups
[ -n "${MUTANTS_GO_ON:-}" ] || rm -rf "$work/known"
mkdir -p "$work/known"
pids=() failed=0
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done' INT TERM
for number in $(seq "$jobs"); do # the cache has what the first has compiled
    mkdir -p "$work/$number"
    if ! prepare "$number" >"$work/$number/log" 2>&1; then
        echo "copy $number cannot be built:" && tail -n 20 "$work/$number/log"
        failed=1 && break
    fi
    echo "copy $number is built, $SECONDS s"
    worker "$number" &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || failed=1
done

count() { awk -F '\t' -v what="$1" '$2 == what { n++ } END { print n + 0 }' "$work/results"; }
printf '\n'
sort "$work/results" | awk -F '\t' '{ printf "%-34s %-8s %s\n", $1, $2, $3 }'
caught=$(count caught) missed=$(count missed) errors=$(count error) unable=$(count 'not run')
planted=$((caught + missed))
[ $((planted + errors + unable)) -eq $# ] || failed=1
cpu=$(sed -n 's/.*, \([0-9.]*\) CPU seconds$/\1/p' "$work/results" | awk '{ sum += $1 } END { printf "%.0f", sum }')
echo "$caught of $planted faults caught, $errors errors, $unable not run, $cpu CPU seconds, $SECONDS s"
[ "$failed" -eq 0 ] && [ "$errors" -eq 0 ] && [ $((caught * 100)) -ge $((planted * least)) ] || exit 1
[ "$unable" -eq 0 ] || exit 77
[ "$planted" -gt 0 ]
