#!/bin/sh
# SPDX-License-Identifier: MIT
# ddpreport export --csv: a line for each step, with the values of the log.
. "${srcdir:-.}/tests/lib/cli.inc"
report=$top/ddpreport

# lines NAME LOG: it is exported as standard input says
lines() {
    label=$1
    cat >"$work/wanted"
    expect "$label" 0 '' "$report" export --csv "$2"
    cmp -s "$work/wanted" "$work/out" || { fail "$label: not what was expected"; diff "$work/wanted" "$work/out" | head -n 6; }
}
head='{"event":"run","format":1,"time":1.0,"first_step":1,"world_size":1,"config":{"model":"mlp"}}'

# Repeated steps, evaluations and checkpoints between steps, texts, values that are not known, two runs.
cat >"$work/log" <<END
$head
{"event":"step","step":2,"loss":2.125,"time":1.5,"parts":[1]}
{"event":"step","step":4,"loss":9}
{"event":"evaluation","step":4,"test_loss":9}
{"event":"checkpoint","step":2}
{"event":"run","format":1,"time":2.0,"first_step":3,"world_size":1,"config":{"model":"mlp"}}
{"event":"step","step":4,"loss":null,"note \"a\",\u001b":"x\"y","fine":true}
{"event":"evaluation","step":3,"test_loss":0.1,"samples":8}
{"event":"evaluation","step":4,"test_loss":5}
{"event":"evaluation","step":4,"test_loss":6,"loss":0.30000000000000004}
{"event":"sample","step":4,"text":"z"}
{"event":"checkpoint","step":5}
{"event":"end","status":"success"}
$head
{"event":"step","step":1,"loss":-1e-300}
END
printf '{"event":"step","step":2,"lo' >>"$work/log"
lines "records" "$work/log" <<END
ddpreport: warning: $work/log:16: this line is truncated and was ignored
run,step,loss,time,"note ""a"",\\x1b",fine,test_loss,evaluation_samples,evaluation_loss,checkpoint
1,2,2.125,1.5,,,,,,1
1,3,,,,,0.1,8,,
1,4,,,"x""y",true,6,,0.3,
1,5,,,,,,,,1
2,1,-1e-300,,,,,,,
END
echo "$head" >"$work/none"
lines "a run without steps" "$work/none" <<END
run,step,checkpoint
END

# Every number of a real log is the same.
if command -v python3 >/dev/null; then
    expect "a real log" 0 '^1,1000,5,' "$report" export --csv "$here/doc/DDP.jsonl"
    python3 - "$here/doc/DDP.jsonl" "$work/out" <<'END' || fail "a real log: other values"
import csv, json, sys
objects = [json.loads(line) for line in open(sys.argv[1])]
rows = {int(row["step"]): row for row in csv.DictReader(open(sys.argv[2]))}
compared = 0
for o in objects:
    for key, value in o.items():
        if o["event"] in ("step", "evaluation") and key not in ("event", "step"):
            name = key if o["event"] == "step" or key.startswith("test_") else "evaluation_" + key
            assert float(rows[o["step"]][name]) == value, (o["step"], name)
            compared += 1
assert compared == sum(v != "" for row in rows.values() for v in row.values()) - 2 * len(rows) == 482, compared
END
else
    not_run "a real log: python3 is not installed"
fi

expect "no format" 2 'the format is not named: ddpreport export --csv' "$report" export "$work/log"
expect "two logs" 2 '2 logs are named' "$report" export --csv "$work/log" "$work/log"
expect "no log" 2 'no log is named' "$report" export --csv
expect "a missing log" 4 'missing: cannot read' "$report" export --csv "$work/missing"
echo '{}' >"$work/other"
expect "no log of trainer" 3 'no event of a training' "$report" export --csv "$work/other"
[ -e /dev/full ] && expect "a full disk" 4 'standard output cannot be written' sh -c "'$report' export --csv '$here/doc/DDP.jsonl' 2>&1 >/dev/full"
finish
