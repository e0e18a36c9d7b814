#!/bin/sh
# SPDX-License-Identifier: MIT
# ddpreport's page: what differs between runs, charts with their values, names and options that are hostile. It needs neither
# gnuplot nor the network.
. "${srcdir:-.}/tests/lib/cli.inc"
report=$top/ddpreport
mkdir "$work/none"

# page NAME OPTION...: writes $page without gnuplot, and it is well-formed XML
page() {
    label=$1
    page=$work/page.html
    shift
    expect "$label" 0 '' env PATH="$work/none" "$report" "$@" -o "$page"
    command -v python3 >/dev/null || { not_run "well-formed pages: python3 is not installed" && return; }
    python3 -c 'import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])' "$page" 2>"$work/xml" ||
        fail "$label: not well-formed: $(tail -n 1 "$work/xml")"
}
# shows COUNT PATTERN: in so many lines of the page
shows() {
    found=$(grep -cE -- "$2" "$page")
    [ "$found" -eq "$1" ] || fail "$label: $found lines, not $1, have $2"
}
# a log: run SEED MORE-OF-CONFIG COMMAND, step NUMBER LOSS, test NUMBER MEMBERS
run() {
    printf '{"event":"run","format":1,"time":100.0,"host":"one","first_step":1,"world_size":1,"config":{"model":"mlp","seed":%d%s},"versions":{"ddprun":"0.9.0"},"command":["trainer"%s]}\n' "$@"
}
step() {
    printf '{"event":"step","step":%d,"time":%d,"loss":%s,"learning_rate":0.1,"seconds":0.5,"samples_per_second":16,"gradient_norm":1}\n' "$1" $((100 + $1)) "$2"
}
test_at() {
    printf '{"event":"evaluation","step":%d,"time":200,%s,"samples":9,"seconds":1}\n' "$@"
}

# Every evaluated metric has a chart; a value and its step are in the page, whole.
{
    run 1 ',"batch_size":8' ',"--lr","0.1","--hidden","16","-b","8","--log","a"'
    step 1 2.3456789
    step 2 1.25
    test_at 2 '"test_loss":1.5,"test_accuracy":0.625,"test_bits_per_byte":3,"best_loss":1'
    step 3 null
    step 4 1
    echo '{"event":"checkpoint","step":4,"time":104}'
} >"$work/first.jsonl"
{
    run 2 ',"batch_size":8' ',"--lr=0.1","--hidden=32","--batch_size=8","--log=b","--drop_out"'
    step 1 2
    step 4 1.75
    test_at 4 '"test_loss":1.5,"test_r2":0.5,"test_name":"x"'
} >"$work/second.jsonl"
page "two runs" "$work/first.jsonl" "$work/second.jsonl"
shows 1 '^<tr><th scope="col">run</th><th scope="col">seed</th><th scope="col">--hidden</th><th scope="col">--drop-out</th></tr>$'
shows 1 '^<tr><th scope="row">first</th><td>1</td><td>16</td><td>-</td></tr>$'
shows 1 '^<tr><th scope="row">second</th><td>2</td><td>32</td><td>yes</td></tr>$'
shows 1 '^<tr><th scope="row">--learning-rate</th><td>0.1</td></tr>$'
shows 1 '^<tr><th scope="row">ddprun</th><td>0.9.0</td></tr>$'
for word in 'loss' 'test accuracy \(%\)' 'test bits per byte' 'test r2' 'learning rate' 'samples/s' 'gradient norm'; do
    shows 1 "^<figure><figcaption>$word</figcaption>\$"
done
shows 7 '<figcaption>'
shows 1 '^<path class="values r0 c0 d0" d="M0 [0-9]+L1333 [0-9]+M4000 [0-9]+h.01" data-values="1 2.34568 2 1.25 4 1" data-run="0"><title>first</title></path>$'
shows 1 '^<path class="scores r0 c0 d0" .* data-values="2 62.5" data-run="0">'
shows 1 '^<path class="scores r1 c1 d1" .* data-values="4 0.5" data-run="1">'
shows 7 '^<path class="checkpoints r0 '
shows 1 '^<label><input type="checkbox" id="run1" checked="checked"/>.*<span>second</span></label>$'
shows 1 '^body:has\(#run1:not\(:checked\)\) .r1\{display:none\}$'
shows 1 'prefers-color-scheme: dark'
shows 0 '(src|href)=|https?:|@import|url\('
page "two runs over time" "$work/first.jsonl" "$work/second.jsonl" --x time --log-scale
shows 7 'data-axis="1 4 time \(s\)"'
page "tokens" "$here/doc/DDP.jsonl" "$here/doc/accumulation.jsonl" --x tokens
shows 2 '<th scope="col">mode</th>' # it differs, and is a result
shows 5 'data-axis="[0-9.]+ [0-9.]+ thousand samples"'

page "evaluations between logged steps" "$here/doc/DDP.jsonl"
shows 2 'class="scores r0 .* data-values="250 [0-9.]+ 500 '

# Of one run nothing differs; without evaluations there are four charts; of steps alone, fewer.
{
    run 1 '' ''
    step 1 2
    step 2 1
} | sed 's/samples_per/tokens_per/' >"$work/tokens.jsonl"
page "one run" "$work/tokens.jsonl"
shows 0 'What differs'
shows 1 '<summary>What the run was started with</summary>'
shows 4 '<figcaption>'
shows 0 '<h2>Workers</h2>'
run 1 '' '' >"$work/none.jsonl"
page "no steps" "$work/none.jsonl"
shows 0 '<figcaption>'
{
    cat "$work/tokens.jsonl"
    run 1 '' '' | sed 's/"first_step":1/"first_step":2,"nodes":3/'
    step 2 1.5
    step 3 1
} >"$work/restarted.jsonl"
page "a restarted run" "$work/restarted.jsonl"
shows 4 '^<path class="values r0 '
shows 4 '^<path class="restarts r0 c0 d0" d="M2000 2000V0">'
shows 1 'data-values="1 2 2 1.5 3 1"'
shows 0 'NaN|nan|inf'
shows 1 '<h2>Workers</h2>'
shows 1 '<tr><th scope="row">restarted</th><td>2</td><td>3</td><td>1</td><td>1</td><td>'
page "twice the same" "$work/first.jsonl" "$work/first.jsonl"
shows 1 '<p>Nothing: options, seed, version and host are the same.</p>'
# Runs of the same name in other directories are told apart.
mkdir "$work/other"
cp "$work/second.jsonl" "$work/other/first.jsonl"
page "equal names" "$work/first.jsonl" "$work/other/first.jsonl"
shows 1 '<span>first</span></label>'
shows 1 '<span>.*/other/first.jsonl</span></label>'

# Names, options and metrics from outside are text.
evil='</title></script><script>alert(1)</script><b a=\"&amp;]]>'
hostile="$work/<script>a<&'\"]]>.jsonl"
{
    run 1 ",\"host<b>\":\"$evil\"" ",\"--$evil\",\"$evil\""
    step 1 1
    test_at 1 "\"test_loss\":1,\"test_$evil\":2"
    step 2 1
} >"$hostile"
page "hostile names" "$hostile" "$work/first.jsonl"
shows 1 '<script>'
shows 0 '<b a=|<b>.*alert'
shows 1 '<span>&lt;script&gt;a&lt;&amp;.&quot;\]\]&gt;</span></label>'
shows 1 '<figcaption>test &lt;/title&gt;&lt;/script'
printf '{"event":"run","format":1,"time":1.0,"first_step":1,"config":{"x":"%s"}}\n' '\u001b[0m\u0001' >"$work/control.jsonl"
page "control characters" "$work/control.jsonl"
shows 1 '<td>\\x1b\[0m\\x01</td>'

# Many runs, and many values, which are thinned.
set --
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    sed "s/\"seed\":1/\"seed\":$i/" "$work/first.jsonl" >"$work/many $i.jsonl"
    set -- "$@" "$work/many $i.jsonl"
done
page "20 runs" "$@"
shows 20 '^<label>'
shows 1 '^<tr><th scope="row">many 20</th><td>20</td></tr>$'
{
    run 1 '' ''
    awk 'BEGIN { for (i = 1; i <= 30000; i++) printf "{\"event\":\"step\",\"step\":%d,\"time\":%d,\"loss\":%f,\"learning_rate\":0.1,\"seconds\":0.1,\"samples_per_second\":40}\n", i, i, 1 + i % 7 }'
} >"$work/long.jsonl"
page "a long run" "$work/long.jsonl"
[ "$(wc -c <"$page")" -lt 1000000 ] || fail "a long run: a page of $(wc -c <"$page") bytes"
# Huge, tiny and equal values.
for losses in '1e299 -1e299 1e-310' '5e-324 5e-324' '1e-323 5e-324' '0 0' '-3 -3' '1e299 1e299' '1e-299 1e299'; do
    {
        run 1 '' ''
        i=0
        for loss in $losses; do
            i=$((i + 1))
            step $i "$loss" | sed 's/"seconds":0.5,"samples_per_second":16/"seconds":1e299,"samples_per_second":1e299/'
        done
    } >"$work/huge.jsonl"
    for axis in step tokens time; do
        page "losses $losses over $axis" "$work/huge.jsonl" --log-scale --x $axis
        shows 0 '(d|style|data-values|data-axis)="[^"]*(nan|inf)'
        shows 0 'd="[^"]*-[0-9]'
    done
done
# Of a log that cannot be read no page is written.
{ head -n 2 "$work/first.jsonl" && echo 'half a line' && tail -n 2 "$work/first.jsonl"; } >"$work/broken.jsonl"
rm "$page"
expect "a broken line" 3 'broken.jsonl:3: not a line of a log' "$report" "$work/broken.jsonl" -o "$page"
[ ! -e "$page" ] || fail "a broken line: it leaves a page"
finish
