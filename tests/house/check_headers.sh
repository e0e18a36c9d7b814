#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every header compiles alone, as C11 and as C++ (CUDA code is C++); the public one without any of ours beside it, as
# C99 and C++11 too. C only: headers that share C11 atomics, which C++17 does not know, and those of tests and launcher.
# Those for CUDA see its headers, NVIDIA's or those of the simulation, and nothing else does.
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
headers=$(find src kernels launcher reporter tests -name '*.h' ! -name '*.pb-c.h' | sed 's,^src/,,' | sort)
[ -n "${CXX:-}" ] || echo "no C++ compiler: headers are compiled as C only"
for header in $headers; do
    count=$((count + 1))
    cuda=
    case $header in
    tests/cudasim/include/*) cuda="-I$sim -I$sim/include" ;;
    *cudnn*) cuda="$CUDA_INCLUDES -I$sim/include/cudnn" ;;
    *cuda* | comm/nccl*) cuda=$CUDA_INCLUDES ;;
    esac
    # Device code is C++ only (but a header that says itself for whom is for C too), for which this compiler needs the simulated device.
    if cat "$header" "src/$header" 2>/dev/null | awk '/__device__/ { d = 1 } /__CUDACC__/ { g = 1 } END { exit !(d && !g) }'; then
        [ -z "${CXX:-}" ] || compile "$header" $CXX -std=c++17 -DDDP_CUDASIM -Wno-unknown-pragmas $flags $paths $cuda -xc++
        continue
    fi
    compile "$header" $CC -std=gnu11 $flags $paths $cuda -xc
    case $header in
    tests/cudasim/*) ;;
    tests/* | launcher/* | reporter/*) continue ;;
    esac
    [ -n "${CXX:-}" ] || continue
    if echo "#include \"$header\"" | $CC $paths $cuda -xc -M - | grep -q 'stdatomic\.h'; then
        c_only="$c_only $header"
    else
        compile "$header" $CXX -std=c++17 $flags $paths $cuda -xc++
    fi
done
mkdir "$scratch/public"
cp src/ddp.h src/ddp_train.h "$scratch/public/"
for header in ddp.h ddp_train.h; do
    compile "$header" $CC -std=c99 -pedantic $flags -I"$scratch/public" -xc
    [ -z "${CXX:-}" ] || compile "$header" $CXX -std=c++11 -pedantic $flags -I"$scratch/public" -xc++
done
echo "$count headers compiled; with C11 atomics, as C only:$c_only"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
