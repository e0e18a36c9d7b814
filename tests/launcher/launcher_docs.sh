#!/bin/sh
# SPDX-License-Identifier: MIT
# Every option of ddprun stands in --help, in the man page and in the completion; the page is clean and its examples run.
set -u
: "${srcdir:=.}"
page=$srcdir/man/ddprun.1
words=$srcdir/completion/ddprun
. "$srcdir/tests/lib/result.inc"

# --help writes --[no-]name for what can be switched off.
options=$(./ddprun --help | sed -n 's/^  \(-., \|    \)--\(\[no-\]\)\{0,1\}\([a-z-]*\).*/\3/p')
test "$(echo "$options" | wc -l)" -ge 8 || fail "--help shows too few options: $options"
for option in $options; do
    count=$((count + 1))
    grep -q "^\.It.*Fl -$option\( \|\$\)" "$page" || fail "--$option is missing from the man page"
    grep -q -e "--$option\([^a-z-]\|\$\)" "$words" || fail "--$option is missing from the completion"
done
for option in $(sed -n '/^\.It.*Fl/p' "$page" | grep -o 'Fl -[a-z][a-z-]*' | sed 's/Fl -//'); do
    ./ddprun "--$option=" 2>&1 | grep -q 'unknown option' && fail "the man page has --$option, ddprun has not"
done

if command -v mandoc >/dev/null; then
    mandoc -Tlint -Wwarning "$page" 2>/dev/null || fail "mandoc finds fault with the page"
else
    not_run "the page's form: mandoc is not installed"
fi

# The examples that need neither data nor Python, as they are printed.
OUT=$(PATH=.:$PATH sh -c "$(sed -n 's/^\.Dl \(ddprun -n 4 sh .*\)/\1/p' "$page")" | sort)
test "$OUT" = "$(printf '[%s]: rank %s of 4\n' 0 0 1 1 2 2 3 3)" || fail "the example with sh prints: $OUT"

if command -v bash >/dev/null && test -r /usr/share/bash-completion/bash_completion; then
    bash -c '
        . /usr/share/bash-completion/bash_completion
        . "$1"
        COMP_WORDS=(ddprun --n) COMP_CWORD=1 COMP_LINE="ddprun --n" COMP_POINT=10
        _ddprun ddprun --n ddprun
        [[ " ${COMPREPLY[*]} " == *" --nproc "* ]] || exit 1
        COMP_WORDS=(ddprun -n g) COMP_CWORD=2 COMP_LINE="ddprun -n g" COMP_POINT=11
        _ddprun ddprun g -n
        [[ ${COMPREPLY[*]} == gpu ]] || exit 2
    ' bash "$words" || fail "completion (case $?)"
else
    not_run "the completion: bash-completion is not installed"
fi
finish
