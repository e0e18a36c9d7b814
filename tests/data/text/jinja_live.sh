#!/bin/sh
# SPDX-License-Identifier: MIT
# Chat templates against the Jinja that Python has here: those of the golden values, and those that its packages carry.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${TOKENIZERS_PYTHON:-${PYTHON:-python3}}
"$python" -c 'import jinja2' >/dev/null 2>&1 || skip "$python lacks jinja2"
"$python" "$here/tests/data/text/golden/jinja.py" compare ./tokenizer_tool || fail "texts of templates"
count=$((count + 1))
finish
