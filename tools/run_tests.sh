#!/bin/sh
# Runs the stages of `make test` in two lanes beside each other, keeps going after a failure, and ends with the sum of what they counted.
# A stage is a make target; its last "N passed, N failed, N skipped" line counts, else its exit status counts as one test.
# STAGES="names": these alone, one after another, as they print.
# SPDX-License-Identifier: Apache-2.0
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
lane1=${STAGES:-"test-lint test-c test-cuda-host test-cuda-emulated test-install test-python test-examples"}
lane2=${STAGES:+}
[ -n "${STAGES:-}" ] || lane2="test-asan test-tsan test-fuzz test-cross"
cores=$(nproc 2>/dev/null || echo 2)
[ -z "$lane2" ] || cores=$(((cores + 1) / 2)) # of each lane: many stages are one program that uses one
mkdir -p "$build/logs"
begin=$(date +%s)

# Runs a stage; leaves its log, and what it counted, in $build/logs.
run_stage() {
    log=$build/logs/$1.log
    start=$(date +%s)
    { ${MAKE:-make} --no-print-directory "$1" BUILD="$build" TORCH="${TORCH:-1}" JOBS="$cores" 2>&1; echo "exit $?" >"$log.status"; } |
        if [ -n "$lane2" ]; then cat >"$log"; else tee "$log"; fi
    status=$(sed 's/exit //' "$log.status")
    rm -f "$log.status"
    counts=$(grep -E '^([A-Za-z_-]+: )?[0-9]+ passed, [0-9]+ failed' "$log" | sed 's/^[A-Za-z_-]*: //; s/[a-z]//g; s/,/ /g' |
        awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
    took=$(($(date +%s) - start))
    set -- "$1" $counts
    [ $(($2 + $3 + $4)) -gt 0 ] || { [ "$status" = 0 ] && set -- "$1" 1 0 0 || set -- "$1" 0 1 0; }
    [ "$status" = 0 ] || [ "$3" -gt 0 ] || set -- "$1" "$2" 1 "$4"
    echo "$2 $3 $4" >"$log.counts"
    { # in one piece, whatever the other lane prints
        [ -z "$lane2" ] || { echo "== $1"; cat "$log"; }
        echo "-- $1: $2 passed, $3 failed, $4 skipped in $took s"
    } >"$log.shown"
    cat "$log.shown"
    rm -f "$log.shown"
}
run_lane() {
    for stage in "$@"; do
        echo "== $stage begins"
        run_stage "$stage"
    done
}
for stage in $lane1 $lane2; do rm -f "$build/logs/$stage.log.counts"; done
# shellcheck disable=SC2086 # words
run_lane $lane2 &
# shellcheck disable=SC2086
run_lane $lane1
wait

passed=0 failed=0 skipped=0 bad=""
for stage in $lane1 $lane2; do
    counts=$(cat "$build/logs/$stage.log.counts" 2>/dev/null || echo 0 1 0)
    set -- $counts
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    [ "$2" = 0 ] || bad="$bad $stage"
done
echo
[ -z "$bad" ] || echo "failed stages:$bad (logs in $build/logs)"
[ "${TORCH:-1}" != 0 ] || echo "the PyTorch tests were left out (TORCH=0)"
echo "all stages took $(($(date +%s) - begin)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
