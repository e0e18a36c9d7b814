#!/bin/sh
# SPDX-License-Identifier: MIT
# `./bootstrap deps DIR` collects all that `configure --with-deps=DIR` needs on a machine without these packages: here their
# headers are empty files, and programs must be linked with the libraries in DIR.
. "${srcdir:-.}/tests/lib/cli.inc"
[ "${DDP_LONG:-}" = 1 ] || skip "takes minutes, runs in make check-long"
[ ! -e "$here/config.status" ] || skip "the source tree is configured: it can have no other build"
command -v apt-get >/dev/null || skip "there is no apt-get"
unshare -m true 2>/dev/null || skip "no mount namespace here: this is not root"
source=$(cd "$here" && pwd)
"$source/bootstrap" deps "$work/deps" >"$work/deps.log" 2>&1 || { cat "$work/deps.log"; skip "apt-get downloads no packages here"; }

cat >"$work/build.sh" <<'END'
set -e
for header in zlib.h zconf.h jansson.h jansson_config.h png.h pngconf.h jpeglib.h jerror.h x86_64-linux-gnu/jconfig.h pcre2.h utf8proc.h yaml.h check.h check_stdint.h; do
    [ ! -e "/usr/include/$header" ] || mount --bind /dev/null "/usr/include/$header"
done
mkdir "$work/build" && cd "$work/build"
"$source/configure" -q --without-cuda --with-deps=../deps --with-check
make -s -j"$(nproc)" trainer ddprun check_core check_gemm
./check_core && ./check_gemm
END
export work source
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u TESTS unshare -m sh "$work/build.sh" >"$work/build.log" 2>&1 ||
    { fail "the build with --with-deps"; tail -n 40 "$work/build.log"; }
for library in z jansson png16 jpeg pcre2-8 utf8proc yaml-0; do
    count=$((count + 1))
    ldd "$work/build/.libs/trainer" "$work/build/check_gemm" | grep "lib$library\.so" >"$work/ldd"
    [ "$(grep -c "=> $work/deps/lib/" "$work/ldd")" -ge 1 ] || fail "lib$library is not in the build at all"
    ! grep -v "=> $work/deps/lib/" "$work/ldd" || fail "lib$library is the system's"
done
finish
