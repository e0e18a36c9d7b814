#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The habits of HACKING.md that a machine can see: an SPDX line in every source, executable scripts, config.h first in .c files and
# never in headers, a test in the folder of its room, no line over 100 columns (clang-format leaves comments alone), no file over 600 lines, no function over
# 100 (where ctags is installed), no struct in two .cu files, inline PTX in one header.
set -u
LC_ALL=C
export LC_ALL
cd "${srcdir:-.}" || exit 99
. ./tests/lib/result.inc

code=$(find src kernels launcher reporter tests bench examples \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc' \) ! -name '*.pb-c.*' | sort)
scripts=$(find tests bench bootstrap .ci -name '*.sh' -o -name bootstrap -o -path .ci/run | sort)
[ -n "$code" ] || fail "no sources found"
for file in $code $scripts; do
    count=$((count + 1))
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: MIT' || fail "$file: no SPDX line"
    lines=$(wc -l <"$file")
    [ "$lines" -le 600 ] || fail "$file: $lines lines, more than 600"
done
wide=$(awk 'length > 100 { print FILENAME ":" FNR ": more than 100 columns" }' $code)
[ -z "$wide" ] || fail "$wide"
# A newcomer finds the test of a file by its path.
for file in $(find tests -name 'check_*.c' -o -name '*.sh' -o -name 'fuzz_*.c' | grep -v '^tests/mutants/run\.sh$'); do
    room=${file#tests/} room=${room%/*}
    case $room in
    cudasim | ptxsim | house | chaos | lib) ;;
    *) [ -d "src/$room" ] || [ -d "$room" ] || fail "$file: not in the folder of a room, tests/ROOM" ;;
    esac
done
for file in $scripts; do
    [ -x "$file" ] || fail "$file: not executable"
    # Without it a script passes whatever it finds.
    ! grep -qE '^ *(fail|expect) |(\|\||&&|\{) fail ' "$file" || [ "$(tail -n 1 "$file")" = finish ] || fail "$file: does not end with finish"
done
for file in $code; do
    first=$(grep -m 1 '^ *# *include' "$file")
    case $file in
    # Programs that are compiled outside this build see no config.h.
    examples/* | tests/house/client.c) ;;
    *.h) grep -q '^ *# *include *"config.h"' "$file" && fail "$file: config.h in a header" ;;
    *.c | *.cc) [ "$first" = '#include "config.h"' ] || fail "$file: the first include is not config.h" ;;
    esac
done
# Kernels are templates over such structs, and templates of the same types are one function to a linker.
twice=$(cat kernels/*.cu kernels/*/*.cu | sed -n 's/^struct \([a-z_0-9]*\) {$/\1/p' | sort | uniq -d)
[ -z "$twice" ] || fail "kernels: more than one file has a struct $twice"
# PTX stands in one header, beside its twins for the simulation.
ptx=$(grep -lw 'asm\|__asm__' $(find kernels -name '*.cu' -o -name '*.[ch]') | grep -vx kernels/cuda/ptx.h)
[ -z "$ptx" ] || fail "inline assembly outside kernels/cuda/ptx.h: $ptx"
if command -v ctags >/dev/null && ctags --version | grep -q Universal; then
    functions=$(mktemp) || exit 99
    echo "$code" | ctags -L - --languages=C,C++ --langmap=C++:+.cu.cuh --kinds-C=f --kinds-C++=f --fields=+ne -f "$functions"
    long=$(awk -F'\t' '!/^!/ {
        for (i = 4; i <= NF; i++) {
            if ($i ~ /^line:/) line = substr($i, 6)
            if ($i ~ /^end:/) end = substr($i, 5)
        }
        if (end - line + 1 > 100) printf "%s:%d: %s() has %d lines, more than 100\n", $2, line, $1, end - line + 1
    }' "$functions")
    rm -f "$functions"
    [ -z "$long" ] || fail "$long"
else
    not_run "the length of functions: universal-ctags is not installed"
fi
finish
