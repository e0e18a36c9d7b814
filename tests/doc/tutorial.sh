#!/bin/sh
# SPDX-License-Identifier: MIT
# The tutorial up to batch and rate: every command runs, and prints what the page shows, to the digits of its losses.
. "${srcdir:-.}/tests/lib/cli.inc"
. "$here/tests/doc/tutorial.inc"
pages 01 02 03 04 05 06

# The figures of these pages are drawn from such runs: here from these.
if command -v cmark-gfm >/dev/null && command -v mandoc >/dev/null; then
    for file in "$here"/doc/tutorial/*.jsonl; do
        [ -e "$work/pages/shown/${file##*/}" ] || cp "$file" "$work/pages/shown"
    done
    expect "a site of these runs" 0 '' python3 "$here/doc/site.py" "$work/site" "$top/ddpreport" "$work/pages/shown"
    for page in 01-first-run 04-dataparallel 05-ddp 06-batch; do
        count=$((count + 1))
        grep -q '<figure class="drawn">' "$work/site/$page.html" || fail "$page has no figure"
    done
else
    not_run "a site of these runs: cmark-gfm or mandoc is not installed"
fi
finish
