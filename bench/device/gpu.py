# gpu.py - compiles .cu text with nvcc, loads it with the driver and launches it on torch's memory; for the tuning scripts of this folder.
# SPDX-License-Identifier: Apache-2.0
import ctypes as C, os, statistics, subprocess, tempfile
from concurrent.futures import ThreadPoolExecutor
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
cu = C.CDLL("libcuda.so.1")
TYPES = {"f32": 0, "f16": 1, "bf16": 2, "e4m3": 3, "e5m2": 4, "i8": 5}
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "i8": torch.int8}
NAME = {v: k for k, v in TORCH.items()}


def check(code, what):
    if code:
        text = C.c_char_p()
        cu.cuGetErrorString(code, C.byref(text))
        raise RuntimeError(f"{what}: {code} {text.value}")


class Attribute(C.Structure):
    _fields_ = [("id", C.c_int), ("pad", C.c_int), ("value", C.c_uint * 16)]


class Config(C.Structure):
    _fields_ = [("grid", C.c_uint * 3), ("block", C.c_uint * 3), ("shared", C.c_uint), ("stream", C.c_void_p),
                ("attrs", C.POINTER(Attribute)), ("n", C.c_uint)]


class Rows(C.Structure):
    _fields_ = [("data", C.c_void_p), ("stride", C.c_int64 * 4), ("col_stride", C.c_int64), ("type", C.c_int32), ("reserved", C.c_int32)]


class Param(C.Structure):
    _fields_ = [("data", C.c_void_p), ("stride", C.c_int64), ("type", C.c_int32), ("reserved", C.c_int32)]


HEAD = [("workspace", C.c_void_p), ("error_word", C.c_void_p), ("m", C.c_int64), ("n_dims", C.c_int32), ("reserved", C.c_int32),
        ("dims", C.c_int64 * 4), ("n", C.c_int64), ("heads", C.c_int64)]


class Forward(C.Structure):
    _fields_ = HEAD + [(k, Rows) for k in "x residual y residual_out y_quant rstd scale".split()] + [("weight", Param), ("bias", Param),
        ("eps", C.c_float), ("offset", C.c_float), ("rbw", C.c_int32), ("quant", C.c_int32), ("tail", C.c_int64 * 32)]


class Backward(C.Structure):
    _fields_ = HEAD + [(k, Rows) for k in "dy x dres dx rstd".split()] + [(k, Param) for k in "weight dweight dbias".split()] + [
        ("eps", C.c_float), ("offset", C.c_float), ("rbw", C.c_int32), ("accumulate", C.c_int32), ("n_parts", C.c_int64), ("rows_per_part", C.c_int64), ("tail", C.c_int64 * 32)]


def rows(t):
    if t is None:
        return Rows()
    return Rows(t.data_ptr(), (C.c_int64 * 4)(t.stride(0), 0, 0, 0), 1, TYPES[NAME[t.dtype]], 0)


def param(t):
    return Param() if t is None else Param(t.data_ptr(), 0, TYPES[NAME[t.dtype]], 0)


def job(kind, m, n, workspace=None, **kw):
    j = kind()
    j.m, j.n_dims, j.n, j.heads, j.eps = m, 1, n, 1, 1e-6
    j.dims[0] = m
    if workspace is not None:
        j.workspace = workspace.data_ptr()
    for k, v in kw.items():
        if isinstance(getattr(j, k), Rows):
            setattr(j, k, rows(v))
        elif isinstance(getattr(j, k), Param):
            setattr(j, k, param(v))
        else:
            setattr(j, k, v)
    return j


class Kernel:
    def __init__(self, module, name, threads):
        self.f, self.name, self.threads = C.c_void_p(), name, threads
        check(cu.cuModuleGetFunction(C.byref(self.f), module, name.encode()), name)

    def config(self, grid, shared=0, cluster=1):
        if shared > 48 * 1024 - 8192:
            check(cu.cuFuncSetAttribute(self.f, 8, shared), f"{self.name} shared {shared}")
        if cluster > 8:
            check(cu.cuFuncSetAttribute(self.f, 14, 1), "non-portable")
        attrs = (Attribute * 1)()
        attrs[0].id = 4
        attrs[0].value[0], attrs[0].value[1], attrs[0].value[2] = cluster, 1, 1
        c = Config((C.c_uint * 3)(grid, 1, 1), (C.c_uint * 3)(self.threads, 1, 1), shared, None, attrs, 1 if cluster > 1 else 0)
        c.keep = attrs
        return c

    def blocks_per_sm(self, shared=0):
        if shared > 48 * 1024 - 8192:
            check(cu.cuFuncSetAttribute(self.f, 8, shared), f"{self.name} shared {shared}")
        n = C.c_int()
        check(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(C.byref(n), self.f, self.threads, C.c_size_t(shared)), "occupancy")
        return n.value

    def clusters(self, shared, cluster):
        c, n = self.config(cluster * 264, shared, cluster), C.c_int()
        check(cu.cuOccupancyMaxActiveClusters(C.byref(n), self.f, C.byref(c)), "cluster occupancy")
        return n.value

    def launcher(self, config, job):
        args = (C.c_void_p * 1)(C.addressof(job))
        config.stream = torch.cuda.current_stream().cuda_stream
        f, ref = self.f, C.byref(config)

        def go():
            code = cu.cuLaunchKernelEx(ref, f, args, None)
            if code:
                check(code, self.name)
        go.keep = (config, job, args)
        return go


def build(sources, flags=(), jobs=16):
    """sources: name -> text. Compiles all in parallel, returns name -> loaded module and prints spills."""
    folder = tempfile.mkdtemp()

    def one(item):
        name, text = item
        path = f"{folder}/{name}.cu"
        with open(path, "w") as f:
            f.write(text)
        r = subprocess.run(["nvcc", "-O3", "-std=c++17", "-gencode", "arch=compute_90,code=sm_90", "-cubin", "-Xptxas", "-v", f"-I{ROOT}/src",
                            *flags, path, "-o", f"{folder}/{name}.cubin"], capture_output=True, text=True)
        if r.returncode:
            raise RuntimeError(r.stderr)
        return name, r.stderr
    with ThreadPoolExecutor(jobs) as pool:
        logs = dict(pool.map(one, sources.items()))
    torch.zeros(1, device="cuda")
    modules = {}
    for name in sources:
        module = C.c_void_p()
        check(cu.cuModuleLoad(C.byref(module), f"{folder}/{name}.cubin".encode()), name)
        modules[name] = module
    info = {}
    for text in logs.values():
        kernel = None
        for line in text.splitlines():
            if "Compiling entry function" in line:
                kernel = line.split("'")[1]
            elif "spill stores" in line and kernel:
                info[kernel] = {"spill": int(line.split("frame,")[1].split()[0])}
            elif "Used" in line and kernel:
                info[kernel]["regs"] = int(line.split("Used")[1].split()[0])
    return modules, info


def time_all(calls, reps=12, between=None):
    """calls: name -> function. Interleaved, events around each; microseconds, median."""
    names = list(calls)
    events = {n: [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(reps)] for n in names}
    for n in names:
        calls[n]()
    torch.cuda.synchronize()
    for r in range(reps):
        torch.cuda._sleep(1_500_000)  # so that the queue never runs dry and no launch gap is timed
        for n in names:
            if between:
                between()
            a, b = events[n][r]
            a.record()
            calls[n]()
            b.record()
        torch.cuda.synchronize()
    return {n: statistics.median(a.elapsed_time(b) for a, b in events[n]) * 1e3 for n in names}
