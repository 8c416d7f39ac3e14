#!/bin/sh
# Everything that needs a GPU machine, in one go: build, CUDA tests, sanitizer, roof, bench, peers. Needs no network.
# SPDX-License-Identifier: Apache-2.0
#
#   bench/h200.sh OUT [part...]
#
# Parts, in this order; none given: all of them.
#   build      make CUDA=1 and, where it builds, the Python extension
#   test       make test-cuda
#   sanitize   compute-sanitizer memcheck and racecheck over small cases
#   doctor     saker doctor, saker check on the GPU
#   roof       saker roof, GPU and CPU
#   bench      saker bench on the GPU, and the cost of one launch
#   bench-cpu  saker bench on the CPU
#   quack      peers.py on the GPU, QuACK's shapes
#   peers      peers.py on the GPU, 2^27 elements
#   peers-cpu  peers.py on the CPU
#   python     what one call from Python costs, GPU and CPU
# Each part has a time limit in seconds; LIMIT_<part> overrides it (LIMIT_bench_cpu for bench-cpu). A part that fails is
# reported and the next one runs; the exit code counts them.
set -u
out=${1:?usage: bench/h200.sh OUT [part...]}
shift
cd "$(dirname "$0")/.." || exit 1
mkdir -p "$out"
out=$(cd "$out" && pwd)
build=${BUILD:-build}
python=${PYTHON:-python3}
jobs=$(nproc)
failed=0
summary=""
export PYTHONUNBUFFERED=1

# part NAME SECONDS COMMAND...: runs it if wanted; its output goes to the screen and to OUT/NAME.log.
part() {
    name=$1
    eval "limit=\${LIMIT_$(echo "$name" | tr - _):-$2}"
    shift 2
    case " $parts " in *" $name "*) ;; *) return 0 ;; esac
    printf '\n==== %s (at most %s s)\n' "$name" "$limit"
    start=$(date +%s)
    # The status has to come through the pipe to tee.
    { timeout -k 10 "$limit" "$@" 2>&1; echo $? > "$out/.status"; } | tee "$out/$name.log"
    code=$(cat "$out/.status")
    rm -f "$out/.status"
    took=$(($(date +%s) - start))
    summary="$summary$name: exit $code, $took s\n"
    [ "$code" = 0 ] || failed=$((failed + 1))
}

do_build() {
    make BUILD="$build" CUDA=1 -j"$jobs" || return 1
    make BUILD="$build" CUDA=1 python || echo "the Python extension does not build here: peers.py will use ctypes"
}

do_sanitize() {
    tool=$(command -v compute-sanitizer ||
        ls /usr/local/cuda/bin/compute-sanitizer /opt/nvidia/*/compute-sanitizer 2>/dev/null | head -n 1)
    [ -n "$tool" ] || { echo "no compute-sanitizer on this machine"; return 1; }
    bad=0
    for op in $("$build/saker" list --names); do
        for check in memcheck racecheck; do
            echo "-- $check $op"
            "$tool" --tool "$check" --error-exitcode 99 "$build/saker" check --device cuda --op "$op" ||
                bad=$((bad + 1))
        done
    done
    return "$bad"
}

do_doctor() {
    "$build/saker" doctor && "$build/saker" check --device cuda --all
}

do_roof() {
    "$build/saker" roof --device cuda &&
        "$build/saker" roof --device cuda --json > "$out/nvidia-h200-roof.json" &&
        "$build/saker" roof --device cpu --json > "$out/h200-host-roof.json"
}

do_bench() {
    "$build/saker" bench --device cuda --out "$out/nvidia-h200-bench.json" &&
        "$build/saker" bench --device cuda --overhead --out "$out/nvidia-h200-overhead.json"
}

do_bench_cpu() {
    "$build/saker" bench --device cpu --out "$out/h200-host-bench.json"
}

do_peers() { # set name, seconds
    "$python" bench/peers.py --build "$build" --device cuda --set "$1" --limit "$2" --seconds 0.2 \
        --out "$out/nvidia-h200-peers-$1.json"
}

do_peers_cpu() {
    "$python" bench/peers.py --build "$build" --device cpu --limit 250 --out "$out/h200-host-peers-sweep.json"
}

do_python() {
    for device in cuda cpu; do
        SAKER_LIBRARY="$PWD/$build/libsaker.so" PYTHONPATH=python "$python" bench/python_call_cost.py --device "$device" \
            > "$out/h200-python-$device.jsonl" || return 1
        cat "$out/h200-python-$device.jsonl"
    done
}

# timeout runs programs, not functions: this script calls itself for one step.
if [ "${1:-}" = "--step" ]; then
    step=$2
    shift 2
    "do_$step" "$@"
    exit $?
fi

parts=${*:-build test sanitize doctor roof bench bench-cpu quack peers peers-cpu python}
self="$(pwd)/bench/h200.sh"
step() { # NAME SECONDS STEP ARGUMENTS...
    name=$1
    seconds=$2
    shift 2
    part "$name" "$seconds" sh "$self" "$out" --step "$@"
}
step build 300 build
part test 300 make BUILD="$build" CUDA=1 test-cuda
step sanitize 300 sanitize
step doctor 120 doctor
step roof 90 roof
step bench 240 bench
step bench-cpu 240 bench_cpu
step quack 300 peers quack 270
step peers 420 peers sweep 390
step peers-cpu 300 peers_cpu
step python 60 python
printf '\n==== summary\n%b' "$summary" | tee "$out/summary.log"
(cd "$out" && tar -czf logs.tar.gz ./*.log && rm -f ./*.log) # few files travel better than many
ls -l "$out"
exit "$failed"
