#!/bin/sh
# SPDX-License-Identifier: MIT
# The script in ddpreport's page, in a headless Chromium: values under the pointer, runs switched off.
. "${srcdir:-.}/tests/lib/cli.inc"
command -v chromium >/dev/null || skip "chromium is not installed"
sed 's/"step":1000,"epoch"/"step":990,"epoch"/' "$here/doc/accumulation.jsonl" >"$work/<b>one<&.jsonl"
"$top/ddpreport" "$work/<b>one<&.jsonl" "$here/doc/DDP.jsonl" -o "$work/page.html" >"$work/out" 2>&1 || fail "no page: $(cat "$work/out")"
# What a reader does, and what the page shows then, in lines of text at its end.
cat >"$work/reader" <<'END'
<script>
const said = document.body.appendChild(document.createElement('pre'));
const say = text => { said.textContent += text + '\n'; };
const point = (chart, share) => {
  const plot = document.querySelectorAll('.plot')[chart], area = plot.getBoundingClientRect();
  plot.dispatchEvent(new PointerEvent('pointermove', {clientX: area.left + share * area.width, clientY: area.top + 9}));
  const values = document.getElementById('values');
  say(values.hidden ? 'hidden' : [values.querySelector('caption'), ...values.querySelectorAll('td')].map(e => e.textContent).join('|'));
};
const seen = run => say('run ' + run + ' ' + getComputedStyle(document.querySelector('.r' + run)).display);
window.onerror = what => say('error ' + what);
point(0, 1);
point(1, 0.5);
seen(0);
document.getElementById('run0').click();
seen(0);
seen(1);
point(0, 1);
document.querySelector('.legend button').click();
document.querySelector('.legend button').click();
seen(0);
document.querySelector('.legend button').click();
point(0, 1);
say('tags ' + document.querySelectorAll('label b, #values b').length + ' titles ' + document.querySelectorAll('.plot title').length);
</script>
END
sed "/<\/body>/{
r $work/reader
d
}" "$work/page.html" >"$work/read.html"
HOME=$work timeout $((60 * patience)) chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
    --dump-dom "file://$work/read.html" >"$work/dom" 2>"$work/messages" || fail "chromium: $(tail -n 3 "$work/messages")"
sed -n '/<pre>/,/<\/pre>/{s/.*<pre>//;s/<\/pre>.*//;p;}' "$work/dom" >"$work/got"
number='[0-9.]+'
count=$((count + 1))
line=0
while read -r pattern; do
    line=$((line + 1))
    sed -n "${line}p" "$work/got" | grep -qE "^$pattern\$" || fail "line $line is not $pattern: $(sed -n "${line}p" "$work/got")"
done <<END
step: 1000\|■\|&lt;b&gt;one&lt;&amp;\|$number \(at 990\)\|test $number \(at 990\)\|■\|DDP\|$number\|test $number
step: 500\|■\|&lt;b&gt;one&lt;&amp;\|test $number\|■\|DDP\|test $number
run 0 inline
run 0 none
run 1 inline
step: 1000\|■\|DDP\|$number\|test $number
run 0 inline
hidden
tags 0 titles 0
END
finish
