#!/bin/sh
# attention_decode and the three operations of a mixture of experts on a GPU: every case against the oracle, the sanitizer
# on small ones, then beside PyTorch. About four minutes.
# SPDX-License-Identifier: Apache-2.0
#
#   bench/device/decode_check.sh BUILD OUT     # BUILD: a directory that make CUDA=1 has filled
build=${1:?usage: bench/device/decode_check.sh BUILD OUT}
out=${2:?usage: bench/device/decode_check.sh BUILD OUT}
cd "$(dirname "$0")/../.." || exit 1
failed=0
for op in attention_decode moe_route moe_route_backward moe; do
    (timeout 120 "$build/saker" check --device cuda --op $op --all > "$out/$op-check.log" 2>&1 || echo "FAIL: rc $?" >> "$out/$op-check.log") &
done
wait
for op in attention_decode moe_route moe_route_backward moe; do
    grep -a FAIL "$out/$op-check.log" | head -n 12
    grep -ah ' cases, ' "$out/$op-check.log"
    grep -aq FAIL "$out/$op-check.log" && failed=1
done
# Contiguous and paged caches, codes, a latent cache, more than one part, an append; experts in groups, lists that are asked for.
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for check in memcheck racecheck; do
    for case in "attention_decode|bf16 2x1,90x4,1x48 causal" \
        "attention_decode|f16 packed st 2x2+2,16x4,2x8,6 page4 len2..14 alibib sinks rope R8+0" \
        "attention_decode|bf16 2x2+2,70x6,1x96,64 page7 len2..68 causal rope latent R24+72 split30" \
        "attention_decode|f16 e4m3 2x1+1,90x4,2x64,128 causal" \
        "attention_decode|f16 packed st 2x3+3,90x4,2x64,128 page5 causal split40" \
        "moe_route|f16 f32 4x32 k=4 groups=2/4 bias lists sigmoid top2 inf bias ties" \
        "moe_route|bf16 f32 37x7 k=1 lists scaled" "moe_route_backward|f16 f32 6x48 k=5 bad ties" \
        "moe|bf16 bf16 bf16 33x64x48 k=3 of 8 by f32 tanh pairs" \
        "moe|f16 f16 f16 33x64x48 k=3 of 8 by f32 silu halves i64 apart loose part"; do
        [ -n "$tool" ] || continue
        timeout 20 "$tool" --tool "$check" --error-exitcode 99 "$build/saker" check --device cuda --op "${case%%|*}" --case "${case#*|}" \
            > "$out/decode-$check.log" 2>&1 || { echo "$check: $case"; tail -n 3 "$out/decode-$check.log"; failed=1; }
    done
done
for ops in attention_decode moe; do
    timeout 90 python3 bench/peers.py --build "$build" --device cuda --op "$ops*" --types bf16 --no-compile --seconds 0.05 \
        --limit 80 --out "$out/nvidia-h200-peers-$ops-sweep.json" || failed=1
done
exit $failed
