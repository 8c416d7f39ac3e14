#!/bin/sh
# portable_fatbin.sh SOURCE OUT SM...: the image of a portable CUDA file: code for each SM, and PTX of compute_80.
# NVCC, NVCCFLAGS, PTXASFLAGS and COMPRESS come from the Makefile.
#
# nvcc's front end takes half of the time and would run once for each architecture; it makes the same PTX for both but
# for what the source keeps apart. So it runs once, for compute_80, and the source writes such instructions twice: lines
# of inline PTX that end with "// sm_80", and lines that begin with "// sm_90: ".
# SPDX-License-Identifier: Apache-2.0
set -eu
source=$1 out=$2 tools=$(dirname "$NVCC")
shift 2
trap 'rm -f "$out".*.ptx "$out".*.cubin' EXIT
"$NVCC" $NVCCFLAGS -ptx -gencode arch=compute_80,code=compute_80 -MMD -MP -MF "$out.d" -MT "$out" "$source" -o "$out.80.ptx"
images=--image3=kind=ptx,sm=80,file=$out.80.ptx
for sm; do
    [ "$sm" = 80 ] || sed -e "s/^\.target sm_80/.target sm_$sm/" -e '/\/\/ sm_80$/d' -e "s|// sm_$sm: ||" "$out.80.ptx" >"$out.$sm.ptx"
    "$tools/ptxas" -arch=sm_"$sm" -m64 $PTXASFLAGS "$out.$sm.ptx" -o "$out.$sm.cubin"
    images="$images --image3=kind=elf,sm=$sm,file=$out.$sm.cubin"
done
"$tools/fatbinary" --create="$out" -64 $COMPRESS $images
