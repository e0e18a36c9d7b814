#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Manual pages: mandoc's lint has nothing to say, each has the sections that readers look for, and the examples that
# are marked with a comment line `.\" run` before their code are run as they stand.
set -u
top=${srcdir:-.}
. "$top/tests/lib/result.inc"
PATH=${abs_top_builddir:-$PWD}:$PATH
for page in "$top"/man/*.[1-9]; do
    for section in NAME SYNOPSIS DESCRIPTION 'EXIT STATUS' ENVIRONMENT EXAMPLES; do
        case $page:$section in
        *.3:'EXIT STATUS') section='RETURN VALUES' ;;
        */ddp_*.3:ENVIRONMENT) section='SEE ALSO' ;; # those of ddp(3)
        esac
        count=$((count + 1))
        grep -q "^\.S[hH] \"*$section" "$page" || fail "$page: no section $section"
    done
done
if command -v mandoc >/dev/null; then
    mandoc -Tlint -Wwarning "$top"/man/*.[1-9] || fail "mandoc finds fault with the pages"
    # Formulas are set by macros that enclose the rest of their line.
    mandoc -Tascii "$top/man/trainer.1" | sed 's/.\x08//g' | grep -qF '(s - 1) / (w + s - 1)' || fail "trainer.1: the bubble is another formula"
else
    not_run "the lint: mandoc is not installed"
fi

# In a terminal of 80 columns an example stands on its line, ready to be pasted (in section 7 all code is an example; in section 3
# there are declarations too, which are not indented), and so does each line of a SYNOPSIS, which names the program.
for page in "$top"/man/*.[1-9]; do
    awk -v section="${page##*.}" 'BEGIN { on = all = section == 7 || section == 3 }
         /^\.Sh EXAMPLES/ { on = 1; next } /^\.Sh/ { on = all } /^\.Ed/ { code = 0 }
         /^\.Bd -literal/ { code = on; left = section == 3 && !/indent/; next }
         on && /^\.Dl / { sub(/^\.Dl /, "   "); print; next } code { print left ? substr($0, 7) : $0 }' "$page" | sed 's/\\[e&-]/-/g' | awk 'length > 69' |
        grep . && fail "${page##*/}: these examples are too long for 80 columns"
    command -v mandoc >/dev/null || continue
    case $page in
    *.1)
        name=${page##*/}
        mandoc -Tascii -Owidth=78 "$page" | sed 's/.\x08//g' | sed -n '/^SYNOPSIS/,/^DESCRIPTION/p' | sed '1d;$d' | grep . |
            grep -v "\<${name%.1}\>" && fail "$name: these lines of the SYNOPSIS do not name the program"
        ;;
    esac
done

scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
examples=0
for page in "$top"/man/*.[17]; do
    awk '/^\.\\" run/ { mark = 1; next }
         mark && /^\.(Dl|D1) / { sub(/^\.D[l1] /, ""); print; mark = 0; next }
         mark && /^\.(Bd|nf|EX)/ { code = 1; next }
         code && /^\.(Ed|fi|EE)/ { code = mark = 0 }
         code' "$page" | sed 's/\\-/-/g; s/\\e/\\/g; s/\\(aq/'"'"'/g; s/\\&//g' >"$scratch/examples"
    while read -r example; do
        examples=$((examples + 1))
        if ! (cd "$scratch" && timeout 120 sh -c "$example") </dev/null >"$scratch/out" 2>&1; then
            fail "${page##*/}: this example fails: $example"
            cat "$scratch/out"
        fi
    done <"$scratch/examples"
done
echo "$examples examples run"
[ "$examples" -gt 0 ] || fail "no example was run: the marks are missing, or are not understood here"
finish
