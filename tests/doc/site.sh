#!/bin/sh
# SPDX-License-Identifier: MIT
# The site: whole, of what is in the tree, without a link that leads nowhere or outside, and with a search that finds.
. "${srcdir:-.}/tests/lib/cli.inc"
for tool in cmark-gfm mandoc python3; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done
site=$work/site
expect "the site" 0 '' python3 "$here/doc/site.py" "$site" "$top/ddpreport"
expect "links" 0 '^[0-9]{4,} links lead somewhere' python3 "$here/tests/doc/links.py" "$site"

# A page or a figure that is missing, a part that is not there, and a page of elsewhere are found.
cp -r "$site" "$work/broken"
sed -i 's/href="trainer.1.html">/href="trainer.2.html">/' "$work/broken/01-first-run.html"
expect "a page that is missing" 1 '01-first-run.html: trainer.2.html' python3 "$here/tests/doc/links.py" "$work/broken"
sed -i 's/"index.html#install"/"index.html#instal"/; s/trainer.2.html/trainer.1.html/' "$work/broken/01-first-run.html"
expect "a part that is missing" 1 '01-first-run.html: index.html#instal$' python3 "$here/tests/doc/links.py" "$work/broken"
sed -i 's/#instal"/#install"/; s,src="site.js",src="https://example.org/site.js",' "$work/broken/01-first-run.html"
expect "something from elsewhere" 1 '01-first-run.html: https://example.org/site.js' python3 "$here/tests/doc/links.py" "$work/broken"

# Every page of the tutorial ends with what to try, and every one but the last leads on.
for page in "$site"/[01][0-9]-*.html; do
    count=$((count + 1))
    grep -q '<h2 id="try">Try</h2>' "$page" || fail "$page: nothing to try"
    case $page in
    */10-*) ;;
    *) grep -q '<a rel="next"' "$page" || fail "$page: no next page" ;;
    esac
done

# Search works from a file, in a browser.
mkdir "$work/home"
# shown ADDRESS: the page as the browser has it when its scripts have run
shown() {
    env HOME="$work/home" timeout $((60 * patience)) chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=5000 \
        --user-data-dir="$work/home/profile" --dump-dom "$1" 2>/dev/null
}
if shown about:blank | grep -q '<body>'; then
    searches() {
        count=$((count + 1))
        shown "file://$site/index.html?q=$1" >"$work/shown"
        grep -qF "$2" "$work/shown" || fail "search for $1: $(grep -o '<div id="found".\{0,100\}' "$work/shown")"
    }
    searches warmup-steps '<div id="found"><a href="trainer.1.html#warmup-steps">'
    searches 'ddp_job_open' '<div id="found"><a href="ddp_job.3.html#NAME">'
    searches 'nothinghasthis' '<div id="found">Nothing has all these words'
else
    not_run "search: there is no chromium that runs"
fi
finish
