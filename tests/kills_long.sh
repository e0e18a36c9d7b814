#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/kills.sh with hundreds of kills.
KILLS=300 exec "${srcdir:-.}/tests/kills.sh"
