#!/bin/sh
# The few rules of form that a program can check. Usage: check_style.sh [root]
# SPDX-License-Identifier: Apache-2.0
cd "${1:-$(dirname "$0")/..}" || exit 1
failed=0 checks=0
if git rev-parse --git-dir >/dev/null 2>&1; then
    list() { git ls-files --cached --others --exclude-standard -- "$@"; }
else
    list() { find . -path ./.venv -prune -o -path './build*' -prune -o -type f -print | sed 's|^\./||' | grep -E "$(echo "$@" | sed 's/\*\./[^ ]*\\./g; s/ /$|/g')\$"; }
fi
source=$(list '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.def' '*.S')
other=$(list '*.sh' '*.py' '*.mk' '*.md' 'Makefile' '.ci/run' '*.toml' '*.cmake')
refuse() { # text, lines
    checks=$((checks + 1))
    [ -z "$2" ] && return
    failed=$((failed + 1))
    echo "FAIL $1:"
    echo "$2" | head -20 | sed 's/^/     /'
}
tab=$(printf '\t')
refuse "a tab in source" "$(grep -n "$tab" $source /dev/null)"
refuse "spaces at the end of a line" "$(grep -nE ' +$' $source $other /dev/null)"
refuse "lines longer than 120" "$(awk 'length($0) > 120 { print FILENAME ":" FNR ": " length($0) }' $source)"
refuse "unfinished work" "$(grep -nE '\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b|^ *# *if 0' $source $other /dev/null)"
refuse "a path of somebody's machine" "$(grep -nE '(^|[^a-z.])/(work|home|root)/' $source $other /dev/null)"
refuse "no SPDX line" "$(grep -L 'SPDX-License-Identifier: Apache-2.0' $(echo "$source" | grep -v '\.def$') $(list '*.sh' '*.py' '*.mk' Makefile))"
# saker.h is one file because it is the whole manual.
refuse "a file of more than 700 lines" "$(wc -l $source | awk '$2 != "total" && $2 != "include/saker.h" && $1 > 700')"
refuse "no newline at the end" "$(for f in $source $other; do [ ! -s "$f" ] || [ -z "$(tail -c 1 "$f")" ] || echo "$f"; done)"
echo "check_style: $(echo "$source" | wc -l) source files, $(echo "$other" | wc -l) others"
echo "$((checks - failed)) passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
