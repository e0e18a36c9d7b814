# SPDX-License-Identifier: MIT
"""Checks a Chrome trace: its syntax, that the spans of each thread nest, that what overlaps begins and ends, and that
each rank has the spans it should have.

usage: trace_check.py FILE RANKS STEPS [NAME ...]   (of a run that was killed: STEPS is 0)
"""
import collections
import json
import sys

path, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names = sys.argv[4:]
text = open(path).read()
events = json.loads(text)

tracks = collections.defaultdict(list)
open_spans = {}
count = collections.Counter()
labels = set()
for event in events:
    phase, place = event["ph"], (event["pid"], event["tid"])
    if phase == "M":
        labels.add((event["name"], event["pid"], event["tid"]))
        continue
    assert event["ts"] > 0
    count[event["name"], event["pid"]] += phase in "Xb"
    if phase == "X":
        # in whole nanoseconds: sums of decimal fractions are not exact
        begin = round(event["ts"] * 1000)
        tracks[place].append((begin, -round(event["dur"] * 1000), event["name"]))
    elif phase == "b":
        open_spans[event["pid"], event["cat"], event["id2"]["local"]] = event["ts"]
    else:
        assert phase == "e", event
        assert open_spans.pop((event["pid"], event["cat"], event["id2"]["local"])) <= event["ts"]
assert steps == 0 or not open_spans, open_spans
for place, spans in tracks.items():
    assert ("thread_name",) + place in labels, place
    stack = []
    for begin, minus, name in sorted(spans):
        while stack and stack[-1][0] <= begin:
            stack.pop()
        # Clock readings are rounded to the thousandth of a microsecond where they are printed.
        assert not stack or begin - minus <= stack[-1][0] + 1, (place, name, begin, stack)
        stack.append((begin - minus, name))
for rank in range(ranks):
    assert ("process_name", rank, 0) in labels, labels
    assert steps == 0 or count["step", rank] == steps, count
    for name in names:
        assert count[name, rank] > 0, (name, rank, count)
assert {place[0] for place in tracks} == set(range(ranks))
print(f"{sum(count.values())} spans of {ranks} processes are in order")
