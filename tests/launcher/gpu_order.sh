#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Which GPUs ranks get: near ones for neighbours. NVML is fake_nvml.c.
. "${srcdir:-.}/tests/lib/cli.inc"
mkdir "$work/nvml"
ln -s "$top/.libs/libfake_nvml.so" "$work/nvml/libnvidia-ml.so.1"
export LD_LIBRARY_PATH="$work/nvml"
export FAKE_GPUS_PCI='00000000:3A:00.0 00000000:3B:00.0 00000000:AF:00.0 00000000:D8:00.0'
unset CUDA_VISIBLE_DEVICES

# ranks NAME GPUS PATHS EXPECTED arguments...: what ranks find in CUDA_VISIBLE_DEVICES, the same in each.
ranks()
{
    name=$1 expected=$4
    export FAKE_GPUS="$2" FAKE_GPUS_PATHS="$3"
    shift 4
    expect "$name" 0 . "$ddprun" "$@" sh -c 'echo ${CUDA_VISIBLE_DEVICES-unset}'
    found=$(sed 's/^\[[0-9]*\]: //' "$work/out" | sort -u)
    [ "$found" = "$expected" ] || fail "$name: $found, not $expected"
}

# Two pairs joined across, and PCIe as it comes.
across='X SYS PHB NV2; SYS X NV4 NODE; PHB NV4 X SYS; NV2 NODE SYS X;'
ranks "pairs" 4 "$across" GPU-aa-0,GPU-dd-3,GPU-bb-1,GPU-cc-2
ranks "the nearest two" 4 "$across" GPU-bb-1,GPU-cc-2,GPU-aa-0,GPU-dd-3 -n 2
ranks "one worker" 4 "$across" unset -n 1
ranks "more workers than GPUs" 4 "$across" unset -n 5
CUDA_VISIBLE_DEVICES=0,1 ranks "the user's own" 4 "$across" 0,1 -n 2
ranks "each its own" 4 "$across" 'GPU-bb-1
GPU-cc-2' -n 2 --virtual-local-rank
ranks "all alike" 3 'X SW4 SW4; SW4 X SW4; SW4 SW4 X;' unset
ranks "in order already" 4 'X PIX SYS SYS; PIX X SYS SYS; SYS SYS X PXB; SYS SYS PXB X;' unset
ranks "nothing is known" 4 '' unset
# Eight as in a DGX-1: two fours of one or two links, joined in pairs. The ring is whole.
eight='X NV1 NV1 NV2 NV2 SYS SYS SYS; NV1 X NV2 NV1 SYS NV2 SYS SYS; NV1 NV2 X NV2 SYS SYS NV1 SYS; NV2 NV1 NV2 X SYS SYS SYS NV1;'
eight="$eight NV2 SYS SYS SYS X NV1 NV1 NV2; SYS NV2 SYS SYS NV1 X NV2 NV1; SYS SYS NV1 SYS NV1 NV2 X NV2; SYS SYS SYS NV1 NV2 NV1 NV2 X;"
FAKE_GPUS_PCI=$(i=0; while [ $i -lt 8 ]; do printf '00000000:0%d:00.0 ' $i; i=$((i + 1)); done)
ranks "eight" 8 "$eight" GPU-cc-2,GPU-bb-1,GPU-aa-0,GPU-dd-3,GPU-hh-7,GPU-ee-4,GPU-ff-5,GPU-gg-6
expect "the matrix" 0 '^GPUs: 8, in the order of ranks, and what joins them:$' "$ddprun" --explain-launch
grep -q '^  0       NV1  NV1    X  NV2  SYS  NV2  SYS  SYS  00000000:00:00.0$' "$work/out" || fail "the matrix: $(cat "$work/out")"
expect "a switch" 0 '^  1  *NV4    X  NV4' env FAKE_GPUS=3 FAKE_GPUS_PATHS='X SW4 SW4; SW4 X SW4; SW4 SW4 X;' "$ddprun" --explain-launch
expect "as many as run" 0 '^  0 .* X  NV2' env FAKE_GPUS=4 FAKE_GPUS_PATHS="$across" "$ddprun" --explain-launch -n 2
# Islands of NVLink that something slower joins.
pairs='X SYS NV4 SYS; SYS X SYS NV4; NV4 SYS X SYS; SYS NV4 SYS X;'
expect "islands" 0 'in the order of ranks, islands of 2, and' env FAKE_GPUS=4 FAKE_GPUS_PATHS="$pairs" "$ddprun" --explain-launch
expect "ranks of islands" 0 '^\[3\]: 2$' env FAKE_GPUS=4 FAKE_GPUS_PATHS="$pairs" "$ddprun" sh -c 'echo $DDPRUN_ISLAND'
expect "no islands" 0 '^\[7\]: $' env FAKE_GPUS=8 FAKE_GPUS_PATHS="$eight" "$ddprun" sh -c 'echo $DDPRUN_ISLAND'
expect "as many islands as run" 0 '^\[1\]: $' env FAKE_GPUS=4 FAKE_GPUS_PATHS="$pairs" "$ddprun" -n 2 sh -c 'echo $DDPRUN_ISLAND'
finish
