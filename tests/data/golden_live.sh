#!/bin/sh
# SPDX-License-Identifier: MIT
# Random numbers, samplers, optimizers and image operations against the PyTorch installed here, with other cases each time.
python=${PYTHON:-python3} modules=torch
. "${srcdir:-.}/tests/lib/fresh.inc"
fresh_cases lib/golden.py
unset CK_RUN_CASE
./check_rng && ./check_sampler && ./check_split && ./check_adamw && ./check_norm && ./check_conv2d && ./check_pool2d && ./check_batch_norm && ./check_mse
