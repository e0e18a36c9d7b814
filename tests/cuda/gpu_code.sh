#!/bin/sh
# SPDX-License-Identifier: MIT
# What nvcc has made of the kernels: nothing is spilled to memory, those on tensor cores have products, and none takes more
# registers of an sm_90 than the table of this nvcc says, gpu_registers.nvccN: a line "REGISTERS KERNEL" each. After a change
# that is meant, in a build for sm_90: `srcdir=SOURCES SOURCES/tests/cuda/gpu_code.sh table` writes it anew; read the difference.
. "${srcdir:-.}/tests/lib/cli.inc"
plugin=$top/.libs/libddp-cuda.so
[ -e "$plugin" ] || skip "the CUDA plugin is not built"
nvcc=$(sed -n 's/^NVCC = //p' "$top/Makefile")
for cuobjdump in "${CUOBJDUMP:-}" "$(dirname "$nvcc")/cuobjdump" "$(command -v cuobjdump)" none; do
    [ ! -x "$cuobjdump" ] || break
done
[ "$cuobjdump" != none ] || skip "needs cuobjdump (package cuda-cuobjdump; CUOBJDUMP names it)"
command -v c++filt >/dev/null || skip "needs c++filt"
version=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
table=$here/tests/cuda/gpu_registers.nvcc$version

# Kernels that may spill, "ARCHITECTURE KERNEL" one a line. Most of these: eight bytes, for one more block on a multiprocessor.
# In pool2d (indices), layer norm on an older GPU, attention's gradient of keys on an older GPU, and the plain attention (up to
# 48 bytes), which tensor cores replace. In float16 up to 44 bytes, on GPUs that have bf16.
spilling='sm_100 backward_kernel<float, int, false, 1>
sm_100 backward_kernel<unsigned short, int, false, 1>
sm_100 mma_keys_kernel<128, float>
sm_100 mma_keys_kernel<128, unsigned short>
sm_100 mma_keys_kernel<64, float>
sm_120 backward_kernel<float, int, true, 4>
sm_120 mma_keys_kernel<128, float>
sm_120 mma_keys_kernel<64, float>
sm_80 forward<unsigned short, 1, 512>
sm_80 keys_kernel<32, float>
sm_80 keys_kernel<32, unsigned short>
sm_80 mma_keys_kernel<128, float>
sm_80 mma_keys_kernel<128, unsigned short>
sm_80 mma_keys_kernel<64, float>
sm_80 mma_keys_kernel<64, unsigned short>
sm_90 forward_kernel<128, unsigned short>
sm_90 forward_kernel<64, unsigned short>
sm_90 keys_kernel<128, float>
sm_90 keys_kernel<128, unsigned short>
sm_90 keys_kernel<64, unsigned short>
sm_90 mma_keys_kernel<64, float>
sm_90 queries_kernel<128, unsigned short>'

# "sm_90 REGISTERS STACK LOCAL KERNEL" for each; of kernels of one name, in several files, the worst. A kernel is its name with
# what its template is made for: "f<4, float>".
"$cuobjdump" --dump-resource-usage "$plugin" >"$work/raw" 2>&1 || { cat "$work/raw"; exit 99; }
c++filt <"$work/raw" | awk '
    $1 == "arch" && $2 == "=" { arch = $3 }
    $1 == "Function" {
        name = $0; sub(/^ *Function /, "", name); sub(/:$/, "", name); sub(/^void /, "", name)
        # the arguments: from the first "(" that is in no "<"
        depth = 0
        for (i = 1; i <= length(name); i++) {
            c = substr(name, i, 1)
            if (c == "<") depth++
            if (c == ">") depth--
            if (c == "(" && depth == 0) { name = substr(name, 1, i - 1); break }
        }
    }
    $1 ~ /^REG:/ {
        split($1, reg, ":"); split($2, stack, ":"); split($4, local, ":")
        key = arch " " name
        if (!(key in regs) || reg[2] > regs[key]) regs[key] = reg[2] + 0
        if (stack[2] > stacks[key] + 0) stacks[key] = stack[2]
        if (local[2] > locals[key] + 0) locals[key] = local[2]
    }
    END { for (key in regs) { split(key, part, " "); print part[1], regs[key], stacks[key] + 0, locals[key] + 0, substr(key, length(part[1]) + 2) } }' |
    LC_ALL=C sort -k 1,1 -k 5 >"$work/kernels"
[ -s "$work/kernels" ] || { echo "no kernel in $plugin: what cuobjdump said:"; head -n 20 "$work/raw"; exit 99; }

awk '$1 == "sm_90" { printf "%s ", $2; for (i = 5; i <= NF; i++) printf "%s%s", $i, i < NF ? " " : "\n" }' "$work/kernels" >"$work/table"
if [ "${1:-}" = table ]; then
    [ -s "$work/table" ] || skip "the plugin has no code for sm_90: configure with NVCC_GENCODE"
    cp "$work/table" "$table"
    exit 0
fi

# Spills.
count=$((count + 1))
awk '$3 > 0 || $4 > 0' "$work/kernels" >"$work/spilled"
while read -r arch registers stack local kernel; do
    printf '%s\n' "$spilling" | grep -qFx -- "$arch $kernel" ||
        fail "$kernel spills registers on $arch: $stack bytes of stack, $local of local memory, $registers registers"
done <"$work/spilled"

# Registers.
if [ ! -s "$work/table" ]; then
    not_run "registers: the plugin has no code for sm_90"
elif [ ! -e "$table" ]; then
    not_run "registers: there is no table for nvcc $version: $0 table writes it"
else
    count=$((count + $(wc -l <"$work/table")))
    awk -v table="$table" '
        { registers = $1; sub(/^[0-9]+ /, "") }
        FILENAME == table { most[$0] = registers; next }
        !($0 in most) { print "there is no line for it in the table:", registers, $0 }
        $0 in most && registers > most[$0] + 0 { print registers, "registers on sm_90, and the table has", most[$0] ":", $0 }
        { seen[$0] = 1 }
        END { for (name in most) if (!(name in seen)) print "in the table, but not built:", name }' "$table" "$work/table" >"$work/wrong"
    while read -r line; do
        fail "$line"
    done <"$work/wrong"
    [ ! -s "$work/wrong" ] || echo "see gpu_code.sh for how the table is written anew"
fi

# Products: all code from 8.0 on has them, and of float16 (of float in memory: "f" among what the template is made for) from 7.5.
functions=$(sed -n 's/^ *Function \([^:]*\):$/\1/p' "$work/raw" | grep mma_ | sort -u | paste -s -d ,)
"$cuobjdump" --dump-sass --function "$functions" "$plugin" >"$work/sass" 2>&1 || { tail -n 5 "$work/sass"; exit 99; }
awk '$1 == "Fatbin" { arch = "" } $1 == "arch" && $2 == "=" { arch = $3 }
    $1 == "Function" { name = arch " " $3; found[name] += 0 } / HMMA\./ { found[name]++ }
    END { for (name in found) print found[name], name }' "$work/sass" >"$work/products"
names=$(echo "$functions" | tr , ' ')
architectures=$(awk '{ print $1 }' "$work/kernels" | sort -u)
for arch in $architectures; do
    for function in $names; do
        case $function in
        *EfEv* | *ddp_half*) needed=75 ;;
        *) needed=80 ;;
        esac
        [ "${arch#sm_}" -ge $needed ] || continue
        count=$((count + 1))
        grep -qE "^[1-9][0-9]* $arch $function\$" "$work/products" || fail "no product in $function for $arch"
    done
done
finish
