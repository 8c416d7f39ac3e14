#!/bin/sh
# gemm on a GPU: every case against the oracle, the sanitizer on small ones, then beside cuBLAS. About two minutes.
# SPDX-License-Identifier: Apache-2.0
#
#   bench/device/gemm_check.sh BUILD OUT     # BUILD: a directory that make CUDA=1 has filled
build=${1:?usage: bench/device/gemm_check.sh BUILD OUT}
out=${2:?usage: bench/device/gemm_check.sh BUILD OUT}
cd "$(dirname "$0")/../.." || exit 1
failed=0
# The oracle is what takes time: the cases of different types at once.
for types in "f16 f16 f16" "f16 f16 bf16" "f16 f16 f32" "bf16 bf16 bf16" "bf16 bf16 f16" "bf16 bf16 f32" "i8 i8" \
    "f32 f32 f32" e4m3 e5m2 "i32 i32" " i4 " "f16 i8"; do
    log="$out/gemm-check-$(echo "$types" | tr ' ' _).log"
    (timeout 240 "$build/saker" check --device cuda --op gemm --all --case "$types" > "$log" 2>&1 || echo "FAIL: rc $?" >> "$log") &
done
wait
cat "$out"/gemm-check-*.log > "$out/gemm-check.log" && rm "$out"/gemm-check-*.log
grep -a FAIL "$out/gemm-check.log" | head -n 12
grep -ah ' cases, ' "$out/gemm-check.log"
grep -aq FAIL "$out/gemm-check.log" && failed=1
timeout 90 "$build/saker" check --device cuda --op grouped_gemm --all > "$out/grouped_gemm-check.log" 2>&1 || failed=1
grep -a FAIL "$out/grouped_gemm-check.log" | head -n 12
tail -n 1 "$out/grouped_gemm-check.log"
for op in grouped_gemm gemm; do # the portable kernels too
    SAKER_CUDA_ISA=sm80 timeout 90 "$build/saker" check --device cuda --op $op --all > "$out/$op-portable.log" 2>&1 || failed=1
    grep -a FAIL "$out/$op-portable.log" | head -n 12
    tail -n 1 "$out/$op-portable.log"
done
# The kinds of kernel, one small case each: general, few rows, f32, Hopper's with and without a second kernel, after a copy with k along
# memory, and of groups.
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for check in memcheck racecheck; do
    for case in "gemm|f32 f32 f32 5x6x7 rrr" "gemm|bf16 bf16 bf16 6x37x104 rcr" "gemm|f32 f32 f32 132x200x44 rrr" \
        "gemm|bf16 bf16 bf16 64x256x64 rcr" "gemm|bf16 bf16 bf16 130x272x200 rcr split" \
        "gemm|bf16 bf16 f32 130x272x200 rcr bbf16 gelu" "gemm|i8 i8 i32 272x264x250 crr" "gemm|e4m3 e4m3 bf16 140x512x384 rcr block bf32 silu" \
        "gemm|e5m2 e4m3 f16 150x264x400 rcr rowcol" "gemm|f32 f32 f32 272x264x250 crr tf32" \
        "gemm|bf16 i4 f32 40x9x4192 rcr group384" "gemm|bf16 i4 bf16 17x130x1056 rcr group32 zf32" "gemm|bf16 i8 f16 16x1x1056 rcr group192" \
        "gemm|bf16 i4 bf16 200x64x352 rcr group192 b al-2 be0.5bf16 persistent" \
        "gemm|bf16 i8 f32 200x64x128 rcr batch group32 zi8 bmf32 persistent" \
        "grouped_gemm|bf16 bf16 f16 rows 3x400x272x136 columns bf32 gelu" "grouped_gemm|f16 f16 f16 rows 50x7x24x8" \
        "grouped_gemm|bf16 bf16 bf16 k 3x1600x392x200 columns"; do
        [ -n "$tool" ] || continue
        timeout 20 "$tool" --tool "$check" --error-exitcode 99 "$build/saker" check --device cuda --op "${case%%|*}" --case "${case#*|}" \
            > "$out/gemm-$check.log" 2>&1 || { echo "$check: $case"; tail -n 3 "$out/gemm-$check.log"; failed=1; }
    done
done
for check in memcheck racecheck; do
    for case in "gemm|bf16 bf16 bf16 33x131x141 rrr" "gemm|bf16 i4 f32 36x136x256 rrr group37 zi8" \
        "gemm|bf16 i4 f32 40x9x4192 rcr group384" \
        "gemm|bf16 bf16 bf16 130x272x200 rrr stream" "gemm|f32 f32 f32 140x132x103 grr tf32" "grouped_gemm|bf16 bf16 bf16 rows 3x400x264x136 gather scatter" \
        "grouped_gemm|bf16 bf16 bf16 k 3x400x136x264 columns"; do
        [ -n "$tool" ] || continue
        SAKER_CUDA_ISA=sm80 timeout 20 "$tool" --tool "$check" --error-exitcode 99 "$build/saker" check --device cuda \
            --op "${case%%|*}" --case "${case#*|}" > "$out/gemm-$check.log" 2>&1 || { echo "$check: $case"; tail -n 3 "$out/gemm-$check.log"; failed=1; }
    done
done
timeout 60 python3 bench/peers.py --build "$build" --device cuda --op grouped_gemm --types bf16 --no-compile --seconds 0.03 \
    --out "$out/nvidia-h200-peers-grouped_gemm-sweep.json" || failed=1
timeout 120 python3 bench/peers.py --build "$build" --device cuda --op gemm --types bf16,f16,f32 --no-compile \
    --seconds 0.05 --limit 110 --out "$out/nvidia-h200-peers-gemm-sweep.json" || failed=1
exit $failed
