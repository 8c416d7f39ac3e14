#!/bin/sh
# rms_norm_tune.sh - all sections of rms_norm_tune.py, each in its own process and under its own limit (a kernel that hangs ends only its section).
# SPDX-License-Identifier: Apache-2.0
cd "$(dirname "$0")" || exit 1
export OUT="${OUT:-/tmp}"
run() {
    limit=$1
    shift
    timeout -k 5 "$limit" python3 rms_norm_tune.py "$@" 2>&1 | tee -a "$OUT/tune.log" | tail -n 60
}
nvidia-smi --query-gpu=name,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader
run 60 copy
run 150 plain
run 150 backward
run 150 full
TUNE_WIDTHS=1024,4096,16384,65536 TUNE_TAG=_default_store TUNE_FLAGS='-DSKR_STORE_ONCE="st.global"' run 80 plain
