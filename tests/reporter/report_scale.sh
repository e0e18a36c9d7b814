#!/bin/sh
# SPDX-License-Identifier: MIT
# ddpreport scale: forecasts against figures worked out by hand, the fit, the check, bad input.
. "${srcdir:-.}/tests/lib/cli.inc"
report=$top/ddpreport

# run_of NAME NODES WORKERS SECONDS [OPTION]: a log of a model of 250 million parameters, 1 GB of gradients.
run_of() {
    {
        printf '{"event":"run","format":1,"time":1.0,"first_step":1,"world_size":%d,"nodes":%d,"replicas":1,"config":' $(($2 * $3)) "$2"
        printf '{"model":"gpt2","parameters":250000000,"data":"t","mode":"ddp","device":"cpu","batch_size":4,"shards":%d,' $(($2 * $3))
        printf '"global_batch":16,"total_steps":3,"flops_of_step":9.89e12,"seed":0},"memory_bytes":{"weights":%d,' $((1000000000 / $3))
        printf '"gradients":1000000000,"optimizer":%d,"activations":500000000},"command":["trainer"%s]}\n' $((2000000000 / $3)) "${5-}"
        for step in 1 2 3; do
            printf '{"event":"step","step":%d,"time":2.0,"loss":1.0,"learning_rate":0.1,"seconds":%s,"tokens_per_second":9.0,"waiting_for_data":0.0}\n' $step "$4"
        done
    } >"$work/$1.jsonl"
}
run_of one 1 4 3.0
scale="$report scale $work/one.jsonl --latency 0"
# Two machines: 500 MB each way at 10 Gbit/s x 1448/1514 are 418.2 ms, of which 2 s of backward hide the way there.
expect "two machines" 0 '^2 x 4 .* 3000 ms 100 % arithmetic +3418 ms 87.8 % wire +3418 ms 87.8 % wire +3000 ms 100 % ' $scale --nodes 2 --rate 10
# At 1 Gbit/s 4182 ms each way: DDP 3 + 8.364 - 2, zero 1 3 + (4.182 - 2) + 4.182, zero 3 3 x 4.182; local steps 3 + 4 x 4.182 / 16.
expect "a slow link" 0 '^2 x 4 +24000 ms 12.5 % arithmetic +9365 ms 32 % wire +9365 ms .*12547 ms 23.9 % wire .* 4046 ms 74.2 % wire ' $scale --nodes 2 --rate 1
# Messages: 2 of at most 1 MiB for each owner's 125 MB take 2 x 120 x 10 ms.
expect "messages" 0 '^2 x 4 .* 4618 ms 65 % wire ' "$report" scale "$work/one.jsonl" --latency 10000 --nodes 2 --rate 10
# A pipeline of 2 stages with a shard a worker: half of its step again.
expect "a bubble" 0 '^2 x 4 .* 4500 ms 66.7 % bubble ' $scale --nodes 2 --stages 2
# Memory of a machine: 1 + 2 GB in one copy, 4 x (1 + 0.5); of two with zero 1 2 GB of state in two parts; zero 2, 3: 0.5 GB parts.
expect "memory of one" 0 '^1 x 4 +4.5 GB +18.0 GB +9.0 GB +6.0 GB +6.0 GB +9.0 GB +18.0 GB$' $scale --nodes 1
expect "memory of two" 0 '^2 x 4 +4.5 GB +18.0 GB +8.0 GB +4.5 GB +4.0 GB +5.5 GB +18.0 GB$' $scale --nodes 2 --stages 2
expect "what fits" 0 '^2 x 4 .* memory .* zero 3$' $scale --nodes 2 --memory 5
expect "what does not fit" 0 '^2 x 4 .* none fits$' $scale --nodes 2 --memory 3
# GPUs: 9.89e12 operations of 4 workers at 40 % of 989e12 a second.
expect "a GPU" 0 "worker's step without other machines: 6.250 ms" $scale --gpu h100
expect "its memory" 0 '^2 x 8 +4.5 GB +4.5 GB +2.6 GB +1.7 GB +750 MB +2.5 GB +4.5 GB$' $scale --gpu h100 --nodes 2 --node-workers 8 --stages 2

# A worker has 4 samples, a machine of 4 workers 16.
expect "no noise" 0 'local steps' $scale
grep -q 'noise scale' "$work/out" && fail "no noise: it is named"
sed 's/"waiting_for_data":0.0/&,"gradient_noise_scale":40/; $s/_scale":40/_scale":200/' "$work/one.jsonl" >"$work/noisy.jsonl"
expect "the noise" 0 "gradient's noise scale is 200 samples at the end of noisy: a global batch" "$report" scale "$work/noisy.jsonl"
grep -q '^as 12.5 machines have' "$work/out" || fail "the noise: $(grep -A3 noise "$work/out")"
expect "the noise on larger machines" 0 '^as 6.25 machines have' "$report" scale "$work/noisy.jsonl" --node-workers 8

# One run on two machines is fitted, and one on four is checked: half of what is hidden is lost, then bytes cost 1 ns a worker.
run_of two 2 4 10.364626
expect "a fit of the wire" 0 'Fitted: 33 % of a step hides what is sent, and a byte costs a worker 0 ns' $scale "$work/two.jsonl" --rate 1 --nodes 4
run_of two 2 4 4.086463
run_of four 4 4 4.629695
expect "a fit" 0 'Fitted: 0 % of a step hides what is sent, and a byte costs a worker 1 ns' $scale "$work/four.jsonl" "$work/two.jsonl" --nodes 4
grep -qE '^two +2 x 4 +4086 +4086 +[+-]0 % +fitted$' "$work/out" || fail "a fit: not of the run on two machines"
grep -qE '^four +4 x 4 +4630 +4630 +[+-]0 % +checked$' "$work/out" || fail "a fit: the run on four is not checked"

# A plan has no times: 1.25e12 operations on a GPU with 40 % of 989e12 a second.
"$trainer" --model gpt2 --size d4 --shape 64 --vocab-size 256 --batch-size 2 --global-batch 8 --plan >"$work/plan" || fail "a plan"
gflop=$(sed -n 's/^compute  \([0-9.]*\) GFLOP a step.*/\1/p' "$work/plan")
expect "a plan" 0 "worker's step without other machines: $(awk "BEGIN { printf \"%.4f\", $gflop / 0.4 / 989e3 * 1e3 }") ms" \
    "$report" scale "$work/plan" --gpu h100
grep -q '^gpt2, [0-9]* parameters' "$work/out" || fail "a plan: $(head -1 "$work/out")"
expect "memory of a plan" 0 '^1 x 1 +61.0 MB ' "$report" scale "$work/plan" --gpu h100 --nodes 1
expect "a plan without a GPU" 2 'plan is a plan, in which nothing was measured: name it alone, with the --gpu' "$report" scale "$work/plan"
expect "a plan and a log" 2 'is a plan, .* or name logs' "$report" scale "$work/plan" "$work/one.jsonl" --gpu h100
sed 's/^compute.*//' "$work/plan" >"$work/cut"
expect "a plan that is cut" 3 'cut: a plan without its workers, batch or compute' "$report" scale "$work/cut" --gpu h100

# The picture.
if command -v gnuplot >/dev/null; then
    expect "a picture" 0 '' $scale -o "$work/a.svg"
    for name in 'zero 3' pipeline 'local steps' machines; do
        grep -q ">.*$name" "$work/a.svg" || fail "a picture: no $name"
    done
else
    not_run "the picture: no gnuplot"
fi

# A log of zero 3 is checked as that: three times 4.182 s at 1 Gbit/s, beside one of zero 1, which fits the model.
run_of near 2 4 9.365
run_of thin 2 4 12.547 ',"--zero","3"'
expect "a log of zero 3" 0 '^thin +2 x 4 +12547 +1254[78] +[+-]0 % +checked$' $scale "$work/near.jsonl" "$work/thin.jsonl" --rate 1

run_of pipe 2 2 1.0 ',"--sync-every","4"'
run_of other 2 2 1.0
sed -i 's/250000000/250000001/' "$work/other.jsonl"
expect "several machines alone" 2 'scale: no run was on one machine: also name' "$report" scale "$work/two.jsonl"
expect "another model" 2 'scale: one and other are not of one model' $scale "$work/other.jsonl"
expect "local steps" 2 'scale: pipe is not accumulation or DDP without local steps' $scale "$work/pipe.jsonl"
head -1 "$work/one.jsonl" >"$work/none.jsonl"
expect "no steps" 2 'scale: none has no times of steps' "$report" scale "$work/none.jsonl"
expect "no log" 2 'no log is named' "$report" scale
expect "a page" 2 'the name must end in .svg or .png' $scale -o "$work/a.html"
expect "a GPU that nobody knows" 2 '--gpu h9' $scale --gpu h9
expect "falling numbers" 2 'must be rising numbers of machines' $scale --nodes 4,2
finish
