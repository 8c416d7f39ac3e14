#!/bin/sh
# Exported names: only saker_* leaves libsaker.so and libsaker.a, and all of what saker.h declares is there.
# Usage: CC=<compiler> check_symbols.sh <build directory>
# SPDX-License-Identifier: Apache-2.0
build=$1 failed=0
nm=$(${CC:-gcc} -print-prog-name=nm) readelf=$(${CC:-gcc} -print-prog-name=readelf) # those of its architecture
cd "$(dirname "$0")/.." || exit 1
fail() { echo "FAIL $*"; failed=$((failed + 1)); }
checks=0
expect_none() { # what, lines
    checks=$((checks + 1))
    [ -z "$2" ] || fail "$1:" $2
}

declared=$(sed -n 's/^SAKER_API .*[ *]\(saker_[a-z0-9_]*\)(.*/\1/p' include/saker.h | sort -u)
in_so=$("$nm" -D --defined-only "$build/libsaker.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
in_a=$("$nm" -g --defined-only "$build/libsaker.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
[ "$(echo "$declared" | wc -l)" -gt 20 ] || fail "only these functions found in saker.h: $declared"
expect_none "exported by libsaker.so but not declared in saker.h" "$(echo "$in_so" | grep -vxF "$declared")"
expect_none "declared in saker.h but not exported by libsaker.so" "$(echo "$declared" | grep -vxF "$in_so")"
expect_none "global in libsaker.a but not declared in saker.h" "$(echo "$in_a" | grep -vxF "$declared")"
expect_none "declared in saker.h but not in libsaker.a" "$(echo "$declared" | grep -vxF "$in_a")"
expect_none "internal names left undefined in libsaker.a" \
    "$("$nm" -u "$build/libsaker.a" 2>/dev/null | awk '$1 == "U" && /skr_|saker_/ { print $2 }')"
dynamic=$("$readelf" -dW "$build/libsaker.so")
expect_none "libraries that libsaker.so needs beyond libc" \
    "$(echo "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libdl|libpthread|ld-linux[^.]*|libgcc_s|libasan|libubsan|libtsan)\.so')"
expect_none "text relocations" "$(echo "$dynamic" | grep TEXTREL)"
expect_none "the wrong SONAME" "$(echo "$dynamic" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p' | grep -vx 'libsaker\.so\.[0-9]*')"
expect_none "an executable stack" "$("$readelf" -lW "$build/libsaker.so" | grep GNU_STACK | grep RWE)"
expect_none "constructors (the library must do nothing when it is loaded)" \
    "$("$nm" "$build/libsaker.a" 2>/dev/null | grep -i ' [a-z] _GLOBAL__')"
echo "check_symbols: $(echo "$declared" | wc -l) functions"
echo "$((checks - failed)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
