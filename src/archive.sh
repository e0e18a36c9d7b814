#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: archive.sh LIBTOOL ARGUMENTS    with -o NAME.la: a library of objects that others are made of
# libtool takes seconds for an archive of some hundreds of objects. What it writes into NAME.la changes only with the Makefile:
# until then the archive alone is made anew.
library='' last=''
for word in "$@"; do
    [ "$last" != -o ] || library=$word
    last=$word
done
archive=.libs/${library%.la}.a
if [ -e "$archive" ] && [ "$library" -nt Makefile ]; then
    rm -f "$archive"
    for word in "$@"; do
        echo "$word"
    done | sed -n 's,\([^/]*\)\.lo$,.libs/\1.o,p' | xargs "${AR:-ar}" qc "$archive" && touch "$library" && exit
fi
exec "$@"
