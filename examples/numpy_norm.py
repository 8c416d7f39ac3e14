"""RMSNorm of a NumPy array: f32, and bfloat16 where ml_dtypes is installed.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np
import saker

x = np.random.default_rng(0).standard_normal((256, 1024), dtype=np.float32)
weight = np.ones(1024, dtype=np.float32)

y = saker.rms_norm(x, weight)  # a new array
saker.rms_norm(x, weight, y=y)  # or into one that is there: nothing is allocated
print("mean square of a row:", float(np.mean(y[0] ** 2)), "by", saker.kernel())
assert np.allclose(y, x / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-6), atol=1e-5)

try:
    from ml_dtypes import bfloat16
except ImportError:
    print("ml_dtypes is not installed: no bfloat16 in NumPy")
else:
    z = saker.rms_norm(x.astype(bfloat16), weight.astype(bfloat16))
    print("bfloat16 too:", z.dtype, float(np.mean(z[0].astype(np.float32) ** 2)))

try:
    saker.rms_norm(x, weight[:-1])
except saker.Error as error:
    print("and a mistake is a sentence:", error)
