#!/bin/sh
# SPDX-License-Identifier: MIT
# What nvcc made of the kernels, executed by tests/ptxsim: unit tests of CUDA and trainings on it. Any report of the
# interpreter ends a process, and so fails its test. For `make check-ptx`, which builds the plugin.
# usage: check_ptx.sh [PART ...]    in the build directory, with srcdir in the environment. Each part leaves what the kernels did
# in tests/ptxsim/PART.calls. The last, coverage, reads them all: every kernel ran, or stands in not_run; and in its largest
# launch it makes memory move no more than tests/cuda/gpu_traffic says, which `check_ptx.sh table` writes anew, as it does
# fused.nvccN: every fma.rn, by its line of the source. And barriers: whether each barrier is missed (DDP_PTXSIM_BARRIERS, see
# barriers.c).
. "${srcdir:-.}/tests/lib/cli.inc"
[ -e "$top/tests/ptxsim/.libs/libddp-cuda.so" ] || skip "the plugin is not built from PTX: make check-ptx, with CUDA's compiler"
export DDP_TEST_PLUGINS="$top/tests/ptxsim/.libs" DDP_CUDNN=0
. "$here/tests/cuda/cuda.inc"
gpus 4
make_data
export CK_TIMEOUT_MULTIPLIER=100 srcdir="$here" abs_top_builddir="$top"
patience=60
parts="check_cuda_kernels check_cuda_products check_cuda_stage check_cuda_graph check_comm_nccl check_comm_nccl_nodes
    check_comm_nccl_order check_comm_nccl_memory cuda_pipeline fragments trainings"
calls=$top/tests/ptxsim
table=$here/tests/cuda/gpu_traffic
nvcc=$(sed -n 's/^NVCC = //p' "$top/Makefile")
fused=$here/tests/ptxsim/fused.nvcc$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')

# "FILE:LINE" of our kernels becomes the text of that line, behind the one before where it is a barrier alone: it stays what it
# is when lines are added above.
name_lines() {
    awk -v sources="$(echo "$here"/kernels/*.cu "$here"/kernels/*/*.cu "$here"/kernels/*/*.h)" '
        BEGIN { split(sources, all, " "); for (i in all) { name = all[i]; sub(/.*\//, "", name); path[name] = all[i] } }
        {
            rest = $0; out = ""
            while (match(rest, /[a-z0-9_]+\.[a-z]+:[0-9]+/)) {
                split(substr(rest, RSTART, RLENGTH), part, ":")
                text = before = ""
                for (n = 0; part[1] in path && n < part[2]; n++) { before = text; if ((getline text <path[part[1]]) <= 0) break }
                close(path[part[1]])
                if (text ~ /^ *__sync/) { sub(/^ */, "", text); text = before " " text }
                sub(/^ */, "", text)
                out = out substr(rest, 1, RSTART - 1) part[1] (text == "" ? "" : ": " text)
                rest = substr(rest, RSTART + RLENGTH)
            }
            print out rest
        }'
}

# Each barrier and each wait for copies of a step of GPT-2, of a ResNet, and of losses that they do not have, is left out in turn.
# That is reported, or it stands in the list, with its kernel and the types of that.
barriers() {
    export DDP_PTXSIM_BARRIERS="$work/barriers"
    for dtype in fp32 bf16 fp16,scale=1024; do
        expect "gpt2 $dtype" 0 '' "$trainer" --device cuda --batch-size 1 --global-batch 2 --steps 1 --seed 3 --no-eval --quiet \
            --model gpt2 --data "$work/text" --seq-len 200 --layers 1 --heads 2 --channels 64 --optimizer adamw \
            --clip-grad-norm 0.5 --dtype $dtype
    done
    expect "resnet" 0 '' "$trainer" --device cuda --batch-size 2 --global-batch 2 --steps 1 --seed 3 --no-eval --quiet --model resnet \
        --size 20 --data "$work/images"
    expect "losses" 0 '^100%' env CK_FORK=no CK_RUN_CASE=entropy "$top/check_cuda_kernels"
    awk -F '\t' '{ place[$2 " " $3 ", in " $4] } $1 == "found" { found[$2 " " $3 ", in " $4] }
        END { for (p in place) if (!(p in found)) print p }' "$work/barriers" |
        c++filt -p | sed 's/, \(true\|false\|[0-9]*\)\>//g; s/<[0-9]*, /</' | name_lines | LC_ALL=C sort -u >"$work/missed"
    sed -n 's/  # .*//p' "$here/tests/ptxsim/redundant" | LC_ALL=C sort >"$work/listed"
    count=$((count + 1))
    [ -s "$work/barriers" ] || fail "no kernel has a barrier"
    diff "$work/listed" "$work/missed" || fail "these barriers are missed by nobody (>), or found to be needed (<): see tests/ptxsim/redundant"
}

# Beside NVIDIA's own tables. CUTLASS is the folder of their headers: PyPI's nvidia-cutlass has them.
fragments() {
    if [ -z "${CUTLASS:-}" ]; then
        echo "fragments are not compared with NVIDIA's tables: CUTLASS does not name its headers"
        return
    fi
    cuda=$(dirname "$(dirname "$nvcc")")/include
    expect "fragments are compiled" 0 '' ${CC:-cc} -I"$top" -I"$here" -c -o "$work/fragments.o" "$here/tests/ptxsim/fragments.c"
    expect "layouts are compiled" 0 '' ${CXX:-c++} -std=c++17 -w -isystem "$CUTLASS" -isystem "$cuda" -isystem "$cuda/cccl" -I"$top" \
        -I"$here" -o "$work/layouts" "$here/tests/ptxsim/layouts.cc" "$work/fragments.o"
    expect "layouts" 0 ', 0 differ' "$work/layouts"
}

# Every fma.rn of the PTX: "COUNT FILE: LINE", where LINE is the text that nvcc says it comes from.
fused_lines() {
    LC_ALL=C grep -aE '^[[:space:]]*\.(version|file|loc)[[:space:]]|fma\.rn' "$calls/.libs/libddp-cuda.so" | LC_ALL=C awk '
        function add(    at, part) { # the names of the files stand behind the code
            for (at in here) { split(at, part, " "); count[file[part[1]] "\t" part[2]] += here[at] }
            split("", here)
        }
        $1 == ".version" { add() }
        $1 == ".file" { match($0, /".*"/); file[$2] = substr($0, RSTART + 1, RLENGTH - 2) }
        $1 == ".loc" { at = $2 " " $3 + 0 }
        /fma\.rn/ { here[at]++ }
        END {
            add()
            for (place in count) {
                split(place, part, "\t")
                for (line = 0; line < part[2] && (getline text <part[1]) > 0; line++) continue
                close(part[1])
                sub(/^ */, "", text); sub(/.*\//, "", part[1])
                print count[place], part[1] ": " text
            }
        }' | LC_ALL=C sort -k 2
}

# With -fmad=false nvcc makes none of a product and a sum: those that there are stand in the source, or are a function of libm.
fused() {
    count=$((count + 1))
    fused_lines >"$work/fused"
    [ -s "$work/fused" ] || fail "no kernel has an fma.rn"
    if ! grep -aq '^\.target sm_80' "$calls/.libs/libddp-cuda.so"; then
        not_run "fused: the PTX is not for sm_80"
    elif [ ! -e "$fused" ]; then
        not_run "fused: there is no ${fused##*/}: check_ptx.sh table writes it"
    else
        diff "$fused" "$work/fused" || fail "nvcc made other fma.rn (>) than ${fused##*/} has (<)"
    fi
}

# The same bits however the shards are shared out. Beside the kernels as C++ on the host: near, as nvcc has an exponential
# function of its own.
# model NAME BOUND OPTIONS...
model() {
    model=$1 bound=$2
    shift 2
    set -- --device cuda --batch-size 1 --global-batch 4 --steps 2 --seed 3 --no-eval --quiet "$@"
    first=
    same "$model: 1 worker" "$trainer" "$@"
    same "$model: not recorded" env DDP_CUDA_GRAPHS=0 "$trainer" "$@"
    same "$model: 2 workers" "$ddprun" -n 2 $share trainer "$@" --bucket-mb 0.02 --zero 1 --recompute
    same "$model: 4 workers" "$ddprun" -n 4 $share trainer "$@"
    replicas 2
    same "$model: dp" "$trainer" $dp "$@"
    count=$((count + 1))
    env DDP_PLUGIN_PATH="$top/tests/cudasim/.libs" "$trainer" "$@" --save "$work/f" >"$work/out" 2>&1 ||
        fail "$model, as C++: $(cat "$work/out")"
    weights_near "$work/f" "$work/first" "$bound" || fail "$model: not near what the kernels give as C++"
}

trainings() {
    gpt2="--model gpt2 --data $work/text --seq-len 8 --layers 2 --heads 2 --channels 16 --lr 1e-3"
    llama="--model llama --size d2 --data $work/text --seq-len 8 --optimizer adamw --lr 1e-3"
    images="--data $work/images --batch-size 2 --global-batch 8 --lr 1e-3"
    model "mlp fp32" 1e-7 --data "$work/images" --hidden 33,17 --momentum 0.9,nesterov --weight-decay 1e-2
    model "gpt2 fp32" 1e-4 $gpt2 --dropout 0.1
    model "gpt2 bf16" 1e-2 $gpt2 --dropout 0.1 --dtype bf16 --optimizer adamw --clip-grad-norm 0.5
    model "gpt2 fp16" 1e-3 $gpt2 --dropout 0.1 --dtype fp16,scale=1024
    model "llama fp32" 1e-4 $llama
    model "llama bf16, LoRA" 1e-2 $llama --dtype bf16 --lora r=4,targets=all-linear,dropout=0.1
    model "cnn fp32" 1e-7 --model cnn $images
    model "cnn bf16" 0 --model cnn $images --dtype bf16
    model "resnet fp32" 1e-3 --model resnet --size 20 $images --steps 1
    model "resnet bf16" 1e-2 --model resnet --size 20 $images --steps 1 --dtype bf16
}

# Coverage: a kernel is a line of the log, "has" once it is there, "ran" once it is launched.
coverage() {
    count=$((count + 1))
    logs=
    for needed in $parts; do
        logs="$logs $calls/$needed.calls"
        [ -e "$calls/$needed.calls" ] || fail "$needed did not run: this reads what all parts leave"
    done
    sort -u $logs >"$work/log"
    sed -n 's/^has //p' "$work/log" >"$work/has"
    sed -n 's/^ran //p' "$work/log" >"$work/ran"
    sed 's/: .*//' "$here/tests/ptxsim/not_run" | sort >"$work/listed"
    comm -23 "$work/has" "$work/ran" >"$work/not_run"
    echo "$(wc -l <"$work/ran") of $(wc -l <"$work/has") kernels ran"
    [ -s "$work/has" ] || fail "no kernel is known"
    comm -23 "$work/not_run" "$work/listed" >"$work/unlisted"
    comm -13 "$work/not_run" "$work/listed" >"$work/surplus"
    [ ! -s "$work/unlisted" ] || fail "these never ran and do not stand in tests/ptxsim/not_run:
$(c++filt <"$work/unlisted" | paste -d ' ' "$work/unlisted" -)"
    [ ! -s "$work/surplus" ] || echo "these stand in tests/ptxsim/not_run, but ran or are not there: $(cat "$work/surplus")"
}

# The largest launch of each kernel, in every process, for either memory: "GLOBAL SHARED FILE KERNEL", each how often the least
# that it could be, rounded up; and in $work/worst, behind tabs, the instructions with the most above the least.
largest() {
    sed -n 's/^moved //p' "$work/log" | c++filt -p | awk -v worst="$work/worst" '
        { # "SPACE MOVES LEAST FILE KERNEL<with, arguments> sectors|rounds ..."
            space = $1; moves = $2; least = $3
            sub(/^[^ ]+ [^ ]+ [^ ]+ /, "")
            match($0, / (sectors|rounds) /)
            key = substr($0, 1, RSTART - 1); place = substr($0, RSTART + 1)
            keys[key]
            if (least > most[space, key] || (least == most[space, key] && moves > moved[space, key])) {
                most[space, key] = least; moved[space, key] = moves; at[space, key] = place
            }
        }
        function times(space, key,    hundredths) {
            if (!((space, key) in most)) return "-"
            hundredths = moved[space, key] * 100 / most[space, key]
            if (hundredths > int(hundredths)) hundredths = int(hundredths) + 1
            return sprintf("%.2f", hundredths / 100)
        }
        END { for (key in keys) {
            print times(0, key), times(1, key), key
            print key "\t" at[0, key] "\t" at[1, key] >worst
        } }' | LC_ALL=C sort -k 3
}

# The traffic of memory against the table, whose lines are those and, above 1.10, "  # " and why.
traffic() {
    largest >"$work/table"
    count=$((count + $(wc -l <"$work/table")))
    awk -F '\t' -v table="$table" -v worst="$work/worst" '
        { text = $0; reason = ""; place = index(text, "  # ")
          if (place) { reason = substr(text, place + 4); text = substr(text, 1, place - 1) }
          split(text, part, " "); key = text; sub(/^[^ ]+ [^ ]+ /, "", key) }
        FILENAME == worst { at[$1] = "global: " $2 "; shared: " $3; next }
        FILENAME == table { global[key] = part[1]; shared[key] = part[2]
            if ((part[1] > 1.1 || part[2] > 1.1) && !reason) print "the table has no reason:", text
            next }
        { seen[key] }
        !(key in global) { print "there is no line for it in the table:", text; next }
        part[1] + 0 > global[key] + 0 || part[2] + 0 > shared[key] + 0 {
            print "memory moves", part[1], "and", part[2], "times the least, and the table has", global[key], "and", shared[key] ":", key " (" at[key] ")" }
        END { for (key in global) if (!(key in seen)) print "in the table, but it did not run:", key }' \
        "$work/worst" "$table" "$work/table" >"$work/wrong"
    while read -r line; do
        fail "$line"
    done <"$work/wrong"
}

# Reasons stay with their kernels.
write_table() {
    largest >"$work/table"
    touch "$table"
    awk -v table="$table" '{ text = $0; place = index(text, "  # "); if (place) text = substr(text, 1, place - 1)
          key = text; sub(/^[^ ]+ [^ ]+ /, "", key) }
        FILENAME == table { if (place) reason[key] = substr($0, place); next }
        { print $0 ($1 > 1.1 || $2 > 1.1 ? reason[key] : "") }' "$table" "$work/table" >"$work/new" && cp "$work/new" "$table"
}

[ $# -gt 0 ] || set -- fused $parts coverage barriers
for part in "$@"; do
    begun=$(date +%s)
    case " $(echo $parts) " in
    *" $part "*) export DDP_PTXSIM_LOG="$calls/$part.calls" && : >"$DDP_PTXSIM_LOG" ;;
    *) unset DDP_PTXSIM_LOG ;;
    esac
    case $part in
    check_*) expect "$part" 0 '^100%' "$top/$part" ;;
    cuda_*) expect "$part" 0 ' 0 failed' sh "$here/tests/cuda/$part.sh" ;;
    coverage)
        coverage
        traffic
        ;;
    table)
        coverage
        write_table
        fused_lines >"$fused"
        ;;
    *) $part ;;
    esac
    echo "$part: $(($(date +%s) - begun)) s"
done
finish
