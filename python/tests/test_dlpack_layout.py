"""The binding's own DLPack declarations have the layout of a real DLPack header: the one that PyTorch ships.
SPDX-License-Identifier: Apache-2.0
"""
import os
import shutil
import subprocess

import pytest

from conftest import need_torch

torch = need_torch()

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = os.path.join(os.path.dirname(torch.__file__), "include", "ATen", "dlpack.h")
COMPILER = shutil.which(os.environ.get("CC", "cc"))

FIELDS = "data device ndim dtype shape strides byte_offset"
# (our struct, its fields; theirs, its fields)
STRUCTS = [
    ("dlpack_version", "major minor", "DLPackVersion", "major minor"),
    ("saker_tensor", FIELDS, "DLTensor", FIELDS),
    ("dlpack_legacy", "tensor manager deleter", "DLManagedTensor", "dl_tensor manager_ctx deleter"),
    (
        "dlpack_versioned", "version manager deleter flags tensor",
        "DLManagedTensorVersioned", "version manager_ctx deleter flags dl_tensor",
    ),
    (
        "dlpack_exchange",
        "version previous allocate managed_from_object managed_to_object view_from_object current_stream",
        "DLPackExchangeAPI",
        "header.version header.prev_api managed_tensor_allocator managed_tensor_from_py_object_no_sync "
        "managed_tensor_to_py_object_no_sync dltensor_from_py_object_no_sync current_work_stream",
    ),
]  # fmt: skip
VALUES = [
    ("DLPACK_MAJOR", "DLPACK_MAJOR_VERSION"), ("DLPACK_READ_ONLY", "DLPACK_FLAG_BITMASK_READ_ONLY"),
    ("DLPACK_COPIED", "DLPACK_FLAG_BITMASK_IS_COPIED"),
    ("DLPACK_SUBBYTE_PADDED", "DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED"),
]  # fmt: skip


@pytest.mark.skipif(not COMPILER, reason="no C compiler")
@pytest.mark.skipif(not os.path.exists(HEADER), reason="this PyTorch ships no DLPack header")
def test_layout(tmp_path):
    lines = ["#include <stddef.h>", '#include "_dlpack.h"', f'#include "{HEADER}"']
    for ours, our_fields, theirs, their_fields in STRUCTS:
        lines.append(f'_Static_assert(sizeof({ours}) == sizeof({theirs}), "size of {ours}");')
        for a, b in zip(our_fields.split(), their_fields.split()):
            lines.append(f'_Static_assert(offsetof({ours}, {a}) == offsetof({theirs}, {b}), "{ours}.{a}");')
    lines += [f'_Static_assert({a} == {b}, "{a}");' for a, b in VALUES]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    includes = [f"-I{ROOT}/include", f"-I{ROOT}/python/saker"]
    command = [COMPILER, "-std=gnu11", "-fsyntax-only", *includes, str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
