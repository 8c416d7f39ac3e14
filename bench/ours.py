"""Saker on torch tensors: through the Python binding when it can be imported, else by ctypes on build/libsaker.so.

Both are driven by the library's own field tables and give the same thing: prepare(op, **arguments) returns a function
without arguments that makes the call. Outputs are the caller's.
SPDX-License-Identifier: Apache-2.0
"""

import argparse
import ctypes as C
import os
import sys

import torch

import common
from common import ROOT

CODES = {
    torch.float32: (2, 32),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.int8: (0, 8),
    torch.uint8: (1, 8),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
    torch.float8_e4m3fn: (10, 8),
    torch.float8_e5m2: (12, 8),
}


class _Tensor(C.Structure):
    _fields_ = [
        ("data", C.c_void_p),
        ("device_type", C.c_int32),
        ("device_id", C.c_int32),
        ("ndim", C.c_int32),
        ("code", C.c_uint8),
        ("bits", C.c_uint8),
        ("lanes", C.c_uint16),
        ("shape", C.POINTER(C.c_int64)),
        ("strides", C.POINTER(C.c_int64)),
        ("byte_offset", C.c_uint64),
    ]


class _Config(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint64),
        ("device_type", C.c_int32),
        ("device_id", C.c_int32),
        ("threads", C.c_int32),
        ("check_level", C.c_int32),
        ("flags", C.c_uint64),
        ("isa", C.c_char_p),
        ("stream", C.c_void_p),
        ("parallel_for", C.c_void_p),
        ("parallel_user", C.c_void_p),
        ("parallel_width", C.c_int32),
        ("reserved", C.c_int32),
    ]


class _Field(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("doc", C.c_char_p),
        ("kind", C.c_int32),
        ("required", C.c_int32),
        ("offset", C.c_uint32),
        ("reserved", C.c_uint32),
        ("types", C.c_void_p),
        ("choices", C.c_char_p),
        ("default_value", C.c_double),
    ]


class _Op(C.Structure):
    _fields_ = [
        ("name", C.c_char_p),
        ("doc", C.c_char_p),
        ("fields", C.POINTER(_Field)),
        ("n_fields", C.c_int32),
        ("args_size", C.c_uint32),
    ]


class Native:
    """libsaker.so by ctypes."""

    way = "ctypes"

    def __init__(self, build, device, threads, nondeterministic=False):
        lib = self.lib = C.CDLL(os.path.join(build, "libsaker.so"))
        lib.saker_op_find.restype = C.POINTER(_Op)
        lib.saker_op_find.argtypes = [C.c_char_p]
        lib.saker_call.argtypes = [C.c_void_p, C.POINTER(_Op), C.c_void_p]
        for name in ("saker_context_error", "saker_context_kernel"):
            getattr(lib, name).restype = C.c_char_p
            getattr(lib, name).argtypes = [C.c_void_p]
        lib.saker_context_create.argtypes = [C.POINTER(C.c_void_p), C.POINTER(_Config)]
        self.cuda = device == "cuda"
        stream = torch.cuda.current_stream().cuda_stream if self.cuda else None
        config = _Config(
            struct_size=C.sizeof(_Config),
            device_type=2 if self.cuda else 1,
            threads=threads,
            flags=int(nondeterministic),
            stream=stream,
        )
        self.ctx = C.c_void_p()
        if lib.saker_context_create(C.byref(self.ctx), C.byref(config)):
            raise RuntimeError(lib.saker_context_error(None).decode())

    def _tensor(self, t):
        shape = (C.c_int64 * max(1, t.dim()))(*t.shape)
        strides = (C.c_int64 * max(1, t.dim()))(*t.stride())
        code, bits = CODES[t.dtype]
        return _Tensor(
            t.data_ptr(), 2 if t.is_cuda else 1, t.device.index or 0, t.dim(), code, bits, 1, shape, strides, 0
        )

    def prepare(self, op, **arguments):
        info = self.lib.saker_op_find(op.encode())
        args = C.create_string_buffer(info.contents.args_size)
        C.c_uint64.from_buffer(args, 0).value = info.contents.args_size
        keep = [args]
        for i in range(info.contents.n_fields):
            field = info.contents.fields[i]
            value = arguments.pop(field.name.decode(), None)
            if value is None:
                continue
            if field.kind <= 2:
                tensor = self._tensor(value)
                keep += [tensor, value]
                C.c_void_p.from_buffer(args, field.offset).value = C.addressof(tensor)
            elif field.kind == 3:
                C.c_float.from_buffer(args, field.offset).value = value
            elif field.kind == 7:
                C.c_double.from_buffer(args, field.offset).value = value
            elif field.kind == 6:
                C.c_int64.from_buffer(args, field.offset).value = value
            else:
                C.c_int32.from_buffer(args, field.offset).value = value
        if arguments:
            raise TypeError(f"{op} has no argument {', '.join(arguments)}")
        call, ctx, address = self.lib.saker_call, self.ctx, C.addressof(args)

        def run(keep=keep):
            if call(ctx, info, address):
                raise RuntimeError(self.lib.saker_context_error(ctx).decode())

        return run

    def kernel(self):
        return self.lib.saker_context_kernel(self.ctx).decode()


class Binding:
    """The package `saker`."""

    way = "python binding"

    def __init__(self, build, device, threads, nondeterministic=False):
        os.environ.setdefault("SAKER_LIBRARY", os.path.join(build, "libsaker.so"))
        sys.path.insert(0, os.path.join(ROOT, "python"))
        import saker

        self.saker = saker
        self.device = device
        saker.configure(threads=threads, nondeterministic=nondeterministic)

    def prepare(self, op, **arguments):
        call = getattr(self.saker, op)
        return lambda: call(**arguments)

    def kernel(self):
        return self.saker.kernel(self.device)


def open_library(build, device, threads, way=None, nondeterministic=False):
    if way != "ctypes":
        try:
            return Binding(build, device, threads, nondeterministic)
        except (ImportError, OSError) as why:
            if way == "binding":
                raise
            print(f"the package saker cannot be imported ({why}): ctypes instead", file=sys.stderr)
    return Native(build, device, threads, nondeterministic)


def begin_on_gpu(doc, what, seconds):
    """A script that records something on a GPU: its arguments, the library, and the head and path of its file."""
    name = what.replace(" ", "-")
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seconds", type=float, default=seconds, help="per case, at least seven rounds")
    parser.add_argument("--out", help=f"results file; without it bench/results/<machine>-{name}.json")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    torch.manual_seed(0)
    library = open_library(arguments.build, "cuda", 0)
    head = {"what": what, **common.describe(arguments.build, "cuda"), "torch": torch.__version__}
    path = arguments.out or os.path.join(common.RESULTS, f"{common.slug(head, 'cuda')}-{name}.json")
    return arguments, library, head, path
