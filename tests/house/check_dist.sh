#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A release has every file that is tracked: what it lacks is missed where it is built, if not before.
set -u
top=$(cd "${srcdir:-.}" && pwd)
build=${abs_top_builddir:-$PWD}
if [ ! -e "$top/.git" ] || ! git -C "$top" ls-files >/dev/null 2>&1; then
    echo "SKIP: this is no checkout: there is nothing to compare with"
    exit 77
fi
scratch=$(mktemp -d) || exit 99
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
${MAKE:-make} -s -C "$build" distdir distdir="$scratch/release" >"$scratch/out" 2>&1 || {
    cat "$scratch/out"
    exit 1
}
(cd "$scratch/release" && find . -type f -o -type l) | sed 's,^\./,,' | sort >"$scratch/there"
git -C "$top" ls-files | grep -v '^\.gitignore$' | sort >"$scratch/tracked"
missing=$(comm -23 "$scratch/tracked" "$scratch/there")
[ -n "$missing" ] || exit 0
echo "not in a release (EXTRA_DIST, or a list of sources):"
printf '    %s\n' $missing
exit 1
