#!/bin/sh
# gemm on a GPU: every case against the oracle, the sanitizer on small ones, then beside cuBLAS. About a minute.
# SPDX-License-Identifier: Apache-2.0
#
#   bench/device/gemm_check.sh BUILD OUT     # BUILD: a directory that make CUDA=1 has filled
build=${1:?usage: bench/device/gemm_check.sh BUILD OUT}
out=${2:?usage: bench/device/gemm_check.sh BUILD OUT}
cd "$(dirname "$0")/../.." || exit 1
failed=0
timeout 90 "$build/saker" check --device cuda --op gemm --all > "$out/gemm-check.log" 2>&1 || failed=1
grep -a FAIL "$out/gemm-check.log" | head -n 12
tail -n 1 "$out/gemm-check.log"
# The kinds of kernel, one small case each: general, few rows, f32, and Hopper's with and without a second kernel.
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for check in memcheck racecheck; do
    for case in "f32 f32 f32 5x6x7 rrr" "bf16 bf16 bf16 6x37x104 rcr" "f32 f32 f32 132x200x44 rrr" \
        "bf16 bf16 bf16 64x256x64 rcr" "bf16 bf16 bf16 130x272x200 rcr split" "bf16 bf16 f32 130x272x200 rcr bbf16 gelu"; do
        [ -n "$tool" ] || continue
        timeout 20 "$tool" --tool "$check" --error-exitcode 99 \
            "$build/saker" check --device cuda --op gemm --case "$case" > "$out/gemm-$check.log" 2>&1 || { echo "$check: $case"; tail -n 3 "$out/gemm-$check.log"; failed=1; }
    done
done
timeout 60 python3 bench/gemm.py --build "$build" --types bf16,f16,i8,f32 --seconds 0.03 \
    --out "$out/nvidia-h200-peers-gemm-sweep.json" || failed=1
exit $failed
