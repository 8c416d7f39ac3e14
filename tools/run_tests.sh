#!/bin/sh
# Runs the stages of `make test`, two at a time, keeps going after a failure, and ends with the sum of what they counted.
# A stage is a make target; its last "N passed, N failed, N skipped" line counts, else its exit status counts as one test.
# STAGES="names": these alone, one after another, as they print.
# SPDX-License-Identifier: Apache-2.0
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
logs=$build/logs
cores=$(nproc 2>/dev/null || echo 2)
# Long ones first. Stages with a plus between them build the same things: one after the other.
queue="test-lint test-c test-asan test-cross test-python+test-examples test-fuzz test-cuda-host+test-cuda-emulated test-tsan test-install"
if [ -n "${STAGES:-}" ]; then
    workers=1 queue=$STAGES
else
    workers=2 cores=$(((cores + 1) / 2)) # of each: many stages are one program that uses one
fi
rm -rf "$logs"
mkdir -p "$logs"
begin=$(date +%s)

# Runs a stage; leaves its log, and what it counted, in $logs.
run_stage() {
    log=$logs/$1.log
    start=$(date +%s)
    echo "== $1"
    { ${MAKE:-make} --no-print-directory "$1" BUILD="$build" TORCH="${TORCH:-1}" JOBS="$cores" 2>&1; echo "exit $?" >"$log.status"; } |
        if [ $workers = 1 ]; then tee "$log"; else cat >"$log"; fi
    status=$(sed 's/exit //' "$log.status")
    counts=$(grep -E '^([A-Za-z_-]+: )?[0-9]+ passed, [0-9]+ failed' "$log" | sed 's/^[A-Za-z_-]*: //; s/[a-z]//g; s/,/ /g' |
        awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
    set -- "$1" $counts
    [ $(($2 + $3 + $4)) -gt 0 ] || { [ "$status" = 0 ] && set -- "$1" 1 0 0 || set -- "$1" 0 1 0; }
    [ "$status" = 0 ] || [ "$3" -gt 0 ] || set -- "$1" "$2" 1 "$4"
    echo "$2 $3 $4" >"$log.counts"
    [ $workers = 1 ] || sed "s/^/$1: /" "$log" >"$log.shown" # in one piece, whatever the other one prints
    echo "-- $1: $2 passed, $3 failed, $4 skipped in $(($(date +%s) - start)) s" >>"$log.shown"
    cat "$log.shown"
    rm -f "$log.shown" "$log.status"
}

# Takes what nobody has taken yet until nothing is left.
work() {
    for item in $queue; do
        mkdir "$logs/$item.taken" 2>/dev/null || continue
        for stage in $(echo "$item" | tr + ' '); do run_stage "$stage"; done
    done
}
[ $workers = 1 ] || work &
work
wait
rm -rf "$logs"/*.taken

passed=0 failed=0 skipped=0 bad=""
for stage in $(echo "$queue" | tr + ' '); do
    counts=$(cat "$logs/$stage.log.counts" 2>/dev/null || echo 0 1 0)
    set -- $counts
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    [ "$2" = 0 ] || bad="$bad $stage"
done
echo
for stage in $bad; do # again, where whoever looks at the end alone sees it
    echo "== what failed in $stage"
    grep -E 'FAIL|ERROR|Error|SUMMARY|runtime error|Assertion' "$logs/$stage.log" | cut -c1-300 | tail -20
    echo "== the end of $logs/$stage.log"
    tail -15 "$logs/$stage.log" | cut -c1-300
done
[ -z "$bad" ] || echo "failed stages:$bad (logs in $logs)"
[ "${TORCH:-1}" != 0 ] || echo "the PyTorch tests were left out (TORCH=0)"
echo "all stages took $(($(date +%s) - begin)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
