#!/bin/sh
# Every CUDA kernel that a plan can name is reached by a case of correctness: those in small tiles where a GPU has 99 KiB of shared memory a
# block and only there, all others on a GPU with Hopper's. Where nvcc made images, they hold those kernels and no others.
#   check_kernels.sh BUILD PLANNED [IMAGES]     PLANNED: what test_cuda_kernels wrote; IMAGES: where nvcc's logs lie
# SPDX-License-Identifier: Apache-2.0
build=$1
planned=$2
images=${3:-}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

# Sorting by a fourth digit takes more than 2^27 rows of dweight, half a gigabyte and more.
unreached='skr_embedding_(count|scatter)_3'

strings -d "$build"/obj/ops/*/*_cuda.o | grep -xE 'skr_[a-z0-9_]+' | sort -u >"$folder/named"
sed -n -e 's/^kernel //p' -e 's/^consumer \(skr_attention_.*small_.*\)/\1/p' "$planned" | sort -u >"$folder/reached"
{
    grep -E '^(kernel|ampere) skr_attention_.*small_' "$planned" | sort -u | sed 's/$/: small tiles, though the shared memory takes larger ones/'
    grep -vxE "$unreached" "$folder/named" | comm -23 - "$folder/reached" | sed 's/$/: no case reaches this kernel/'
    if [ -n "$images" ]; then
        sed -n "s/.*Compiling entry function '\([a-z0-9_]*\)'.*/\1/p" "$images"/*.fatbin.log | sort -u >"$folder/compiled"
        comm -23 "$folder/named" "$folder/compiled" | sed 's/$/: no image holds this kernel/'
        comm -13 "$folder/named" "$folder/compiled" | sed 's/$/: no plan names this kernel/'
    fi
} >"$folder/wrong"
sed 's/^/FAIL /' "$folder/wrong"
wrong=$(wc -l <"$folder/wrong")
echo "check_kernels: $(wc -l <"$folder/named") kernels, $wrong of them wrong"
[ -s "$folder/named" ] && [ "$wrong" -eq 0 ]
