#!/usr/bin/env python3
"""Turns the CUDA sources into C++ that machine.cpp can run: rewrite.py SRC OUT copies the tree SRC to OUT and changes there

- each asm statement to a call, emu_<its first instruction>(outputs, inputs): words.h has those functions;
- shared variables to references into the block's shared memory;
- the parameter of kernels, which a launch passes by value, to a reference;
- wgmma.cuh, whose statements are too long to be read by machine, to wgmma.h.
SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import re
import shutil
import sys

STRING = r'"((?:[^"\\]|\\.)*)"'


def split(text, separator):
    """At separators that are outside of strings and brackets."""
    parts, depth, quoted, start, at = [], 0, False, 0, 0
    while at < len(text):
        c = text[at]
        if c == "\\" and quoted:
            at += 1
        elif c == '"':
            quoted = not quoted
        elif not quoted and c in "([{":
            depth += 1
        elif not quoted and c in ")]}":
            depth -= 1
        elif not quoted and depth == 0 and c == separator:
            parts.append(text[start:at])
            start = at + 1
        at += 1
    return parts + [text[start:]]


def instruction(template):
    """The first that does something: no declaration, label or move (but of a special register)."""
    for line in re.split(r"[;\n]", template):
        line = re.sub(r"^@!?\w+ ", "", line.strip(" {}"))
        if "cluster_ctarank" in line or "cluster_nctarank" in line:
            return re.search(r"cluster_n?ctarank", line).group()
        if line.startswith("setp.ne.u32"):  # the condition of what follows
            continue
        if line and not line.startswith((".reg", "mov")) and not line.endswith(":"):
            size = re.search(r"\], (\d+)(, [a-z])?", line)  # cp.async has its size behind the addresses, then a condition
            copied = line.startswith("cp.async.c") and size
            return line.split()[0] + ("." + size.group(1) + (".unless" if size.group(2) else "") if copied else "")
    return None


def call(body):
    """The inside of asm( ... )."""
    template, *operands = split(body, ":")
    text = "".join(re.findall(STRING, template)).replace("\\n", "\n")
    macro = re.search(r"\bSKR_(LOAD|STORE)_\w+", re.sub(STRING, "", template))
    if macro:  # the architecture's way to say ld.global or st.global
        text = ("ld.global" if macro.group(1) == "LOAD" else "st.global") + text
    what = instruction(text)
    if not what:
        return "(void)0;"
    if what.startswith("createpolicy"):  # a policy and the load that uses it
        what = "tensor_once"
    given = [re.match(STRING + r"\s*\((.*)\)$", o.strip(), re.S) for part in operands[:2] for o in split(part, ",")]
    return f"emu_{re.sub(r'[^0-9A-Za-z_]', '_', what.replace('::', '_'))}({', '.join(g.group(2) for g in given if g)});"


def without_asm(text):
    out, at = "", 0
    for start in re.finditer(r"\basm\s*(?:volatile)?\s*\(", text):
        end, depth, quoted = start.end(), 1, False
        while depth:
            c = text[end]
            if c == "\\" and quoted:
                end += 1
            elif c == '"':
                quoted = not quoted
            elif not quoted:
                depth += (c == "(") - (c == ")")
            end += 1
        out += text[at : start.start()] + call(text[start.end() : end - 1])
        at = text.index(";", end) + 1
    return out + text[at:]


def shared_variable(found):
    kind, name, dims = found.group(1).strip(), found.group(2), found.group(3)
    return (
        f"using {name}_type = {kind}{dims}; static const uint32_t {name}_at = emu_place(sizeof({name}_type)); "
        f"{name}_type &{name} = *({name}_type *)emu_static({name}_at);"
    )


def rewrite(text):
    text = without_asm(text)
    text = re.sub(r"extern __shared__ __align__\(\d+\) ([\w ]+?) (\w+)\[\];", r"\1 *\2 = (\1 *)emu_dynamic();", text)
    text = re.sub(r"__shared__ (?!struct)(?:__align__\(\d+\) )?([^;\[{,]*?)\b(\w+)((?:\[[^\]]*\])*);", shared_variable, text)
    return re.sub(r"const __grid_constant__ (\w+) job", r"const \1 &job", text)


def main():
    source, out = map(pathlib.Path, sys.argv[1:])
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(source, out)
    for path in [*out.rglob("*.cuh"), *out.rglob("*.cu")]:
        path.write_text(rewrite(path.read_text()))
    (out / "cuda" / "wgmma.cuh").write_text('#pragma once\n#include "device.cuh"\n#include "wgmma.h"\n')


if __name__ == "__main__":
    main()
