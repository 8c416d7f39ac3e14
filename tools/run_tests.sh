#!/bin/sh
# Runs the stages of `make test` one after another, keeps going after a failure, and ends with the sum of what they counted.
# A stage is a make target; its last "N passed, N failed, N skipped" line counts, else its exit status counts as one test.
# SPDX-License-Identifier: Apache-2.0
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
stages=${STAGES:-"test-lint test-c test-cuda-host test-cuda-emulated test-install test-python test-examples test-asan test-tsan test-fuzz test-cross"}
passed=0 failed=0 skipped=0 bad=""
mkdir -p "$build/logs"
begin=$(date +%s)
for stage in $stages; do
    start=$(date +%s)
    echo "== $stage"
    log=$build/logs/$stage.log
    { ${MAKE:-make} --no-print-directory "$stage" BUILD="$build" TORCH="${TORCH:-1}" 2>&1; echo "exit $?" >"$log.status"; } | tee "$log"
    status=$(sed 's/exit //' "$log.status")
    rm -f "$log.status"
    counts=$(grep -E '^([A-Za-z_-]+: )?[0-9]+ passed, [0-9]+ failed' "$log" | sed 's/^[A-Za-z_-]*: //; s/[a-z]//g; s/,/ /g' |
        awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
    set -- $counts
    [ $(($1 + $2 + $3)) -gt 0 ] || { [ "$status" = 0 ] && set -- 1 0 0 || set -- 0 1 0; }
    [ "$status" = 0 ] || [ "$2" -gt 0 ] || set -- "$1" 1 "$3"
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    [ "$2" = 0 ] || bad="$bad $stage"
    echo "-- $stage: $1 passed, $2 failed, $3 skipped in $(($(date +%s) - start)) s"
done
echo
[ -z "$bad" ] || echo "failed stages:$bad (logs in $build/logs)"
[ "${TORCH:-1}" != 0 ] || echo "the PyTorch tests were left out (TORCH=0)"
echo "all stages took $(($(date +%s) - begin)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
