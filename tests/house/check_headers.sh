#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every header compiles alone, as C11 and as C++ (CUDA code is C++); the public one without any of ours beside it, as
# C99 and C++11 too. C only: headers that share C11 atomics, which C++17 does not know, and those of tests and launcher.
# shellcheck disable=SC2086 # compilers and flags are lists of words
set -u
CC=${CC:-cc}
top=$(cd "${srcdir:-.}" && pwd)
flags="-fsyntax-only -Wall -Wextra -Werror"
paths="-I$top/src -I$top"
failed=0
count=0
c_only=
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT

# compile NAME COMPILER... : the header alone.
compile()
{
    name=$1
    shift
    if ! echo "#include \"$name\"" | "$@" - 2>"$scratch/messages"; then
        echo "$name does not compile alone with: $*"
        cat "$scratch/messages"
        failed=1
    fi
}

cd "$top" || exit 99
headers=$(find src kernels launcher tests -name '*.h' ! -name '*.pb-c.h' | sed 's,^src/,,' | sort)
[ -n "${CXX:-}" ] || echo "no C++ compiler: headers are compiled as C only"
for header in $headers; do
    count=$((count + 1))
    compile "$header" $CC -std=gnu11 $flags $paths -xc
    case $header in tests/* | launcher/*) continue ;; esac
    [ -n "${CXX:-}" ] || continue
    if echo "#include \"$header\"" | $CC $paths -xc -M - | grep -q 'stdatomic\.h'; then
        c_only="$c_only $header"
    else
        compile "$header" $CXX -std=c++17 $flags $paths -xc++
    fi
done
mkdir "$scratch/public"
cp src/ddp.h "$scratch/public/"
compile ddp.h $CC -std=c99 -pedantic $flags -I"$scratch/public" -xc
[ -z "${CXX:-}" ] || compile ddp.h $CXX -std=c++11 -pedantic $flags -I"$scratch/public" -xc++
echo "$count headers compiled; with C11 atomics, as C only:$c_only"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
