#!/bin/sh
# The plans of cuda_plans.txt: which kernel takes the arguments, or the sentence that refuses them. Nothing is allocated.
#   check_plans.sh SAKER FAKE     SAKER: a command with images; FAKE: where the fake driver lies
# SPDX-License-Identifier: Apache-2.0
passed=0
failed=0
while read -r line; do
    case $line in '' | '#'*) continue ;; esac
    expected=${line##* -> }
    # The words are arguments.
    # shellcheck disable=SC2086
    found=$(LD_LIBRARY_PATH=$2 "$1" explain ${line%% -> *} --device cuda 2>&1 | head -n 1)
    if [ "$found" = "$expected" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s\n     found:    %s\n' "$line" "$found"
    fi
done <"$(dirname "$0")/cuda_plans.txt"
echo "check_plans: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
