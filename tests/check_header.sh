#!/bin/sh
# saker.h alone, as strict C11 and C++17, with every compiler that is here; the programs are run too.
# Usage: check_header.sh <build directory>
# SPDX-License-Identifier: Apache-2.0
build=$1 passed=0 failed=0 skipped=0
cd "$(dirname "$0")/.." || exit 1
for compiler in "${CC:-gcc} c" "clang c" "g++ cpp" "clang++ cpp"; do
    set -- $compiler
    command -v "$1" >/dev/null 2>&1 || { echo "skipped: no $1 on this machine"; skipped=$((skipped + 1)); continue; }
    standard=c11
    [ "$2" = c ] || standard=c++17
    out=$build/tests/test_header_$(basename "$1").$2
    mkdir -p "$build/tests"
    if "$1" -std=$standard -pedantic -Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude tests/test_header.$2 \
        "$build/libsaker.a" -pthread -ldl -lm -o "$out" && "$out"; then
        passed=$((passed + 1))
    else
        echo "FAIL saker.h with $1 -std=$standard"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
