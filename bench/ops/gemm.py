"""gemm beside torch: squares, a linear layer's weight with few rows, bias and activation, quantised and batched products.
SPDX-License-Identifier: Apache-2.0
"""

import torch
import torch.nn.functional as F

import blas

from . import draw, Op, rows_error, some_rows, TYPES, without_gradient

GELU, SILU, HALVES = 4, 3, 1
TENSOR, ROW_COLUMN, BLOCK, GROUP = 1, 2, 3, 4  # scaling
FP8 = [(n, n, n) for n in (2048, 4096, 8192)] + [(16384, 4096, 4096), (1536, 1536, 16384), (16, 4096, 4096), (64, 14336, 4096)]


class Product(Op):
    """m x n x n with a weight [n, n] as a linear layer keeps it; a square where rows is not given."""

    name = "gemm"
    cpu_widths = (512, 1024, 2048)
    cuda_widths = (1024, 2048, 4096, 8192)

    def __init__(self, label, rows=None, width=None):
        self.label, self.rows, self.width = label, rows, width

    def shapes(self, kind, device, types, widths):
        if kind == "quack":
            return []
        sizes = [self.width] if self.width else self.cuda_widths if device == "cuda" else self.cpu_widths
        return [(t, self.rows or n, n) for t in types for n in sizes if not widths or n in widths]

    def traffic(self, dtype, m, n):
        return (2 * m * n + n * n) * TYPES[dtype].itemsize, 2, 1

    def operations(self, dtype, m, n):
        return 2 * m * n * n

    def tensors(self, dtype, m, n, device, generator):
        return {
            "a": draw(generator, dtype, device, m, n),
            "weight": draw(generator, dtype, device, n, n),
            "d": torch.empty(m, n, dtype=TYPES[dtype], device=device),
        }

    def arguments(self, t):
        return {"a": t["a"], "b": t["weight"].t(), "d": t["d"]}

    def function(self):
        return lambda a, weight: F.linear(a, weight)

    def inputs(self, t):
        return [t[name] for name in t if name not in ("d",)]

    def torch(self, t, compiled):
        function = self.function()
        if compiled is None:
            return without_gradient(function, *self.inputs(t))

        def into(d, *inputs):
            d.copy_(function(*inputs))

        return without_gradient(compiled(into), t["d"], *self.inputs(t))

    def others(self, t, threads):
        if t["a"].dtype != torch.float32 or t["a"].device.type != "cpu" or type(self) is not Product:
            return {}
        d = torch.empty_like(t["d"])
        return {name: blas.linear(f, t["a"], t["weight"], d) for name, f in blas.available(threads).items()}

    def error(self, t):
        rows = some_rows(len(t["a"]))
        doubles = [x.double() for x in self.inputs(t)]
        return rows_error(t["d"][rows], self.function()(doubles[0][rows], *doubles[1:]))


class BiasGelu(Product):
    def tensors(self, dtype, m, n, device, generator):
        return {**super().tensors(dtype, m, n, device, generator), "bias": draw(generator, dtype, device, n)}

    def arguments(self, t):
        return {**super().arguments(t), "bias": t["bias"], "act": GELU}

    def function(self):
        return lambda a, weight, bias: F.gelu(F.linear(a, weight, bias))


class Residual(Product):
    """A linear layer's output added to what comes past it."""

    def traffic(self, dtype, m, n):
        return (3 * m * n + n * n) * TYPES[dtype].itemsize, 3, 1

    def tensors(self, dtype, m, n, device, generator):
        return {**super().tensors(dtype, m, n, device, generator), "c": draw(generator, dtype, device, m, n)}

    def arguments(self, t):
        return {**super().arguments(t), "c": t["c"], "beta": 1.0}

    def function(self):
        return lambda a, weight, c: torch.addmm(c, a, weight.t())

    def error(self, t):
        rows = some_rows(len(t["a"]))
        want = t["c"][rows].double() + t["a"][rows].double() @ t["weight"].double().t()
        return rows_error(t["d"][rows], want)


class SwiGLU(Product):
    """weight is [2n, n]: gate and up."""

    def traffic(self, dtype, m, n):
        return (2 * m * n + 2 * n * n) * TYPES[dtype].itemsize, 2, 1

    def operations(self, dtype, m, n):
        return 4 * m * n * n

    def tensors(self, dtype, m, n, device, generator):
        return {
            **super().tensors(dtype, m, n, device, generator),
            "weight": draw(generator, dtype, device, 2 * n, n) / n**0.5,  # the product of two sums is an f16, too
        }

    def arguments(self, t):
        return {**super().arguments(t), "act": SILU, "gated": HALVES}

    def function(self):
        def run(a, weight):
            gate, up = F.linear(a, weight).chunk(2, -1)
            return F.silu(gate) * up

        return run


class Int8(Product):
    """i8 x i8 to i32, exact; dtype says nothing here, so it runs once."""

    def shapes(self, kind, device, types, widths):
        return super().shapes(kind, device, types[:1], widths)

    def traffic(self, dtype, m, n):
        return m * n + n * n + 4 * m * n, 2, 1

    def tensors(self, dtype, m, n, device, generator):
        whole = lambda *s: torch.randint(-128, 128, s, generator=generator, dtype=torch.int8, device=device)
        return {"a": whole(m, n), "weight": whole(n, n), "d": torch.empty(m, n, dtype=torch.int32, device=device)}

    def function(self):
        return lambda a, weight: torch._int_mm(a, weight.t())

    def error(self, t):
        rows = some_rows(len(t["a"]))
        want = t["a"][rows].double() @ t["weight"].double().t()
        return rows_error(t["d"][rows], want)


class Tf32(Product):
    """f32 inputs that both sides may round to tf32: GPUs only."""

    def shapes(self, kind, device, types, widths):
        return super().shapes(kind, device, ["f32"], widths) if device == "cuda" and "f32" in types else []

    def arguments(self, t):
        return {**super().arguments(t), "allow_tf32": 1}

    def torch(self, t, compiled):
        run = super().torch(t, compiled)

        def rounded():
            torch.backends.cuda.matmul.allow_tf32 = True
            run()
            torch.backends.cuda.matmul.allow_tf32 = False

        return rounded


class Shape(Product):
    """m x n x k on a GPU. layout: what runs along memory in a and in b, k or the other dimension."""

    def __init__(self, m, n, k, layout="kk"):
        super().__init__(f"gemm_{m}x{n}x{k}" + ("" if layout == "kk" else f"_{layout}"))
        self.m, self.n, self.k, self.layout = m, n, k, layout

    def shapes(self, kind, device, types, widths):
        wanted = kind == "sweep" and device == "cuda" and (not widths or self.n in widths)
        return [(t, self.m, self.n) for t in types] if wanted else []

    def traffic(self, dtype, m, n):
        return (m * self.k + n * self.k + m * n) * TYPES[dtype].itemsize, 2, 1

    def operations(self, dtype, m, n):
        return 2 * m * n * self.k

    def tensors(self, dtype, m, n, device, generator):
        matrix = lambda along, *s: draw(generator, dtype, device, *s) if along else draw(generator, dtype, device, *s[::-1]).t()
        return {
            "a": matrix(self.layout[0] == "k", m, self.k),
            "weight": matrix(self.layout[1] == "k", n, self.k),
            "d": torch.empty(m, n, dtype=TYPES[dtype], device=device),
        }


class WeightGradient(Shape):
    """m x n of f32, to which a layer's gradient from k tokens is added: of halves, which lie with m and n along memory."""

    def __init__(self, m, n, k):
        super().__init__(m, n, k, "mn")
        self.label = f"gemm_weight_gradient_{m}x{n}x{k}"

    def shapes(self, kind, device, types, widths):
        return super().shapes(kind, device, [t for t in types if t != "f32"], widths)

    def traffic(self, dtype, m, n):
        return (m * self.k + n * self.k) * TYPES[dtype].itemsize + 2 * m * n * 4, 3, 1

    def tensors(self, dtype, m, n, device, generator):
        t = super().tensors(dtype, m, n, device, generator)
        return {**t, "c": draw(generator, "f32", device, m, n), "d": torch.empty(m, n, device=device)}

    def arguments(self, t):
        return {**super().arguments(t), "c": t["c"], "beta": 1.0}

    def function(self):
        return lambda a, weight, c: torch.addmm(c, a, weight.t(), out_dtype=torch.float32)

    def error(self, t):
        rows = some_rows(len(t["a"]))
        return rows_error(t["d"][rows], t["c"][rows].double() + t["a"][rows].double() @ t["weight"].double().t())


class Fp8(Shape):
    """e4m3 to bf16 beside torch._scaled_mm with the same accumulation: scales of the tensors, or of rows and columns."""

    def __init__(self, m, n, k, rows, fast):
        super().__init__(m, n, k)
        self.rows_scaled, self.fast = rows, fast
        self.label = f"gemm_fp8{'_rows' if rows else ''}{'_fast' if fast else ''}_{m}x{n}x{k}"

    def shapes(self, kind, device, types, widths):
        return super().shapes(kind, device, types[:1], widths)

    def traffic(self, dtype, m, n):
        return m * self.k + n * self.k + 2 * m * n, 2, 1

    def tensors(self, dtype, m, n, device, generator):
        fp8 = lambda *s: draw(generator, "f32", device, *s).to(torch.float8_e4m3fn)
        scale = lambda *s: torch.rand(s if self.rows_scaled else (), generator=generator, device=device) + 0.5
        return {
            "a": fp8(m, self.k),
            "weight": fp8(n, self.k),
            "a_scale": scale(m, 1),
            "b_scale": scale(1, n),
            "d": torch.empty(m, n, dtype=torch.bfloat16, device=device),
        }

    def arguments(self, t):
        scales = {name: t[name].flatten() for name in ("a_scale", "b_scale")}
        return {**super().arguments(t), **scales, "scaling": ROW_COLUMN if self.rows_scaled else TENSOR, "fast_accum": int(self.fast)}

    def function(self):
        return lambda a, weight, a_scale, b_scale: torch._scaled_mm(
            a, weight.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16, use_fast_accum=self.fast
        )

    def error(self, t):
        rows = some_rows(len(t["a"]))
        scale = t["a_scale"][rows] if self.rows_scaled else t["a_scale"]
        return rows_error(t["d"][rows], t["a"][rows].double() @ t["weight"].double().t() * scale * t["b_scale"])


class Fp8Blocks(Fp8):
    """The same with a scale for 128 k's of a row of a and for 128 x 128 of b; these are always added in f32."""

    def __init__(self, m, n, k):
        super().__init__(m, n, k, False, False)
        self.label = f"gemm_fp8_block_{m}x{n}x{k}"

    def tensors(self, dtype, m, n, device, generator):
        scale = lambda *s: torch.rand(s, generator=generator, device=device) + 0.5
        blocks = {"a_scale": scale(self.k // 128, m).t(), "b_scale": scale(n // 128, self.k // 128)}  # as torch wants them
        return {**super().tensors(dtype, m, n, device, generator), **blocks}

    def arguments(self, t):
        return {**Shape.arguments(self, t), "a_scale": t["a_scale"], "b_scale": t["b_scale"].t(), "scaling": BLOCK}

    def function(self):
        rows, blocks = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
        return lambda a, weight, a_scale, b_scale: F.scaled_mm(
            a, weight.t(), a_scale, rows, b_scale.t(), blocks, output_dtype=torch.bfloat16
        )

    def error(self, t):
        rows = some_rows(len(t["a"]))
        spread = lambda x, down: x.double().repeat_interleave(128, 1).repeat_interleave(down, 0)
        a = t["a"][rows].double() * spread(t["a_scale"][rows], 1)
        return rows_error(t["d"][rows], a @ (t["weight"].double() * spread(t["b_scale"], 128)).t())


class OneRow(Product):
    from_memory = True

    def traffic(self, dtype, m, n):
        return super().traffic(dtype, m, n)[0], 1, 0


class Codes(Product):
    """bf16 with weights of 4 or 8 bits, a linear layer's: with a scale for every 128 k's of a column, or for all.

    Beside PyTorch's kernels for such weights, which are made for few rows; beyond 64 its product with the same weights
    in bf16, four times as many bytes, is faster, and is what runs."""

    from_memory = True

    def __init__(self, rows, width, bits):
        super().__init__(f"gemm_m{rows}_i{bits}_weights", rows, width)
        self.bits, self.group = bits, 128 if bits == 4 else width

    def shapes(self, kind, device, types, widths):
        # PyTorch has no i8 weights on GPUs
        wanted = "bf16" in types and (self.rows <= 64 if device == "cpu" else self.bits == 4)
        return super().shapes(kind, device, ["bf16"], widths) if wanted else []

    def traffic(self, dtype, m, n):
        return n * n * self.bits // 8 + 4 * n * n // self.group + 4 * m * n, 1, 0

    def tensors(self, dtype, m, n, device, generator):
        most = 2 ** (self.bits - 1)
        codes = torch.randint(-most, most, (n, n), generator=generator, dtype=torch.int8, device=device)
        scale = (torch.rand(n // self.group, n, generator=generator, device=device) / most).bfloat16()
        t = {
            "a": draw(generator, dtype, device, m, n),
            "weight": codes,
            "scale": scale.float(),
            "d": torch.empty(m, n, dtype=torch.bfloat16, device=device),
        }
        if self.bits == 8:
            return {**t, "theirs": scale[0]}
        even, odd = codes[:, ::2].to(torch.uint8) & 15, codes[:, 1::2].to(torch.uint8) & 15
        t["weight"] = even | odd << 4
        t["theirs"] = torch.stack([scale, torch.zeros_like(scale)], -1)
        if device == "cpu":
            t["packed"] = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int() + 8, 1)
        else:  # eights more, and the first one in the upper half
            t["packed"] = torch.ops.aten._convert_weight_to_int4pack((even ^ 8) << 4 | odd ^ 8, 8)
        return t

    def arguments(self, t):
        return {**super().arguments(t), "b_scale": t["scale"], "scaling": GROUP, "group": self.group}

    def widened(self, t):
        codes = t["weight"]
        if self.bits == 4:
            codes = torch.stack([(codes ^ 8) & 15, (codes >> 4) ^ 8], -1).flatten(1).to(torch.int8) - 8
        return codes.double() * t["scale"].double().t().repeat_interleave(self.group, 1)

    def torch(self, t, compiled):
        aten = torch.ops.aten
        if self.rows > 64:
            return without_gradient(F.linear, t["a"], self.widened(t).to(t["a"].dtype))
        if self.bits == 8:
            return without_gradient(aten._weight_int8pack_mm, t["a"], t["weight"], t["theirs"])
        run = aten._weight_int4pack_mm_for_cpu if t["a"].device.type == "cpu" else aten._weight_int4pack_mm
        return without_gradient(run, t["a"], t["packed"], self.group, t["theirs"])

    def error(self, t):
        rows = some_rows(len(t["a"]))
        return rows_error(t["d"][rows], t["a"][rows].double() @ self.widened(t).t())


OPS = [Product("gemm"), BiasGelu("gemm_bias_gelu"), SwiGLU("gemm_swiglu"), Int8("gemm_i8"), Tf32("gemm_tf32")]
OPS += [Residual("gemm_residual"), WeightGradient(4096, 4096, 8192), WeightGradient(14336, 4096, 8192)]
OPS += [OneRow("gemm_m1", 1, 4096)]
OPS += [Codes(1, 4096, 8)] + [Codes(rows, 4096, 4) for rows in (1, 16, 64, 128, 512, 4096)]
OPS += [Product("gemm_m16", 16, 4096), Product("gemm_m64", 64, 4096)]
OPS += [Shape(4096, 4096, 4096, layout) for layout in ("kn", "mk", "mn")]
OPS += [Shape(16384, 4096, 4096), Shape(4096, 14336, 4096), Shape(1536, 1536, 16384), Shape(4864, 4096, 8256)]
OPS += [Shape(64, 14336, 4096), Shape(128, 4096, 14336)]
OPS += [Fp8(*shape, rows, fast) for shape in FP8 for rows in (False, True) for fast in (False, True)]
OPS += [Fp8Blocks(*shape) for shape in FP8 if shape[0] >= 1536]
