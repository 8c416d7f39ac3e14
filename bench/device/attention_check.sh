#!/bin/sh
# attention on a GPU: every case against the oracle, beside FlashAttention-2, then the sanitizer on the quick cases. Some minutes.
# SPDX-License-Identifier: Apache-2.0
#
#   bench/device/attention_check.sh BUILD OUT     # BUILD: a directory that make CUDA=1 has filled
build=${1:?usage: bench/device/attention_check.sh BUILD OUT}
out=${2:?usage: bench/device/attention_check.sh BUILD OUT}
cd "$(dirname "$0")/../.." || exit 1
failed=0
# The oracle is what takes time: all at once.
cases() { # NAME OPTIONS...
    name=$1
    shift
    timeout 90 "$build/saker" check --device cuda --all "$@" > "$out/$name.log" 2>&1 || echo "FAIL: rc $?" >> "$out/$name.log"
}
cases attention --op attention &
cases attention_backward --op attention_backward &
cases attention_backward-any-order --op attention_backward --nondeterministic &
cases attention_merge --op attention_merge &
wait
for name in attention attention_backward attention_backward-any-order attention_merge; do
    grep -aq FAIL "$out/$name.log" && failed=1
    grep -a FAIL "$out/$name.log" | head -n 12
    tail -n 1 "$out/$name.log"
done
peers() { # NAME OPTIONS...
    name=$1
    shift
    timeout 100 python3 bench/peers.py --build "$build" --device cuda --types bf16 --no-compile --seconds 0.03 --limit 90 "$@" \
        --out "$out/nvidia-h200-peers-$name-sweep.json" || failed=1
}
peers attention --op attention
peers attention_backward --op attention_backward
peers attention_backward-any-order --op attention_backward --nondeterministic
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
for check in memcheck racecheck; do
    for options in "attention" "attention_backward" "attention_backward --nondeterministic"; do
        [ -n "$tool" ] || continue
        # shellcheck disable=SC2086 # words
        timeout 90 "$tool" --tool $check --error-exitcode 99 "$build/saker" check --device cuda --op $options \
            > "$out/$check.log" 2>&1 || { echo "$check: $options"; tail -n 3 "$out/$check.log"; failed=1; }
    done
done
exit $failed
