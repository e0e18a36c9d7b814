#!/bin/sh
# SPDX-License-Identifier: MIT
# ddprun --bind: which CPUs workers really have, on this machine and on pretended ones.
# shellcheck disable=SC2016  # the workers' shells expand the variables
. "${srcdir:-.}/tests/lib/cli.inc"
unset CUDA_VISIBLE_DEVICES HWLOC_XMLFILE HWLOC_SYNTHETIC HWLOC_THISSYSTEM
grep -q 'define HAVE_HWLOC 1' config.h || skip "built without hwloc"
expect "hwloc" 0 '' "$ddprun" --bind core -n 1 true

mine=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
list=$(echo "$mine" | tr , '\n' | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done)
cpus=$(echo "$list" | wc -l)
echo "# this machine: CPUs $mine"
# Threads are not compared under a CPU quota, which divides them further.
usable=$("$ddprun" --dry-run --bind none -n 1 true | sed -n 's/.* on \([0-9]*\) usable.*/\1/p')
[ "$usable" = "$cpus" ] || not_run "OMP_NUM_THREADS: $usable of $cpus CPUs are usable, by a quota"
threads()
{
    if [ "$usable" = "$cpus" ]; then cat; else sed 's/ [0-9]*\(;\|$\)/\1/g'; fi
}

# What a worker sees: "RANK CPUS OMP_NUM_THREADS".
cat >"$work/worker" <<'END'
#!/bin/sh
echo "$RANK $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status) $OMP_NUM_THREADS"
END
chmod +x "$work/worker"

# workers NAME LINES COMMAND...: what the workers see, in the order of ranks.
workers()
{
    name=$1 want=$2
    shift 2
    count=$((count + 1))
    timeout 30 "$@" "$work/worker" >"$work/out" 2>"$work/err" || fail "$name: exit code $?"
    got=$(sed 's/^\[[0-9]*\]: //' "$work/out" | sort -n | threads)
    want=$(echo "$want" | threads)
    test "$got" = "$want" || { fail "$name"; printf 'want:\n%s\ngot:\n%s\n' "$want" "$got"; cat "$work/err"; }
}

# said NAME TEXT: on standard error of the last command.
said()
{
    grep -q "^ddprun: .*$2" "$work/err" || { fail "$1: does not say: $2"; cat "$work/err"; }
}

# plan NAME LINES OPTION...: what --dry-run says of each rank: "CPUS NODES THREADS", with "+N" where N workers
# share the set.
plan()
{
    name=$1 want=$2
    shift 2
    count=$((count + 1))
    timeout 30 "$ddprun" --dry-run "$@" true >"$work/out" 2>"$work/err" || fail "$name: exit code $?"
    got=$(awk '/^rank / {
        cpus = nodes = shared = ""
        for (i = 1; i <= NF; i++) {
            if ($i ~ /^CPUs?$/) cpus = $(i + 1) " "
            if ($i ~ /^nodes?$/) { nodes = $(i + 1); sub(/,$/, "", nodes); nodes = nodes " " }
            if ($i == "by") shared = "+" $(i + 1) " "
            if (sub(/^OMP_NUM_THREADS=/, "", $i)) threads = $i
        }
        print cpus nodes shared threads }' "$work/out" | paste -sd';' | threads)
    want=$(echo "$want" | threads)
    test "$got" = "$want" || { fail "$name: want $want, got $got"; cat "$work/err"; }
}

echo "# this machine"
first=$(echo "$list" | head -n 1)
half=$((cpus / 2 > 0 ? cpus / 2 : 1))
workers "not bound by default" "$(printf '%s\n' "0 $mine $half" "1 $mine $half")" "$ddprun" -n 2
workers none "0 $mine $cpus" "$ddprun" -n 1 --bind none
workers "core, one worker" "0 $mine $cpus" "$ddprun" -n 1 --bind core
workers "core, one CPU" "0 $first 1" taskset -c "$first" "$ddprun" -n 1 --bind core
workers "core, more workers than CPUs" "$(printf '%s\n' "0 $first 1" "1 $first 1")" taskset -c "$first" "$ddprun" -n 2 --bind core
said "core, more workers than CPUs" '2 workers on 1 CPU: they are not bound'
if [ "$cpus" -ge 2 ]; then
    second=$(echo "$list" | sed -n 2p)
    count=$((count + 1))
    timeout 30 "$ddprun" -n 2 --bind core --report-bindings sh -c '
        sed -n "s/^Cpus_allowed_list:[[:space:]]*/$RANK $OMP_NUM_THREADS /p" /proc/self/status' >"$work/out" 2>"$work/err" ||
        fail "core: exit code $?"
    while read -r _ rank threads set; do
        said "core" "rank $rank: CPUs* $set of NUMA node"
        size=$(echo "$set" | tr , '\n' | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done | tee -a "$work/all" | wc -l)
        test "$usable" != "$cpus" || test "$threads" = "$size" || fail "core: OMP_NUM_THREADS $threads for $set"
    done <"$work/out"
    test "$(sort -n "$work/all" | uniq)" = "$(sort -n "$work/all")" || fail "core: sets are not disjoint"
    test "$(sort -n "$work/all")" = "$(echo "$list" | sort -n)" || fail "core: sets leave CPUs out"
    workers "core, two CPUs" "$(printf '%s\n' "0 $first 1" "1 $second 1")" taskset -c "$first,$second" "$ddprun" -n 2 --bind core
    OMP_NUM_THREADS=7 workers "OMP_NUM_THREADS is the user's" "$(printf '%s\n' "0 $first 7" "1 $second 7")" \
        taskset -c "$first,$second" "$ddprun" -n 2 --bind core
    # what a worker starts is bound with it
    expect "children of workers" 0 "^${first}\$" taskset -c "$first,$second" "$ddprun" -n 2 --bind core --local-ranks-filter 0 \
        sh -c 'sh -c "sed -n \"s/^Cpus_allowed_list:[[:space:]]*//p\" /proc/self/status"'
else
    not_run "workers on cores of their own: there is one CPU"
fi

echo "# two NUMA nodes, pretended: plans"
HWLOC_SYNTHETIC='numa:2 core:4 pu:2'
export HWLOC_SYNTHETIC
plan "core 1" '0-15 0-1 16' --bind core -n 1
plan "core 2" '0-7 0 8;8-15 1 8' --bind core -n 2
plan "core 3" '0-3 0 4;4-9 0-1 6;10-15 1 6' --bind core -n 3
plan "core 8" '0-1 0 2;2-3 0 2;4-5 0 2;6-7 0 2;8-9 1 2;10-11 1 2;12-13 1 2;14-15 1 2' --bind core -n 8
plan "core 16: hardware threads" \
    "$(for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo "$i $((i / 8)) 1"; done | paste -sd';')" --bind core -n 16
plan "numa 1" '0-7 0 8' --bind numa -n 1
plan "numa 2" '0-7 0 8;8-15 1 8' --bind numa -n 2
plan "numa 4" '0-7 0 +2 4;0-7 0 +2 4;8-15 1 +2 4;8-15 1 +2 4' --bind numa -n 4
plan "as torchrun: node" '0-7 0 8;8-15 1 8' --numa-binding node -n 2
plan "as torchrun: exclusive" '0-3 0 4;4-7 0 4;8-11 1 4;12-15 1 4' --numa-binding=exclusive -n 4
PET_NUMA_BINDING=node plan "as torchrun: PET_" '0-7 0 8;8-15 1 8' -n 2
expect "core 17" 0 'warning: --bind core: 17 workers on 16 CPUs: they are not bound' "$ddprun" --dry-run --bind core -n 17 true
expect "gpu without GPUs" 125 'error: --bind gpu: .* 0 GPUs for 2 workers' "$ddprun" --bind gpu -n 2 true
expect "bad word" 2 'bind cores: must be auto, none, core, numa, socket, l3 or gpu' "$ddprun" --bind cores true
expect "torchrun's other words" 2 'must be node, socket, exclusive or core-complex' "$ddprun" --numa-binding core true
expect "no L3 caches" 125 'this machine shows no L3 caches' "$ddprun" --numa-binding core-complex true
HWLOC_SYNTHETIC='package:2 numa:2 l3:2 core:2 pu:1'
plan "as torchrun: socket" '0-7 0-1 8;8-15 2-3 8' --numa-binding socket -n 2
plan "sockets are shared" '0-7 0-1 +2 4;0-7 0-1 +2 4;8-15 2-3 8' --bind socket -n 3
plan "as torchrun: core-complex" '0-1 0 2;4-5 1 2;8-9 2 2;12-13 3 2' --numa-binding core-complex -n 4
plan "l3" "$(for i in 0 1 2 3 4 5 6 7; do echo "$((2 * i))-$((2 * i + 1)) $((i / 2)) 2"; done | paste -sd';')" --bind l3 -n 8
HWLOC_SYNTHETIC='numa:2 core:4 pu:2'
expect "CPUs that are not there" 0 'warning: rank [01] cannot be bound to CPUs [0-9-]* of NUMA node [12]0: .*; it runs unbound' \
    env HWLOC_SYNTHETIC='numa:2(indexes=10,20) core:1 pu:2(indexes=4000,4001,4002,4003)' "$ddprun" -n 2 --bind numa true
HWLOC_SYNTHETIC='numa:1 core:1 pu:2' plan "one core, two threads" '0 0 1;1 0 1' --bind core -n 2
unset HWLOC_SYNTHETIC

# machine CORES: two packages of so many cores, each a NUMA node with two GPUs.
machine()
{
    cores=$1
    mask() { printf '0x%08x' "$1"; }
    sets() { echo "cpuset=\"$(mask "$1")\" complete_cpuset=\"$(mask "$1")\" nodeset=\"$(mask "$2")\" complete_nodeset=\"$(mask "$2")\""; }
    all=$(((1 << (2 * cores)) - 1))
    echo '<?xml version="1.0" encoding="UTF-8"?>'
    echo '<!DOCTYPE topology SYSTEM "hwloc2.dtd">'
    echo '<topology version="2.0">'
    echo "<object type=\"Machine\" os_index=\"0\" $(sets $all 3) allowed_cpuset=\"$(mask $all)\" allowed_nodeset=\"$(mask 3)\" gp_index=\"1\">"
    for package in 0 1; do
        own=$((((1 << cores) - 1) << (package * cores)))
        echo "<object type=\"Package\" os_index=\"$package\" $(sets $own $((1 << package))) gp_index=\"$((package + 10))\">"
        echo "<object type=\"NUMANode\" os_index=\"$package\" $(sets $own $((1 << package))) gp_index=\"$((package + 20))\"/>"
        core=$((package * cores))
        while [ $core -lt $(((package + 1) * cores)) ]; do
            echo "<object type=\"Core\" os_index=\"$core\" $(sets $((1 << core)) $((1 << package))) gp_index=\"$((core + 100))\">"
            echo "<object type=\"PU\" os_index=\"$core\" $(sets $((1 << core)) $((1 << package))) gp_index=\"$((core + 200))\"/></object>"
            core=$((core + 1))
        done
        echo "<object type=\"Bridge\" gp_index=\"$((package + 30))\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[${package}0-${package}f]\">"
        for gpu in 1 2; do
            echo "<object type=\"PCIDev\" gp_index=\"$((package * 2 + gpu + 40))\" pci_busid=\"0000:$package$gpu:00.0\"" \
                'pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="0.000000"/>'
        done
        echo '</object></object>'
    done
    echo '</object></topology>'
}
machine 4 >"$work/machine.xml"
mkdir "$work/nvml"
ln -s "$top/.libs/libfake_nvml.so" "$work/nvml/libnvidia-ml.so.1"
export HWLOC_XMLFILE="$work/machine.xml" LD_LIBRARY_PATH="$work/nvml" FAKE_GPUS=4
export FAKE_GPUS_PCI='00000000:01:00.0 00000000:02:00.0 00000000:11:00.0 00000000:12:00.0'

echo "# two NUMA nodes with two GPUs each, pretended: plans"
plan "gpu 4" '0-1 0 2;2-3 0 2;4-5 1 2;6-7 1 2' --bind gpu
plan "gpu 4: nproc given" '0-1 0 2;2-3 0 2;4-5 1 2;6-7 1 2' --bind gpu -n 4
plan "auto: nodes near the GPUs" '0-3 0 +2 2;0-3 0 +2 2;4-7 1 +2 2;4-7 1 +2 2'
grep -q '^rank 2: GPU 2, CPUs 4-7 of NUMA node 1, near GPU 00000000:11:00.0, shared by 2 workers' "$work/out" ||
    fail "--dry-run: $(cat "$work/out")"
export CUDA_VISIBLE_DEVICES=3,0
plan "gpu, other order" '4-7 1 4;0-3 0 4' --bind gpu
plan "core, other order" '4-7 1 4;0-3 0 4' --bind core
plan "numa, other order" '4-7 1 4;0-3 0 4' --bind numa
plan "auto, other order" '4-7 1 4;0-3 0 4'
plan "auto with --nproc" '4-7 1 4;0-3 0 4' -n 2
plan "auto: one worker for two GPUs" "$cpus" -n 1
CUDA_VISIBLE_DEVICES=0,3,1,2 plan "auto: two workers for four GPUs" "$half;$half" -n 2
CUDA_VISIBLE_DEVICES=GPU-cc,GPU-aa-0 plan "gpu by UUID" '4-7 1 4;0-3 0 4' --bind gpu
CUDA_VISIBLE_DEVICES=2,3 plan "gpu, one node" '4-5 1 2;6-7 1 2' --bind gpu
CUDA_VISIBLE_DEVICES=2,3,1 plan "gpu, uneven" '4-5 1 2;6-7 1 2;0-3 0 4' --bind gpu
plan "core, more workers than GPUs" '0-1 0 2;2-4 0-1 3;5-7 1 3' --bind core -n 3
expect "gpu, more workers than GPUs" 125 '2 GPUs for 3 workers' "$ddprun" --bind gpu -n 3 true
FAKE_GPUS_PCI='00000000:77:00.0' expect "gpu that hwloc does not know" 125 'the GPU of each worker is not known' "$ddprun" --bind gpu -n 2 true
machine 1 >"$work/small.xml"
export HWLOC_XMLFILE="$work/small.xml"
CUDA_VISIBLE_DEVICES=0,1,2 plan "gpu, fewer cores than workers" '0 0 +2 1;0 0 +2 1;1 1 1' --bind gpu

if [ "$first" = 0 ] && [ "$cpus" -ge 2 ] && [ "$second" = 1 ]; then
    echo "# the same for real: CPUs 0 and 1 as two nodes"
    workers "gpu" "$(printf '%s\n' '0 1 1' '1 0 1')" "$ddprun" --bind gpu
    workers "auto" "$(printf '%s\n' '0 1 1' '1 0 1')" "$ddprun"
    workers "numa" "$(printf '%s\n' '0 1 1' '1 0 1')" "$ddprun" --bind numa
    HWLOC_THISSYSTEM=1 workers "gpu, within taskset" "$(printf '%s\n' '0 1 1' '1 1 1')" taskset -c 1 "$ddprun" --bind numa
    unset HWLOC_XMLFILE
    export HWLOC_SYNTHETIC='numa:2 core:1 pu:1'
    workers "numa 3" "$(printf '%s\n' '0 0 1' '1 0 1' '2 1 1')" env CUDA_VISIBLE_DEVICES= "$ddprun" --bind numa -n 3
    workers "after a restart" "$(printf '%s\n' '0 0 1' '1 1 1')" env CUDA_VISIBLE_DEVICES= "$ddprun" --bind core -n 2 \
        --max-restarts 1 sh -c 'test $TORCHELASTIC_RESTART_COUNT = 1 && exec "$0"; exit 3'
else
    not_run "workers bound to pretended nodes: CPUs 0 and 1 are not here"
fi
finish
