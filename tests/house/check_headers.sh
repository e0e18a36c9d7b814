#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every header compiles alone: as C11, except those that some source file includes first, which the build has shown; device code
# as C++; the public ones without any of ours beside them, as C99 and C++11. Headers for CUDA see its headers, NVIDIA's or those
# of the simulation, and nothing else does.
# shellcheck disable=SC2086 # compilers and flags are lists of words
set -u
CC=${CC:-cc}
top=$(cd "${srcdir:-.}" && pwd)
flags="-fsyntax-only -Wall -Wextra -Wno-unused-function -Werror" # alone, what a header defines is not used
paths="-I$top/src -I$top"
sim="$top/tests/cudasim"
CUDA_INCLUDES=${CUDA_INCLUDES:--I$sim -I$sim/include}
failed=0
count=0
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
# What follows config.h, or comes first without it.
shown=$(find src kernels launcher reporter tests -name '*.c' -exec awk '
    FNR == 1 { seen = 0 }
    !seen && /^#include "/ && $2 != "\"config.h\"" { gsub(/"/, "", $2); print $2 }
    /^#include/ && $2 != "\"config.h\"" { seen = 1 }' {} +)
headers=$(find src kernels launcher reporter tests -name '*.h' ! -name '*.pb-c.h' | sed 's,^src/,,' | sort)
[ -n "${CXX:-}" ] || echo "no C++ compiler: device code is not compiled"
for header in $headers; do
    cuda=
    case $header in
    tests/cudasim/include/*) cuda="-I$sim -I$sim/include" ;;
    *cudnn*) cuda="$CUDA_INCLUDES -I$sim/include/cudnn" ;;
    *cuda* | comm/nccl*) cuda=$CUDA_INCLUDES ;;
    esac
    # Device code (but a header that says itself for whom is for C too), for which this compiler needs the simulated device.
    if cat "$header" "src/$header" 2>/dev/null | awk '/__device__/ { d = 1 } /__CUDACC__/ { g = 1 } END { exit !(d && !g) }'; then
        count=$((count + 1))
        [ -z "${CXX:-}" ] || compile "$header" $CXX -std=c++17 -DDDP_CUDASIM -Wno-unknown-pragmas $flags $paths $cuda -xc++
        continue
    fi
    echo "$shown" | grep -qxF "$header" && continue
    count=$((count + 1))
    compile "$header" $CC -std=gnu11 $flags $paths $cuda -xc
done
mkdir "$scratch/public"
cp src/ddp.h src/ddp_train.h "$scratch/public/"
for header in ddp.h ddp_train.h; do
    compile "$header" $CC -std=c99 -pedantic $flags -I"$scratch/public" -xc
    [ -z "${CXX:-}" ] || compile "$header" $CXX -std=c++11 -pedantic $flags -I"$scratch/public" -xc++
done
echo "$count headers compiled"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
