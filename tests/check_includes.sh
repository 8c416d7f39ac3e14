#!/bin/sh
# Include direction: core knows nothing above it; cpu and cuda know core; an op knows itself, core, the launch or table
# header of a backend, and the _op.h and _plan.h of operations that it is made of; kernels know their job header, job.h and their backend's vocabulary; cli, examples and bench know
# saker.h alone (and the case tables). Usage: check_includes.sh [root]
# SPDX-License-Identifier: Apache-2.0
cd "${1:-$(dirname "$0")/..}" || exit 1
find src cli examples bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.S' | sort | xargs grep -Hn '^ *# *include *"' |
    awk -F: '
    function resolve(file, name,    path, n, part, out, i) { # the path that "name" means, seen from file
        if (name == "saker.h") return "include/saker.h"
        if (name ~ /^suite(_convert)?\.h$/) return "tests/" name
        path = file; sub(/[^\/]*$/, "", path); path = path name
        n = split(path, part, "/"); out = ""
        for (i = 1; i <= n; i++)
            if (part[i] == "..") sub(/\/?[^\/]*$/, "", out)
            else if (part[i] != ".") out = out (out == "" ? "" : "/") part[i]
        return out
    }
    function allowed(file,    own) {
        own = file; sub(/[^\/]*$/, "", own)
        if (file ~ /^src\/ops\/.*_test\.[ch]$/) return "^(include/saker.h$|tests/suite|" own ")"
        if (file ~ /^src\/core\//) return "^(include/saker.h$|src/core/)"
        if (file ~ /^src\/cpu\//) return "^(include/saker.h$|src/core/|src/cpu/)"
        if (file ~ /^src\/cuda\//) return "^(include/saker.h$|src/core/|src/cuda/)"
        if (file ~ /_cpu\.[ch]$/) return "^(src/core/(job|num|philox|tile).h$|src/cpu/(simd|gemm)/|src/cpu/(rows|quant).h$|" own ")"
        if (file ~ /\.cuh?$/) return "^(src/core/(job|philox).h$|src/cuda/[a-z0-9_]*\\.cuh$|" own ")"
        if (file ~ /^src\/ops\//) return "^(include/saker.h$|src/core/|src/cuda/(launch|rows_plan).h$|src/cpu/table.h$|src/ops/[a-z_/]*_(op|plan).h$|" own ")"
        return "^(include/saker.h$|tests/(suite|compare)|src/core/ops.def$|" own ")"
    }
    {
        name = $3; sub(/^[^"]*"/, "", name); sub(/".*/, "", name)
        target = resolve($1, name); count++
        if (target !~ allowed($1)) { print "FAIL " $1 ":" $2 " includes " target; failed++ }
    }
    END {
        print "check_includes: " count " includes"
        print (failed ? 0 : 1) " passed, " failed + 0 " failed, 0 skipped"
        exit failed > 0
    }'
