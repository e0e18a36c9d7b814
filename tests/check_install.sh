#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What `make install` leaves is enough: a program that knows only pkg-config compiles against the staged tree, runs as
# a job of two, and the staged trainer prints its version.
# shellcheck disable=SC2086 # compilers and flags are lists of words
set -eu
builddir=${abs_top_builddir:-$PWD}
top=$(cd "${srcdir:-.}" && pwd)
command -v pkg-config >/dev/null || { echo "skipped: pkg-config is not installed"; exit 77; }
stage=$(mktemp -d) || exit 99
trap 'rm -rf "$stage"' EXIT

# Not part of the make that runs this test: without its options and its TESTS.
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u TESTS \
    "${MAKE:-make}" -s -C "$builddir" install DESTDIR="$stage" >"$stage/install.log" 2>&1 ||
    { cat "$stage/install.log"; exit 1; }
find_one()
{
    found=$(find "$stage" -name "$1" | head -n 1)
    [ -n "$found" ] || { echo "make install did not install $1" >&2; exit 1; }
    echo "$found"
}
pc=$(find_one libddp.pc)
header=$(find_one ddp.h)
library=$(find_one libddp.so)
for name in ddpreport.1 ddprun.1 trainer.1 ddp.3 README.md; do
    find_one "$name" >/dev/null
done
find "$stage" -path '*completions/*' -type f -exec bash -n {} \;

# A prefix of /usr makes these the system's directories, which pkg-config leaves out unless told.
PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS PKG_CONFIG_ALLOW_SYSTEM_LIBS PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH
flags=$(pkg-config --cflags --libs libddp)
case $flags in
*"-I$(dirname "$header")"*"-L$(dirname "$library")"*) ;;
*) echo "libddp.pc gives '$flags', not the staged tree"; exit 1 ;;
esac
${CC:-cc} ${DDP_SANITIZE:-} -Wall -Wextra -Werror "$top/tests/client.c" -o "$stage/client" $flags
# `man 3 FUNCTION` finds its page.
pages=$(dirname "$(find_one ddp.3)")
for name in $(sed -n 's/^ *\(ddp_[a-z0-9_]*\);$/\1/p' "$top/src/libddp.map"); do
    [ -r "$pages/$name.3" ] || { echo "make install did not install $name.3"; exit 1; }
done
${CC:-cc} ${DDP_SANITIZE:-} -Wall -Wextra -Werror "$top/examples/own_model.c" -o "$stage/own_model" $flags
${CC:-cc} ${DDP_SANITIZE:-} -std=c11 -pedantic -Wall -Wextra -Wmissing-field-initializers -Werror "$top/examples/own_data.c" \
    -o "$stage/own_data" $flags
if command -v ${CXX:-c++} >/dev/null; then
    ${CXX:-c++} ${DDP_SANITIZE:-} -std=c++11 -Wall -Wextra -Wmissing-field-initializers -Werror -x c++ "$top/examples/own_data.c" \
        -x none -o "$stage/own_data_cxx" $flags
fi
# The others too.
for name in own_loop own_op; do
    ${CC:-cc} ${DDP_SANITIZE:-} -Wall -Wextra -Werror "$top/examples/$name.c" -o "$stage/$name" $flags -lm
    ! command -v c++ >/dev/null ||
        c++ ${DDP_SANITIZE:-} -Wall -Wextra -Werror -x c++ "$top/examples/$name.c" -o "$stage/$name.c++" $flags -lm
done
LD_LIBRARY_PATH=$(dirname "$library")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
bin=$(dirname "$(find "$stage" -name ddprun -type f -perm -u+x | head -n 1)")
"$bin/ddprun" --nproc 2 "$stage/client"
# Data of the program's own, compiled as C and as C++.
awk 'BEGIN { for (i = 0; i < 60; i++) printf "%d,%d,%d\n", i % 7, i % 5, i % 7 - i % 5 }' >"$stage/table.csv"
for program in own_data own_data_cxx; do
    [ -e "$stage/$program" ] || continue
    "$bin/ddprun" --nproc 2 "$stage/$program" "$stage/table.csv" --epochs 2 --batch-size 4 --lr 0.01 --no-eval --quiet --save "$stage/$program.w"
    cmp "$stage/$program.w" "$stage/own_data.w"
done
# A model of the program's own, on two workers as alone; as far as there are data.
"$stage/own_model" --bad-option 2>/dev/null && { echo "own_model takes a bad option"; exit 1; }
if [ -r /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]; then
    "$stage/own_model" --steps 2 --batch-size 4 --acc-steps 2 --no-eval --quiet --save "$stage/one"
    "$bin/ddprun" --nproc 2 "$stage/own_model" --steps 2 --batch-size 4 --no-eval --quiet --save "$stage/two"
    cmp "$stage/one" "$stage/two"
fi
"$bin/trainer" --version
