#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What `make install` leaves is enough: programs that know only pkg-config compile against the staged tree, as C and as C++,
# and run; the examples that train do so alone, on two workers, in dp, and interrupted and resumed, to the same bits.
# shellcheck disable=SC2086 # compilers and flags are lists of words
. "${srcdir:-.}/tests/lib/cli.inc"
source=$(cd "$here" && pwd)
stage=$work/stage
command -v pkg-config >/dev/null || skip "pkg-config is not installed"
mkdir "$stage" || exit 99

# Not part of the make that runs this test: without its options and its TESTS.
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u TESTS "${MAKE:-make}" -s -C "$top" install DESTDIR="$stage" >"$stage/install.log" 2>&1 || {
    cat "$stage/install.log"
    exit 1
}
# installed NAME: leaves its path in $found
installed() {
    found=$(find "$stage" -name "$1" | head -n 1)
    count=$((count + 1))
    [ -n "$found" ] || fail "make install did not install $1"
}
for name in ddpreport.1 ddprun.1 trainer.1 trainer-data.7 README.md ddp_train.h; do
    installed "$name"
done
for name in trainer ddprun ddpreport; do
    installed "$name"
    [ -x "$found" ] || found=$(find "$stage" -name "$name" -type f -perm -u+x | head -n 1)
    bin=$(dirname "$found")
done
installed README.md
documents=$(dirname "$found")
# `man 3 FUNCTION` finds its page.
installed ddp.3
pages=$(dirname "$found")
for name in $(sed -n 's/^ *\(ddp_[a-z0-9_]*\);$/\1/p' "$source/src/libddp.map"); do
    [ -r "$pages/$name.3" ] || fail "make install did not install $name.3"
done
installed libddp.pc
pc=$(dirname "$found")
installed ddp.h
headers=$(dirname "$found")
installed libddp.so
libraries=$(dirname "$found")
find "$stage" -path '*completions/*' -type f -exec bash -n {} \; || fail "a completion is no bash"
[ $failures -eq 0 ] || finish

# A prefix of /usr makes these the system's directories, which pkg-config leaves out unless told.
PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
PKG_CONFIG_SYSROOT_DIR=$stage PKG_CONFIG_PATH=$pc
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS PKG_CONFIG_ALLOW_SYSTEM_LIBS PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH LD_LIBRARY_PATH
flags=$(pkg-config --cflags --libs libddp)
case $flags in
*"-I$headers"*"-L$libraries"*) ;;
*) fail "libddp.pc gives '$flags', not the staged tree" ;;
esac
ddprun=$bin/ddprun

# compiled NAME SOURCE COMPILER...: without a warning
strict="-Wall -Wextra -pedantic -Wmissing-field-initializers -Werror"
compiled() {
    program=$1 file=$2
    shift 2
    expect "$program: $*" 0 '' "$@" ${DDP_SANITIZE:-} "$file" -x none -o "$stage/$program" $flags -lm
    [ ! -s "$work/out" ] || fail "$program: $(head -n 3 "$work/out")"
}
as_c="${CC:-cc} -std=c11 $strict"
as_cxx="${CXX:-c++} -std=c++11 $strict -x c++"
languages=C
if command -v ${CXX:-c++} >/dev/null; then
    languages="C C++"
else
    not_run "the examples as C++: there is no C++ compiler"
fi
compiled client "$source/tests/house/client.c" $as_c
for file in "$source"/examples/*.c; do
    example=$(basename "$file" .c)
    [ "$(wc -l <"$file")" -lt 100 ] || fail "$example: not under 100 lines"
    cmp -s "$file" "$documents/examples/$example.c" || fail "make install did not install $example.c"
    compiled "$example.C" "$file" $as_c
    [ "$languages" = C ] || compiled "$example.C++" "$file" $as_cxx
done
[ $failures -eq 0 ] || finish

expect "client" 0 '' "$ddprun" -n 2 "$stage/client"
expect "trainer" 0 '^trainer [0-9.]*' "$bin/trainer" --version
make_data
awk 'BEGIN { for (i = 0; i < 64; i++) printf "%d,%d,%d\n", i % 7, i % 5, i % 7 - i % 5 }' >"$work/table.csv"

# trains NAME OPTION...: as C and as C++. What is resumed lost a worker first, and has a checkpoint of a step before.
trains() {
    example=$1
    shift
    first=
    for language in $languages; do
        program=$stage/$example.$language
        same "$example, $language: alone" "$program" "$@"
        same "$example, $language: 2 workers" "$ddprun" -n 2 "$program" "$@"
        same "$example, $language: dp" "$program" "$@" --mode dp --replicas 2
        rm -rf "$work/dir"
        DDP_FAULTS="slow:step=13,ms=300 kill:rank=1,step=14" expect "$example, $language: interrupted" 137 'rank 1 .* SIGKILL' "$ddprun" -n 2 \
            "$program" "$@" --checkpoint "$work/dir" --checkpoint-every 5
        rm -f "$work/log"
        same "$example, $language: resumed" "$program" "$@" --checkpoint "$work/dir" --resume --log "$work/log"
        grep -qE '"first_step":(6|11),' "$work/log" || fail "$example, $language: not resumed: $(head -n 1 "$work/log")"
    done
}
few="--batch-size 4 --global-batch 8 --epochs 3 --no-eval --quiet"
trains own_data "$work/table.csv" $few --lr 0.01
trains own_op --data "$work/images" $few
trains own_model --data "$work/images" $few
trains own_loop --data "$work/images" --model mlp --hidden 16 --batch-size 4 --global-batch 8 --epochs 3 --eval-every 4 --lr 1 --quiet
for language in $languages; do
    expect "train, $language" 0 'Model weights: \[0\.9472, ' "$stage/train.$language"
    expect "overlap, $language" 0 '2 ranks, last bucket: ' "$ddprun" -n 2 "$stage/overlap.$language"
done
expect "own_model: bad option" 2 '--bad-option' "$stage/own_model.C" --bad-option
finish
