#!/bin/sh
# norm_tune.sh - build, check every case on the GPU, then tune the shapes of the norms; each under its own limit. Results under $OUT.
# SPDX-License-Identifier: Apache-2.0
#
#   bench/device/norm_tune.sh [build] [check] [tune]
cd "$(dirname "$0")/../.." || exit 1
export OUT="${OUT:-/tmp}" PYTHONUNBUFFERED=1
parts=${*:-build check tune}
part() { # NAME SECONDS LINES COMMAND...: the last LINES lines are shown, all are kept
    name=$1 limit=$2 lines=$3
    shift 3
    case " $parts " in *" $name "*) ;; *) return 0 ;; esac
    began=$(date +%s)
    timeout -k 5 "$limit" "$@" > "$OUT/$name.log" 2>&1
    code=$?
    echo "==== $name: exit $code, $(($(date +%s) - began)) s"
    tail -n "$lines" "$OUT/$name.log"
}
nvidia-smi --query-gpu=name,clocks.sm,clocks.mem,temperature.gpu --format=csv,noheader
part build 150 3 make BUILD=build CUDA=1 -j16
part check 60 12 build/saker check --device cuda --all
part tune 200 45 python3 bench/device/norm_tune.py
