#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The recipes for RPM, Spack and conda are of this version, and can be read.
. "${srcdir:-.}/tests/lib/cli.inc"
version=$(sed -n 's/^AC_INIT(\[ddprun\], \[\(.*\)\])$/\1/p' "$here/configure.ac")
for recipe in "ddprun.spec:^Version: *$version\$" "spack/package.py:version(\"$version\")" \
    "spack/package.py:/ddprun-$version\.tar\.xz" "conda/recipe.yaml:^  version: $version\$"; do
    count=$((count + 1))
    grep -q "${recipe#*:}" "$here/packaging/${recipe%%:*}" || fail "packaging/${recipe%%:*} is not of version $version"
done
expect "Spack's recipe" 0 '' python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$here/packaging/spack/package.py"
if command -v rpmspec >/dev/null; then
    expect "rpmspec" 0 "^ddprun-libs-$version" rpmspec -q "$here/packaging/ddprun.spec"
else
    not_run "rpmspec is not installed"
fi
finish
