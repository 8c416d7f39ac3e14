"""Saker: fused transformer kernels for the CPU and for NVIDIA GPUs.

    import numpy, saker
    y = saker.rms_norm(x, weight)                 # NumPy arrays: outputs are allocated
    saker.rms_norm(x, weight, y=y)                # anything that speaks DLPack, on any device: outputs are given

    import saker.torch                            # PyTorch: autograd, torch.compile, a drop-in RMSNorm module
    y = saker.torch.rms_norm(x, weight)

Every operation of the library is here as a function, made from the library's own table: saker.ops() lists them and
help(saker.rms_norm) shows the arguments. Tensors are not copied, except NumPy inputs whose strides are negative or no
whole number of elements. Importing starts nothing: no thread, no CUDA.
SPDX-License-Identifier: Apache-2.0
"""
import importlib
import os

from . import _saker

_saker.load(os.environ.get("SAKER_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libsaker.so"))

from . import numpy  # noqa: E402  (the NumPy front; it does not import NumPy)
from .numpy import Field, Op  # noqa: E402

Error = _saker.Error
__version__ = _saker.cpu()["version"]

_ops = numpy.OPS
_DEVICES = {"cpu": 1, "cuda": 2}

for _name in _ops:
    globals()[_name] = getattr(numpy, _name)
del _name


def ops():
    """The operations of the library: {name: Op(name, doc, fields)}."""
    return dict(_ops)


def info():
    """What the library holds and what this machine offers. Looks for CUDA devices, so it starts the driver."""
    devices, why = _saker.cuda()
    return {**_saker.cpu(), "cuda": devices, "cuda_why_not": why, "ops": list(_ops)}


def explain(op, /, *args, **kwargs):
    """Which kernel a call with these arguments would run, and why others would not. Runs nothing.

    The arguments are those of the operation's function; outputs that it would allocate are allocated.
    """
    if op not in _ops:
        raise KeyError(f"saker: there is no operation {op!r}, expected one of {', '.join(_ops)}")
    return numpy.EXPLAIN[op](*args, **kwargs)


def _device(device):
    name, _, index = str(device).partition(":")
    index = index or "0"
    if name not in _DEVICES or not (index.isascii() and index.isdigit()):
        raise ValueError(f"saker: device is {device!r}, expected 'cpu', 'cuda' or 'cuda:<number>'")
    return _DEVICES[name], int(index)


def kernel(device="cpu"):
    """Name of the kernel that this thread's last call on the device ran; "" before the first."""
    return _saker.kernel(*_device(device))


def check(device="cpu"):
    """Waits for this thread's work on the device and raises what only a kernel could see (an index out of range)."""
    _saker.check(*_device(device))


def configure(*, threads=0, isa=None, check_level=0, nondeterministic=False):
    """How calls run from now on, in every thread of this process; each argument left out goes back to its default.

    threads: CPU threads, 0 for all allowed cores. isa: highest CPU instruction-set level, by name. check_level: 3 also
    looks at pointer attributes. nondeterministic: faster kernels may give other bits from run to run.
    """
    _saker.configure(threads, check_level, int(bool(nondeterministic)), isa)


def __getattr__(name):
    if name == "torch":  # import saker; saker.torch.rms_norm(...)
        return importlib.import_module("saker.torch")
    raise AttributeError(f"module 'saker' has no attribute {name!r}")


__all__ = ["Error", "Field", "Op", "check", "configure", "explain", "info", "kernel", "ops", "numpy", *_ops]
