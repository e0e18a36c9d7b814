#!/bin/sh
# SPDX-License-Identifier: MIT
#
# compute-sanitizer's tools on the unit tests of CUDA's kernels, on a GPU: memory, races of shared memory, reads of
# what nobody wrote, and barriers. COMPUTE_SANITIZER names the program, SANITIZER_TOOLS and SANITIZER_TESTS fewer of each.
. "${srcdir:-.}/tests/lib/cli.inc"
. "${srcdir:-.}/tests/cuda/cuda.inc"
[ "$simulated" = no ] || skip "compute-sanitizer needs a GPU: make check-gpu"
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")}
[ -x "$sanitizer" ] || skip "compute-sanitizer is not installed"
for tool in ${SANITIZER_TOOLS:-memcheck racecheck initcheck synccheck}; do
    for test in ${SANITIZER_TESTS:-check_cuda_kernels}; do
        count=$((count + 1))
        if ! CK_FORK=no timeout 1800 "$sanitizer" --tool "$tool" --error-exitcode 99 "$top/$test" >"$work/out" 2>&1; then
            fail "$tool found something in $test:"
            tail -n 60 "$work/out"
        fi
    done
done
finish
