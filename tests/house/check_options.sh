#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every long option in --help is in the manual page and in the completion, and every long option that these name is
# one that the program takes. ('-' and '_' in a name are the same.)
set -u
LC_ALL=C
export LC_ALL
top=${srcdir:-.}
PATH=${abs_top_builddir:-$PWD}:$PATH
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
failed=0

# The long options in a text, one a line. In manual pages "\-" is '-' and mdoc writes "Fl -name"; --help writes
# "--[no-]name"; in the completion, patterns such as "--master[-_]addr" are joined, and "--rdzv*" is not a name.
options()
{
    sed 's/\\-/-/g; s/Fl -/--/g; s/--\[no-\]/--/g; s/\[-_\]/-/g' | grep -oE '(^|[^a-zA-Z0-9-])--[a-z][a-z0-9_-]*' |
        sed 's/^[^-]*--//' | tr _ - | grep -v -- '-$' | sort -u
}

# The second option is unknown for certain, so the program always stops there at the latest and never starts work: with
# exit status 2 and a message about one of the two. A crash or a hang does not count.
takes()
{
    timeout 20 "$1" "--$2=1" --surely-unknown-option >"$scratch/out" 2>&1
    status=$?
    if [ $status -ne 2 ] || ! [ -s "$scratch/out" ]; then
        echo "$1 --$2=1 --surely-unknown-option: exit status $status, not 2"
        failed=1
    fi
    grep -q 'surely.unknown.option' "$scratch/out" || ! grep -qi 'unknown' "$scratch/out" || takes_status "$1" "$2"
}

# An option of "ddprun status", which stops at the second one too.
takes_status()
{
    [ "$1" = ddprun ] && "$1" status "--$2" --surely-unknown-option 2>&1 | grep -q '^ddprun: error: status --surely-unknown-option: '
}

for program in ddpreport ddprun trainer; do
    # Only what stands first in a line: the usage may show another program's options.
    case $program in
    trainer) "$program" --help all ;;
    *) "$program" --help ;;
    esac | grep -E '^ +(-., )?--' | options >"$scratch/help"
    [ -s "$scratch/help" ] || { echo "$program --help names no option"; failed=1; }
    for place in man/$program.1 completion/$program; do
        [ -r "$top/$place" ] || { echo "$place is missing"; exit 1; }
        # The table for people who know other launchers names their options too; so does what starts ddprun.
        sed '/^\.Sh COMING FROM/,/^\.Sh SEE ALSO/d; s/\(srun\|mpirun\) .* ddprun/ddprun/' "$top/$place" | options >"$scratch/place"
        missing=$(comm -23 "$scratch/help" "$scratch/place")
        for name in $missing; do
            echo "--$name: in $program --help, but not in $place"
            failed=1
        done
        for name in $(comm -13 "$scratch/help" "$scratch/place"); do
            # The page of ddpreport names options of the trainer, that of the trainer those of ddprun.
            other=
            [ "$program" = ddpreport ] && other=trainer
            [ "$program" = trainer ] && [ "$place" = man/trainer.1 ] && other=ddprun
            if ! takes "$program" "$name" && ! { [ "$other" ] && takes "$other" "$name"; }; then
                echo "--$name: in $place, but $program does not take it"
                failed=1
            fi
        done
    done
    echo "$program: $(wc -l <"$scratch/help") options compared"
done
# The short help has an example for each option that it shows, and the trainer takes them.
trainer --help | grep -E '^  --' | sed 's/^  \(--[a-z-]*\( [^ ]*\)\{0,1\}\).*/\1/' >"$scratch/examples"
while read -r name value; do
    trainer "$name" ${value:+"$value"} --surely-unknown-option >"$scratch/out" 2>&1
    grep -q 'surely-unknown' "$scratch/out" || { echo "the example $name $value in trainer --help is refused"; failed=1; }
done <"$scratch/examples"
examples=$(wc -l <"$scratch/examples")
echo "$examples examples tried"
[ "$examples" -ge 15 ] && [ "$examples" -le 30 ] || { echo "trainer --help shows $examples options"; failed=1; }
lines=$(COLUMNS=80 trainer --help | wc -l)
[ "$lines" -le 60 ] || { echo "trainer --help has $lines lines"; failed=1; }
COLUMNS=60 trainer --help | awk 'length > 60 { print "longer than COLUMNS: " $0; bad = 1 } END { exit bad }' || failed=1
[ "$failed" -eq 0 ]
