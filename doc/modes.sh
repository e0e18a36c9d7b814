#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Draws modes.svg, the picture of README.md, from the logs beside this file. Run it in the build directory:
#   sh SOURCE/doc/modes.sh          (or: make picture)
#   sh SOURCE/doc/modes.sh train    trains first, on two cores with little else to do, and writes new logs
# DDP_PICTURE=FILE draws into another file.
set -eu
here=$(dirname "$0")
picture=${DDP_PICTURE:-$here/modes.svg}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "${1-}" = train ]; then
    options="--batch-size 64 --global-batch 256 --threads 1 --steps 1000 --log-every 20 --eval-every 250 --quiet"
    # shellcheck disable=SC2086 # options are words
    {
        ./trainer $options --log "$work/accumulation.jsonl" --save "$work/a"
        ./trainer --mode dp --replicas 2 $options --log "$work/DataParallel.jsonl" --save "$work/b"
        ./ddprun -n 2 ./trainer $options --log "$work/DDP.jsonl" --save "$work/c"
    }
    cmp "$work/a" "$work/b"
    cmp "$work/a" "$work/c"
    for log in "$work"/*.jsonl; do # without the names of this machine and its directories
        sed -e 's/"host":"[^"]*",//' -e 's/,"command":\[[^]]*\]//' "$log" >"$here/$(basename "$log")"
    done
fi

./ddpreport "$here/accumulation.jsonl" "$here/DataParallel.jsonl" "$here/DDP.jsonl" -o "$work/modes.svg"
# gnuplot repeats in each group what all have in common, and writes many empty ones.
lines='stroke="currentColor" stroke-width="1.00" stroke-linecap="butt" stroke-linejoin="miter"'
font='font-family="sans-serif" font-size="13.00"'
sed -e "s/<g fill=\"none\" \(color=\"[^\"]*\"\) $lines>/<g fill=\"none\" \1>/" -e "s/ $font//" -e 's/^[[:space:]]*//' -e "s/ *'\/>/'\/>/" \
    -e "s/<g id=\"gnuplot_canvas\"/& $lines $font/" "$work/modes.svg" |
    sed -e '/^<g fill="none" color="[^"]*">$/{' -e 'N' -e '/\n<\/g>$/d' -e '}' >"$work/small.svg"
cp "$work/small.svg" "$picture"
