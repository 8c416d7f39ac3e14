#!/bin/sh
# The command: what it prints and refuses, which files it leaves behind, and whose commit it names.
# Usage: test_cli.sh <build directory>
# SPDX-License-Identifier: Apache-2.0
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
saker=$(cd "$1" && pwd)/saker
work=$(mktemp -d "${TMPDIR:-/tmp}/saker-cli.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0 skipped=0
verdict() { # name, whether it holds (0), what to show if not
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1"
        tail -5 "$3" | sed 's/^/     /'
    fi
}
expect() { # name, exit code, text in what it prints, command...
    name=$1 code=$2 text=$3
    shift 3
    "$@" >"$work/log" 2>&1
    got=$?
    [ $got = "$code" ] && grep -qF -- "$text" "$work/log"
    verdict "$name: exit $got, expected $code and '$text': $*" $? "$work/log"
}
holds() { # name, command...
    name=$1
    shift
    "$@" >"$work/log" 2>&1
    verdict "$name: $*" $? "$work/log"
}
without() { # text, file
    ! grep -qiF -- "$1" "$2"
}

# ---------------------------------------------------------------- standard output
for words in --help help --version 'list --names' 'bench --help'; do
    expect "a full disk: saker $words" 1 "cannot write to standard output" sh -c "'$saker' $words >/dev/full"
    expect "no standard output: saker $words" 1 "cannot write to standard output" sh -c "'$saker' $words >&-"
    expect "saker $words" 0 "" "$saker" $words
done
expect "an unknown command" 2 "unknown command" "$saker" nothing

# ---------------------------------------------------------------- list
"$saker" list >list 2>&1
"$saker" list --json >list.json 2>&1
holds "every field has a kind" without '(null)' list
holds "every field has a kind in JSON" without '"kind": null' list.json
expect "options of double precision" 0 "  f64    base " "$saker" list rope

# ---------------------------------------------------------------- doctor
# Bytes that are no UTF-8, in each way of being none, beside characters of two and four bytes.
variable=$(printf 'a\377 \300\257 \340\200\257 \355\240\200 \364\220\200\200 \303\251 \360\237\230\200 \342\202')
SAKER_X=$variable "$saker" doctor --no-test --json >doctor.json
holds "JSON is UTF-8 whatever the environment holds" python3 -c 'import json
text = json.loads(open("doctor.json", "rb").read().decode())["environment"]["SAKER_X"]
assert text.split() == ["a\ufffd", "\ufffd" * 2, "\ufffd" * 3, "\ufffd" * 3, "\ufffd" * 4, "\xe9", "\U0001f600", "\ufffd" * 2], ascii(text)'

# ---------------------------------------------------------------- explain
explain() { # exit code, text, arguments of rms_norm
    code=$1 text=$2
    shift 2
    expect "explain" "$code" "$text" "$saker" explain rms_norm "$@"
}
y='y=f32[4,8]'
explain 0 "rms_norm/" 'x=f32[4,8]' $y
explain 0 "rms_norm/" 'x=f32[4,8]@16,1+4' $y
explain 2 "'x': the = and a value are missing" x $y
explain 2 "has no argument 'z'" z $y
explain 2 "x=f32[4,]: the shape" 'x=f32[4,]' $y
explain 2 "x=f32[,4]: the shape" 'x=f32[,4]' $y
explain 2 "x=f32[4,8: the shape" 'x=f32[4,8' $y
explain 2 "x=f32[4,9223372036854775808]: the shape" 'x=f32[4,9223372036854775808]' $y
explain 2 "x=f32[1,1,1,1,1,1,1,4,8]: the shape" 'x=f32[1,1,1,1,1,1,1,4,8]' $y
explain 2 "x=f32[4,8]@16: behind the @" 'x=f32[4,8]@16' $y
explain 2 "x=f32[4,8]@16,: behind the @" 'x=f32[4,8]@16,' $y
explain 2 "x=f32[]@: behind the @" 'x=f32[]@' $y
explain 2 "x=f32[4,8]+: behind the +" 'x=f32[4,8]+' $y
explain 2 "x=f32[4,8]+-4: behind the +" 'x=f32[4,8]+-4' $y
explain 2 "x=f32[4,8]+99999999999999999999: behind the +" 'x=f32[4,8]+99999999999999999999' $y
explain 2 "x=f32[4,8]+4z: do not understand 'z'" 'x=f32[4,8]+4z' $y
expect "explain" 2 "b_packed=1: what gemm_pack wrote" "$saker" explain gemm 'a=f32[4,4]' 'b=f32[4,4]' 'd=f32[4,4]' b_packed=1
explain 2 "quant=4294967297: expected one of none|" 'x=f32[4,8]' $y quant=4294967297
explain 0 "rms_norm/" 'x=f32[4,8]' $y quant=none
explain 0 "rms_norm/" 'x=f32[4,8]' $y quant=0
explain 1 "quant is 99" 'x=f32[4,8]' $y quant=99
explain 1 "negative size" 'x=f32[-4,8]' $y
for value in 9223372036854775808 -9223372036854775809 +1 1.5 ''; do
    expect "a whole number" 2 "seed=$value: expected a whole number" "$saker" explain attention "seed=$value"
done
# Tensors of any size are apart: 32 TiB each, then two that leave no room for a third.
explain 0 "rms_norm/" 'x=f32[1099511627776,8]' 'y=f32[1099511627776,8]'
explain 0 "rms_norm/" 'y=f32[4,8]+8796093022208' 'x=f32[4,8]@1099511627776,1'
explain 0 "rms_norm/" 'x=f32[250000000000000000,8]' 'y=f32[250000000000000000,8]'
explain 2 "weight=f32[2000000000000000000]: there is no room" 'x=f32[250000000000000000,8]' 'y=f32[250000000000000000,8]' \
    'weight=f32[2000000000000000000]'
explain 1 "OVERFLOW" 'x=f32[1000000000000000000,8]' $y

# ---------------------------------------------------------------- roof
"$saker" roof --min-time 0 --size 0.01 --streams 1x0 --threads 1 --json >roof.json 2>&1
holds "peaks without a minimum of time" sh -c "grep -q '\"bandwidth\"' roof.json && ! grep -E '\"gops_[a-z0-9]+\": 0[,}]' roof.json"

"$saker" roof --isa all >refused 2>&1
expect "a wrong --isa" 2 "no level 'all'" "$saker" roof --isa all
holds "is refused before anything is printed" without 'memcpy' refused
expect "only devices that are listed" 2 "'best' is not cpu, cuda or cuda:N" "$saker" roof --device best
expect "no bytes" 2 "--size: at least 4 KiB" "$saker" roof --size 0

# ---------------------------------------------------------------- bench
for option in '--op rms_norm' '--case x' '--min-time 0' --flush --cache; do
    expect "an option that would do nothing" 2 "--overhead times one call of its own" "$saker" bench --overhead $option
done
expect "--cache with --flush" 2 "give one of them" "$saker" bench --cache --flush --case typo
# Programs with sanitizers have more addresses than this from the start.
if (ulimit -v 40000 && "$saker" --version) >/dev/null 2>&1; then
    expect "short of memory" 1 "out of memory" sh -c "ulimit -v 40000; '$saker' check --threads 1"
else
    skipped=$((skipped + 1))
    echo "skipped: short of memory: the command does not start in 40 MB"
fi
echo kept >good.json
expect "no case" 1 "no bench case matches" "$saker" bench --out good.json --case typo
expect "no case: an older file stays" 0 "kept" cat good.json
expect "no case: no file" 1 "no bench case matches" "$saker" bench --out none.json --case typo
holds "no case: no file is left" test ! -e none.json
expect "a wrong --isa" 2 "no level 'typo'" "$saker" bench --overhead --out good.json --isa typo
expect "a wrong --isa: an older file stays" 0 "kept" cat good.json
# Said before the run, not instead of it: the case does not exist.
expect "a file that cannot be written" 1 "cannot write '/dev/null/x'" "$saker" bench --out /dev/null/x --case typo
expect "rows to a device" 0 "overhead: call" "$saker" bench --overhead --out /dev/null
yes '"old": 1, ' | head -3000 >good.json # longer than the rows are
expect "rows replace an older file" 0 "overhead: call" "$saker" bench --overhead --out good.json
holds "the file holds the rows alone" python3 -c 'import json
assert len(json.load(open("good.json"))["rows"]) == 4'
sed 's/"median_us": [^,]*, //' good.json >timeless.json
expect "a baseline without times" 1 "has no time of any" "$saker" bench --overhead --baseline timeless.json
sed '/plan 1x64 f32/s/"median_us": [^,]*, //' good.json >partial.json
"$saker" bench --overhead --baseline partial.json >compared 2>&1 # slower or not is the machine's business
holds "a row of the baseline without a time is named" grep -q 'plan 1x64 f32  *left out: .* no time' compared
holds "and not counted" grep -qE '^[0-3] faster, [0-3] the same, [0-3] slower, 1 without a time' compared
holds "and in no mean" without ' nan' compared

# ---------------------------------------------------------------- demo
expect "a wrong folder is known before the run" 1 "cannot make the folder '/dev/null/x'" timeout 10 "$saker" demo --report /dev/null/x
expect "a folder without a name" 2 "--report" timeout 10 "$saker" demo --report ''
"$saker" demo --report new/parent/demo >demo.log 2>&1 &
demo=$!
tries=0
while [ ! -d new/parent/demo ] && [ $tries -lt 50 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill $demo 2>/dev/null
wait $demo 2>/dev/null
holds "the folder is made with its parents before the run" test -d new/parent/demo

# ---------------------------------------------------------------- the commit
if command -v git >/dev/null 2>&1; then
    commit() { git -C "$1" -c user.name=n -c user.email=e -c commit.gpgsign=false commit -q --allow-empty -m "$1"; }
    git init -q outer && commit outer
    mkdir -p outer/sources/src/core && cp -r "$root/Makefile" "$root/include" outer/sources
    cp "$root/src/core/ops.def" outer/sources/src/core
    printf '#include "cli.h"\nint main(void) { puts(cli_commit()); return 0; }\n' >commit.c
    holds "cli_commit alone" ${CC:-gcc} -DSAKER_COMMIT='"unknown"' -I"$root/include" -I"$root/cli" commit.c \
        "$root/cli/machine.c" -o commit
    make -C outer/sources -s summary CUDA=0 BUILD=build >/dev/null 2>&1
    expect "sources inside of another repository: its commit is not ours" 0 unknown cat outer/sources/build/commit
    expect "the same when the command asks" 0 unknown sh -c "cd outer/sources && ../../commit"
    git init -q outer/sources && commit outer/sources
    own=$(git -C outer/sources rev-parse --short=12 HEAD)
    make -C outer/sources -s summary CUDA=0 BUILD=build >/dev/null 2>&1
    expect "sources with a repository of their own" 0 "$own" cat outer/sources/build/commit
    expect "the same when the command asks" 0 "$own" sh -c "cd outer/sources && ../../commit"
else
    skipped=$((skipped + 1))
    echo "skipped: the commit: no git on this machine"
fi
echo "test_cli: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
