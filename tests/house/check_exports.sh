#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The functions that ddp.h and ddp_train.h declare, libddp.map names, libddp.so exports, ddp(3) documents and the Debian symbols
# file promises are the same functions.
set -u
LC_ALL=C
export LC_ALL
top=${srcdir:-.}
library=${abs_top_builddir:-.}/.libs/libddp.so
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
failed=0

# Declarations may span lines: one per ';' once they are joined.
cat "$top/src/ddp.h" "$top/src/ddp_train.h" >"$scratch/ddp.h"
sed 's,/\*.*\*/,,' "$scratch/ddp.h" | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*DDP_API [^(]*[ *]\(ddp_[a-z0-9_]*\)(.*/\1/p' | sort >"$scratch/header"
[ -s "$scratch/header" ] || { echo "no function found in ddp.h"; exit 1; }

compare()
{
    sort -u "$2" -o "$2"
    cmp -s "$scratch/header" "$2" && return
    failed=1
    comm -23 "$scratch/header" "$2" | sed "s|\$|: in ddp.h, but not in $1|"
    comm -13 "$scratch/header" "$2" | sed "s|\$|: in $1, but not in ddp.h|"
}

sed -n 's/^ *\(ddp_[a-z0-9_]*\);$/\1/p' "$top/src/libddp.map" >"$scratch/map"
compare src/libddp.map "$scratch/map"
sed -n 's/^ \(ddp_[a-z0-9_]*\)@.*/\1/p' "$top/debian/libddp0.symbols" >"$scratch/symbols"
compare debian/libddp0.symbols "$scratch/symbols"
sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/s/^\.F[no] \(ddp_[a-z0-9_]*\).*/\1/p' "$top/man/ddp.3" >"$scratch/man"
compare 'the synopsis of man/ddp.3' "$scratch/man"
sed -n '/^\.Sh DESCRIPTION/,/^\.Sh RETURN/s/^\.\(It \)*Fn \(ddp_[a-z0-9_]*\).*/\2/p' "$top/man/ddp.3" >"$scratch/man"
compare 'the description of man/ddp.3' "$scratch/man"
# Types, with their members and without comments and spaces.
types()
{
    tr '\n' ' ' <"$1" | sed 's,/\*[^*]*\*/,,g; s/};/};\n/g' | grep -oE '(struct|enum) ddp_[a-z0-9_]+ \{[^}]*\};' |
        grep -v '^enum ddp_status ' | tr -d ' ' | sort
}
types "$scratch/ddp.h" >"$scratch/types"
types "$top/man/ddp.3" >"$scratch/man"
if ! [ -s "$scratch/types" ] || ! diff "$scratch/types" "$scratch/man"; then
    echo "the types of ddp.h (<) and of man/ddp.3 (>) differ"
    failed=1
fi
if [ -e "$library" ] && command -v nm >/dev/null; then
    # Besides the names of versions (type A) and what gcov and the sanitizers add.
    nm -D --defined-only "$library" |
        awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' >"$scratch/library"
    compare libddp.so "$scratch/library"
else
    echo "no shared library here or no nm: what it exports was not looked at"
fi
echo "$(wc -l <"$scratch/header") functions compared"
[ "$failed" -eq 0 ]
