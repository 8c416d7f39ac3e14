# gpu.py - compiles .cu text with nvcc, loads it with the driver and launches it on torch's memory; for the tuning scripts of this folder.
# SPDX-License-Identifier: Apache-2.0
import ctypes as C
import os
import random
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TYPES = {"f32": 0, "f16": 1, "bf16": 2, "e4m3": 3, "e5m2": 4, "i8": 5}
INCLUDES = '#include "cuda/sm90.cuh"\n' + "".join(
    f'#include "ops/norm/norm_{name}.cuh"\n' for name in "full lean wide backward_ring backward_rows parts".split()
)

# ---------------------------------------------------------------- compiling: needs no GPU


def compile_all(sources, folder, flags=(), jobs=None):
    """sources: name -> text. Writes folder/name.cubin for each; returns kernel -> {regs, spill} and name -> error."""
    os.makedirs(folder, exist_ok=True)

    def one(item):
        name, text = item
        path = f"{folder}/{name}.cu"
        with open(path, "w") as f:
            f.write(text)
        command = ["nvcc", "-O3", "-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-cubin", "-Xptxas", "-v"]
        r = subprocess.run(
            [*command, f"-I{ROOT}/src", *flags, path, "-o", f"{folder}/{name}.cubin"], capture_output=True, text=True
        )
        return name, r.returncode, r.stderr

    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        results = list(pool.map(one, sources.items()))
    info, errors = {}, {}
    for name, code, log in results:
        if code:
            errors[name] = log
        kernel = None
        for line in log.splitlines():
            if "Compiling entry function" in line:
                kernel = line.split("'")[1]
            elif "spill stores" in line and kernel:
                info[kernel] = {"spill": int(line.split("frame,")[1].split()[0])}
            elif "Used" in line and kernel:
                info[kernel]["regs"] = int(line.split("Used")[1].split()[0])
    return info, errors


# ---------------------------------------------------------------- the driver's launch structures and the jobs of the norms


class Attribute(C.Structure):
    _fields_ = [("id", C.c_int), ("pad", C.c_int), ("value", C.c_uint * 16)]


class Config(C.Structure):
    _fields_ = [
        ("grid", C.c_uint * 3),
        ("block", C.c_uint * 3),
        ("shared", C.c_uint),
        ("stream", C.c_void_p),
        ("attrs", C.POINTER(Attribute)),
        ("n", C.c_uint),
    ]


class Rows(C.Structure):
    _fields_ = [
        ("data", C.c_void_p),
        ("stride", C.c_int64 * 4),
        ("col_stride", C.c_int64),
        ("type", C.c_int32),
        ("reserved", C.c_int32),
    ]


class Param(C.Structure):
    _fields_ = [("data", C.c_void_p), ("stride", C.c_int64), ("type", C.c_int32), ("reserved", C.c_int32)]


HEAD = [
    ("workspace", C.c_void_p),
    ("error_word", C.c_void_p),
    ("m", C.c_int64),
    ("n_dims", C.c_int32),
    ("reserved", C.c_int32),
    ("dims", C.c_int64 * 4),
    ("n", C.c_int64),
    ("heads", C.c_int64),
]
OPTIONS = [("eps", C.c_float), ("offset", C.c_float), ("round_before_weight", C.c_int32)]


class Forward(C.Structure):
    _fields_ = (
        HEAD
        + [(k, Rows) for k in "x residual y residual_out y_quant mean rstd scale".split()]
        + [("weight", Param), ("bias", Param)]
        + OPTIONS
        + [("quant", C.c_int32), ("centre", C.c_int32), ("pad", C.c_int32), ("tail", C.c_int64 * 32)]
    )


class Backward(C.Structure):
    _fields_ = (
        HEAD
        + [(k, Rows) for k in "dy x dres dx mean rstd".split()]
        + [(k, Param) for k in "weight dweight dbias".split()]
        + OPTIONS
        + [("accumulate", C.c_int32), ("centre", C.c_int32), ("pad", C.c_int32), ("n_parts", C.c_int64), ("rows_per_part", C.c_int64), ("tail", C.c_int64 * 32)]
    )


class Copy(C.Structure):
    _fields_ = [("x", C.c_void_p), ("y", C.c_void_p), ("n", C.c_int64)]


def type_of(tensor):
    names = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "e4m3", "int8": "i8"}
    return TYPES[names[str(tensor.dtype).split(".")[1]]]


def job(kind, m, n, workspace=None, **fields):
    j = kind()
    j.m, j.n_dims, j.n, j.heads, j.eps = m, 1, n, 1, 1e-6
    j.dims[0] = m
    if workspace is not None:
        j.workspace = workspace.data_ptr()
    for name, value in fields.items():
        if isinstance(getattr(j, name), Rows):
            value = Rows(value.data_ptr(), (C.c_int64 * 4)(value.stride(0), 0, 0, 0), 1, type_of(value), 0)
        elif isinstance(getattr(j, name), Param):
            value = Param(value.data_ptr(), 0, type_of(value), 0)
        setattr(j, name, value)
    return j


# ---------------------------------------------------------------- the GPU


class Driver:
    def __init__(self):
        self.cu = C.CDLL("libcuda.so.1")
        self.modules = {}

    def check(self, code, what):
        if code:
            text = C.c_char_p()
            self.cu.cuGetErrorString(code, C.byref(text))
            raise RuntimeError(f"{what}: {code} {(text.value or b'').decode()}")

    def kernel(self, path, name, threads):
        if path not in self.modules:
            module = C.c_void_p()
            self.check(self.cu.cuModuleLoad(C.byref(module), path.encode()), path)
            self.modules[path] = module
        f = C.c_void_p()
        self.check(self.cu.cuModuleGetFunction(C.byref(f), self.modules[path], name.encode()), name)
        return Kernel(self, f, name, threads)


class Kernel:
    def __init__(self, driver, f, name, threads):
        self.driver, self.f, self.name, self.threads = driver, f, name, threads

    def config(self, grid, shared=0, cluster=1):
        check, cu = self.driver.check, self.driver.cu
        if shared > 40 * 1024:
            check(cu.cuFuncSetAttribute(self.f, 8, shared), f"{self.name}: {shared} bytes of shared memory")
        if cluster > 8:
            check(cu.cuFuncSetAttribute(self.f, 14, 1), "non-portable cluster")
        attrs = (Attribute * 1)()
        attrs[0].id = 4
        attrs[0].value[0], attrs[0].value[1], attrs[0].value[2] = cluster, 1, 1
        one = C.c_uint * 3
        c = Config(one(grid, 1, 1), one(self.threads, 1, 1), shared, None, attrs, 1 if cluster > 1 else 0)
        c.keep = attrs
        return c

    def resident(self, shared, cluster, sms):
        """Blocks, or clusters, that the GPU holds at once."""
        check, cu, n = self.driver.check, self.driver.cu, C.c_int()
        config = self.config(cluster * 264, shared, cluster)
        if cluster > 1:
            check(cu.cuOccupancyMaxActiveClusters(C.byref(n), self.f, C.byref(config)), "cluster occupancy")
            return n.value
        f = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor
        check(f(C.byref(n), self.f, self.threads, C.c_size_t(shared)), "occupancy")
        return n.value * sms

    def launcher(self, config, job, stream):
        args = (C.c_void_p * 1)(C.addressof(job))
        config.stream = stream
        launch, f, ref = self.driver.cu.cuLaunchKernelEx, self.f, C.byref(config)

        def go():
            code = launch(ref, f, args, None)
            if code:
                self.driver.check(code, self.name)

        go.keep = (config, job, args)
        return go


def time_all(torch, calls, reps):
    """calls: name -> function. In turn, in a new order each round, events around each; median in microseconds."""
    names = list(calls)
    pair = lambda: (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
    events = {n: [pair() for _ in range(reps)] for n in names}
    for n in names:
        calls[n]()
    torch.cuda.synchronize()
    for r in range(reps):
        random.shuffle(names)
        torch.cuda._sleep(1_500_000)  # so that the queue never runs dry and no launch gap is timed
        for n in names:
            a, b = events[n][r]
            a.record()
            calls[n]()
            b.record()
        torch.cuda.synchronize()
    return {n: statistics.median(a.elapsed_time(b) for a, b in events[n]) * 1e3 for n in names}
