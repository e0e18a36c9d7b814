#!/bin/sh
# SPDX-License-Identifier: MIT
# configure refuses flags with which results depend on the compiler and the processor, whoever gives them, and no others.
. "${srcdir:-.}/tests/lib/cli.inc"
configure=$(cd "$here" && pwd)/configure
[ -x "$configure" ] || skip "there is no configure"
mkdir "$work/build"
cd "$work/build" || exit 99

for flag in -ffast-math -Ofast -funsafe-math-optimizations -fassociative-math -ffinite-math-only -ffp-contract=fast; do
    expect "CFLAGS=$flag" 1 "^configure: error: with $flag results depend on the compiler and the processor: leave it out" \
        "$configure" CFLAGS="-O2 $flag -g"
done
for variable in CC=cc CXX=c++ CPPFLAGS= CXXFLAGS= LDFLAGS=; do
    expect "$variable" 1 'error: with -ffast-math results depend' "$configure" "$variable -ffast-math"
done
# These go on to the question what the compiler is.
for flag in -mfma -ffp-contract=off -O3; do
    expect "CFLAGS=$flag" 77 'checking for gcc.*/nowhere' "$configure" CC=/nowhere CFLAGS="$flag"
done
finish
