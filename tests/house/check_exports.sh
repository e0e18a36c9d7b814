#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The functions that ddp.h and ddp_train.h declare, libddp.map names, libddp.so exports and the Debian symbols file promises are
# the same functions; and the pages of section 3 have them all, as they are declared, with their types and constants.
set -u
LC_ALL=C
export LC_ALL
top=${srcdir:-.}
library=${abs_top_builddir:-.}/.libs/libddp.so
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
. "$top/tests/lib/result.inc"

# Declarations may span lines: one per ';' once they are joined.
cat "$top/src/ddp.h" "$top/src/ddp_train.h" >"$scratch/ddp.h"
sed 's,/\*.*\*/,,' "$scratch/ddp.h" | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*DDP_API [^(]*[ *]\(ddp_[a-z0-9_]*\)(.*/\1/p' | sort >"$scratch/header"
[ -s "$scratch/header" ] || { echo "no function found in ddp.h"; exit 1; }

compare()
{
    sort -u "$2" -o "$2"
    count=$((count + 1))
    cmp -s "$scratch/header" "$2" && return
    fail "other functions in $1 than in ddp.h"
    comm -23 "$scratch/header" "$2" | sed "s|\$|: in ddp.h, but not in $1|"
    comm -13 "$scratch/header" "$2" | sed "s|\$|: in $1, but not in ddp.h|"
}

sed -n 's/^ *\(ddp_[a-z0-9_]*\);$/\1/p' "$top/src/libddp.map" >"$scratch/map"
compare src/libddp.map "$scratch/map"
sed -n 's/^ \(ddp_[a-z0-9_]*\)@.*/\1/p' "$top/debian/libddp0.symbols" >"$scratch/symbols"
compare debian/libddp0.symbols "$scratch/symbols"
# The pages: each function, inline ones too, stands with its arguments in the SYNOPSIS of one page, and with its name in the NAME
# and the DESCRIPTION of that page.
synopsis()
{
    awk '/^\.Sh/ { on = /SYNOPSIS/ } !on { next }
         { count = split($0, part, "\"") }
         /^\.Ft / { type = substr($0, 5) }
         /^\.F[no] / { split(part[1], word, " "); name = word[2]; arguments = "" }
         /^\.F[na] / { for (i = 2; i <= count; i += 2) arguments = arguments "," part[i] }
         /^\.Fn .*\.\.\.$/ { arguments = arguments ",..." }
         /^\.F[nc]/ { print type "\t" name "(" substr(arguments, 2) ")"; type = "" }' "$1"
}
for page in "$top"/man/*.3; do
    file=${page##*/}
    synopsis "$page" >"$scratch/synopsis"
    cat "$scratch/synopsis" >>"$scratch/pages"
    sed 's/(.*//; s/.*\t//' "$scratch/synopsis" | grep -vx "${file%.3}" | sort >"$scratch/functions"
    sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \([a-z0-9_]*\).*/\1/p' "$page" >"$scratch/names"
    [ "$(sed 1q "$scratch/names")" = "${file%.3}" ] || fail "$file: the first of its names is not the page's"
    sed 1d "$scratch/names" | sort | diff "$scratch/functions" - || fail "$file: SYNOPSIS (<) and NAME (>) have other functions"
    sed -n '/^\.Sh DESCRIPTION/,/^\.Sh RETURN/s/^\.\(It \)*Fn \(ddp_[a-z0-9_]*\).*/\2/p' "$page" | sort -u |
        comm -23 "$scratch/functions" - | grep . && fail "$file: the DESCRIPTION lacks these"
    # Readers come from one page to the others.
    [ "$file" = ddp.3 ] || grep -q '^\.Xr ddp 3' "$page" || fail "$file does not name ddp(3)"
    [ "$file" = ddp.3 ] || grep -q "^\.It Xr ${file%.3} 3" "$top/man/ddp.3" || fail "ddp.3 does not list ${file%.3}(3)"
done
tr '\n' ' ' <"$scratch/ddp.h" | sed 's,/\*[^*]*\*/,,g' | tr ';' '\n' |
    sed -n 's/ DDP_PRINTF.*//; s/.*\(DDP_API\|static inline\) \([^({]*ddp_[a-z0-9_]*([^{]*)\).*/\2/p' | tr -d ' ' | sort >"$scratch/declared"
tr -d ' \t' <"$scratch/pages" | sort | diff "$scratch/declared" - || fail "the functions of ddp.h (<) and of man/*.3 (>) differ"
# Types, with their members and without comments and spaces, and the names of constants.
types()
{
    cat "$@" | tr '\n' ' ' | sed 's,/\*[^*]*\*/,,g; s/};/};\n/g' |
        grep -oE '(struct|enum) ddp_[a-z0-9_]+ \{[^}]*\};|typedef enum ddp_status ddp_[a-z_]*\([^)]*\);' | tr -d ' ' | grep -v '^enumddp_status{' | sort
}
types "$scratch/ddp.h" >"$scratch/types"
types "$top"/man/*.3 >"$scratch/man"
[ -s "$scratch/types" ] && diff "$scratch/types" "$scratch/man" || fail "the types of ddp.h (<) and of man/*.3 (>) differ"
constants()
{
    cat "$@" | grep -oE '\<DDP_[A-Z0-9_]+\>' | grep -vxE 'DDP(_TRAIN)?_H|DDP_API|DDP_PRINTF' | sort -u
}
constants "$scratch/ddp.h" >"$scratch/constants"
constants "$top"/man/*.3 | comm -23 "$scratch/constants" - | grep . && fail "these constants of ddp.h stand in no page"
# Statuses and their exit codes.
sed -n 's/.*\[-\(DDP_ERR_[A-Z]*\)\] = {".*", \([0-9]*\)}.*/\1 \2/p' "$top/src/core/status.c" >"$scratch/statuses"
sed -n 's/^\.It Dv \(DDP_ERR_[A-Z]*\) Pq \([0-9]*\)$/\1 \2/p' "$top/man/ddp.3" >"$scratch/man"
[ -s "$scratch/statuses" ] && diff "$scratch/statuses" "$scratch/man" || fail "the statuses of status.c (<) and of ddp.3 (>) differ"
if [ -e "$library" ] && command -v nm >/dev/null; then
    # Besides the names of versions (type A) and what gcov and the sanitizers add.
    nm -D --defined-only "$library" |
        awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' >"$scratch/library"
    compare libddp.so "$scratch/library"
else
    echo "no shared library here or no nm: what it exports was not looked at"
fi
echo "$(wc -l <"$scratch/declared") functions compared"
finish
