#!/bin/sh
# attention on a GPU: every case against the oracle, beside FlashAttention-2, then the sanitizer on the quick cases. Some minutes.
# SPDX-License-Identifier: Apache-2.0
#
#   bench/device/attention_check.sh BUILD OUT     # BUILD: a directory that make CUDA=1 has filled
build=${1:?usage: bench/device/attention_check.sh BUILD OUT}
out=${2:?usage: bench/device/attention_check.sh BUILD OUT}
cd "$(dirname "$0")/../.." || exit 1
failed=0
for op in attention attention_backward attention_merge; do
    timeout 60 "$build/saker" check --device cuda --op $op --all > "$out/$op.log" 2>&1 || failed=1
    grep -a FAIL "$out/$op.log" | head -n 12
    tail -n 1 "$out/$op.log"
done
for op in attention attention_backward; do
    timeout 90 python3 bench/peers.py --build "$build" --device cuda --op $op --types bf16 --no-compile --seconds 0.05 --limit 80 \
        --out "$out/nvidia-h200-peers-$op-sweep.json" || failed=1
done
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for check in memcheck racecheck; do
    for op in attention attention_backward; do
        [ -n "$tool" ] || continue
        timeout 60 "$tool" --tool $check --error-exitcode 99 "$build/saker" check --device cuda --op $op \
            > "$out/$check-$op.log" 2>&1 || { echo "$check: $op"; tail -n 3 "$out/$check-$op.log"; failed=1; }
    done
done
exit $failed
