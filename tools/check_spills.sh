#!/bin/sh
# Fails when an nvcc log (ptxas -v) reports a kernel that spills registers or uses local memory and tools/spills.txt does not list it.
# SPDX-License-Identifier: Apache-2.0
log=$1
allowed=$(dirname "$0")/spills.txt
awk -v allowed="$allowed" '
    BEGIN { while ((getline line < allowed) > 0) if (line !~ /^#/ && split(line, part, " ") > 1) known[part[1]] = 1 }
    /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2] }
    /bytes stack frame/ {
        split($0, n, /[^0-9]+/)
        if (($0 !~ / 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/) && !(name in known) && !/^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/) {
            print "spills: " name ":" $0
            bad = 1
        }
    }
    END { exit bad }' "$log" || { echo "$log: a kernel uses local memory; mend it, or list it in tools/spills.txt with a reason"; exit 1; }
