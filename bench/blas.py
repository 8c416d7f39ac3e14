"""f32 products by OpenBLAS and BLIS, where they are installed (Debian: libopenblas0-pthread, libblis4-pthread).

SPDX-License-Identifier: Apache-2.0
"""

import ctypes
import os

os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")  # else its idle threads take time from whoever comes next
ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112
LIBRARIES = {
    "OpenBLAS": ("libopenblas.so.0", "openblas_set_num_threads"),
    "BLIS": ("libblis.so.4", "bli_thread_set_num_threads"),
}


def available(threads):
    """{name: cblas_sgemm}, each with so many threads."""
    found = {}
    for name, (file, set_threads) in LIBRARIES.items():
        try:
            library = ctypes.CDLL(file)
        except OSError:
            continue
        getattr(library, set_threads)(threads)
        found[name] = library.cblas_sgemm
    return found


def linear(sgemm, a, weight, d):
    """d = a weight^T, as a call without arguments; contiguous f32 tensors."""
    (m, k), n = a.shape, len(weight)
    pointer = lambda t: ctypes.c_void_p(t.data_ptr())
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    arguments = (ROW_MAJOR, NO_TRANS, TRANS, m, n, k, one, pointer(a), k, pointer(weight), k, zero, pointer(d), n)

    def run(tensors=(a, weight, d)):  # they must outlive their addresses
        sgemm(*arguments)

    return run
