"""The functions of saker, one for each operation, made from the library's field tables.

Outputs that are given may be anything that speaks DLPack. Outputs that are left out are allocated for NumPy arrays
(ml_dtypes has bfloat16 and float8), for the operations of _RULES: without any, the operation's usual ones are; y=True,
rstd=True asks for these, and y_quant=numpy.int8 for one of that type. The result is the output, or a tuple of them in
the table's order.
NumPy itself is never imported from here.
SPDX-License-Identifier: Apache-2.0
"""
import inspect
import sys
from typing import NamedTuple, Tuple

from . import _saker

KINDS = ("in", "out", "inout", "f32", "bool", "enum", "i64", "f64")


class Field(NamedTuple):
    """One argument of an operation, as the library describes it."""

    name: str
    doc: str
    kind: str  # one of KINDS
    required: bool
    types: Tuple[str, ...]  # tensors: accepted element types
    choices: Tuple[str, ...]  # enums
    default: object


class Op(NamedTuple):
    """One operation, as the library describes it. call and explain take the fields in order or by name."""

    name: str
    doc: str
    fields: Tuple[Field, ...]
    call: object
    explain: object


# ---------------------------------------------------------------- which outputs are allocated, and how large
#
# A rule gets the given arguments and returns the outputs wanted when none is given, and each output's shape and type.
# An operation without a rule works all the same; its outputs must then be given.


def _rms_norm(given):
    x, residual, quant = given["x"], given.get("residual"), given.get("quant") or "none"
    row = x.shape[:-1]
    sizes = {
        "y": (x.shape, x.dtype),
        "residual_out": (x.shape, x.dtype if residual is None else residual.dtype),
        "rstd": (row, "float32"),
        "y_quant": (x.shape, "int8"),
    }
    if quant in ("row", 2):
        sizes["y_scale"] = (row, "float32")
    elif quant in ("block", 3):
        sizes["y_scale"] = (row + (-(-x.shape[-1] // 128),), "float32")
    usual = ["y"] if quant in ("none", 0) else ["y_quant"]
    if residual is not None:
        usual.append("residual_out")
    if "y_scale" in sizes and given.get("y_scale") is None:
        given["y_scale"] = True
    return usual, sizes


def _rms_norm_backward(given):
    x, weight = given["x"], given.get("weight")
    parameter = (x.shape[-1:], "float32") if weight is None else (weight.shape, weight.dtype)
    usual = ["dx"] if weight is None else ["dx", "dweight"]
    return usual, {"dx": (x.shape, x.dtype), "dweight": parameter, "dbias": parameter}


def _softmax(given):
    return ["y"], {"y": (given["x"].shape, given["x"].dtype)}


def _layer_norm(given):
    usual, sizes = _rms_norm(given)
    return usual, {**sizes, "mean": sizes["rstd"]}


def _layer_norm_backward(given):
    usual, sizes = _rms_norm_backward(given)
    return usual if given.get("weight") is None else [*usual, "dbias"], sizes


def _gemm(given):
    numpy = sys.modules["numpy"]
    a, b = given["a"], given.get("b")
    if not isinstance(b, numpy.ndarray):
        return [], {}  # the library says what is wrong
    if min(a.ndim, b.ndim) < 2:
        shape = (1, 1)  # of any size: the library looks at a and b first, and says what is wrong with them
    else:
        lead = numpy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        columns = 2 if b.dtype == numpy.uint8 and b.shape[-2] == a.shape[-1] else 1  # of a byte: int4
        shape = (*lead, a.shape[-2], b.shape[-1] * columns)
    whole = a.dtype.kind in "iu" and given.get("scaling") in (None, "none", 0)  # sums of integers are exact unscaled
    result = a.dtype if a.dtype.itemsize > 1 else "int32" if whole else "float32"
    gated = given.get("gated") not in (None, "no", 0)
    d = (*shape[:-1], shape[-1] // 2) if gated else shape
    return ["d"], {"d": (d, result), "pre": (shape, result), "dbias": (shape[-1:], "float32")}


def _attention(given):
    q, columns = given["q"], getattr(given.get("v"), "shape", ())[-1:]
    layout = given.get("layout") or "bshd"
    b, h, s = (None, 1, 0) if layout in ("thd", 2) else (0, 1, 2) if layout in ("bhsd", 1) else (0, 2, 1)
    kind = q.dtype if q.dtype.itemsize > 1 else "float32"
    if q.ndim != (3 if b is None else 4) or not columns:  # of any size: the library says what is wrong with q or v
        return ["o"], {"o": (q.shape, kind), "lse": (q.shape, "float32")}
    lse = (q.shape[h], q.shape[s]) if b is None else (q.shape[b], q.shape[h], q.shape[s])
    return ["o"], {"o": ((*q.shape[:-1], *columns), kind), "lse": (lse, "float32")}


def _attention_decode(given):
    q, cache = given["q"], given.get("v_cache")
    columns = getattr(cache, "shape", ())[-1:]
    if q.ndim != 4 or not columns:  # of any size: the library says what is wrong; without v_cache o must be given
        return ["o"] if cache is not None else [], {"o": (q.shape, q.dtype), "lse": (q.shape, "float32")}
    width = columns[0] * (2 if cache.dtype == sys.modules["numpy"].uint8 else 1)  # of a byte: int4
    return ["o"], {"o": ((*q.shape[:-1], width), q.dtype), "lse": ((q.shape[0], q.shape[2], q.shape[1]), "float32")}


def _attention_backward(given):
    names = {"dq": "q", "dk": "k", "dv": "v", "dbias": "bias", "dslopes": "slopes", "dsinks": "sinks"}
    sizes = {out: (given[of].shape, given[of].dtype) for out, of in names.items() if given.get(of) is not None}
    return list(sizes), sizes


# The input that says what the outputs are like, and the rule.
_RULES = {
    "attention": ("q", _attention),
    "attention_backward": ("q", _attention_backward),
    "attention_decode": ("q", _attention_decode),
    "gemm": ("a", _gemm),
    "softmax": ("x", _softmax),
    "rms_norm": ("x", _rms_norm),
    "rms_norm_backward": ("x", _rms_norm_backward),
    "layer_norm": ("x", _layer_norm),
    "layer_norm_backward": ("x", _layer_norm_backward),
}


def _is_request(value):
    """True, or a type that NumPy knows: an output to be allocated."""
    numpy = sys.modules.get("numpy")
    return value is True or isinstance(value, (str, type)) or (numpy is not None and isinstance(value, numpy.dtype))


def _allocate(op, outputs, required, given, requests):
    """Puts new arrays in place of the requests, or without any of the usual outputs, and returns their names."""
    leading, rule = _RULES.get(op, (None, None))
    first = next(iter(requests), None)
    lacking = [name for name in required if given.get(name) is None]
    if rule is None:
        if first:
            raise TypeError(f"{op}: {first} cannot be allocated, give a tensor")
        if lacking:
            raise TypeError(f"{op}: its outputs are not allocated: give {', '.join(f'{name}=' for name in lacking)}")
        return ()  # the library says what is missing
    numpy = sys.modules.get("numpy")  # whoever gives an array has imported it
    if numpy is None or not isinstance(given.get(leading), numpy.ndarray):
        if first:
            raise TypeError(f"{op}: outputs are allocated for NumPy arrays only; give {first} as a tensor")
        if lacking and hasattr(given.get(leading), "__dlpack__"):
            raise TypeError(f"{op}: outputs are allocated for NumPy arrays only; give {lacking[0]}=")
        return ()  # the library says what is wrong
    usual, sizes = rule(given)
    wanted = [name for name in outputs if name in (requests or usual) or given.get(name) is True]
    for name in wanted:
        if name not in sizes:
            raise TypeError(f"{op}: {name} cannot be allocated with these options, give an array")
        shape, dtype = sizes[name]
        asked = requests.get(name, True)
        given[name] = numpy.empty(shape, dtype if asked is True else asked)
    return wanted


# ---------------------------------------------------------------- from the table to functions


def _parameter(field):
    positional = field.kind == "in"
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if positional else inspect.Parameter.KEYWORD_ONLY
    default = inspect.Parameter.empty if positional and field.required else field.default
    return inspect.Parameter(field.name, kind, default=default)


def _describe(field):
    what = {"in": "input", "out": "output", "inout": "input or output"}.get(field.kind, field.kind)
    if field.types:
        what += " " + "/".join(field.types)
    if field.choices:
        what += " " + "|".join(field.choices)
    return f"    {field.name} ({what}{', required' if field.required else ''}): {field.doc}"


def _functions(op):
    """The function of an operation, and the one with its arguments that tells what it would do."""
    fields = sorted((field for field in op.fields if field.kind == "in"), key=lambda field: not field.required)
    inputs = tuple(field.name for field in fields)
    fields += [field for field in op.fields if field.kind != "in"]
    outputs = tuple(field.name for field in op.fields if field.kind in ("out", "inout"))
    required = tuple(field.name for field in op.fields if field.name in outputs and field.required)
    read_too = {field.name for field in op.fields if field.kind == "inout"}
    call, name = op.call, op.name

    def complete(args, given):
        """Puts the arguments in order into given, allocates outputs; the outputs there are, and the new ones."""
        if len(args) > len(inputs):
            raise TypeError(f"{name}() takes {len(inputs)} positional arguments but {len(args)} were given")
        for key, value in zip(inputs, args):
            if key in given:
                raise TypeError(f"{name}() got multiple values for argument '{key}'")
            given[key] = value
        present = [key for key in outputs if given.get(key) is not None]
        requests = {key: given[key] for key in present if _is_request(given[key])}
        made = ()
        if requests or not present or read_too.issuperset(present):
            made = _allocate(name, outputs, required, given, requests)
            present = [key for key in outputs if given.get(key) is not None]
        return present, made

    def function(*args, **given):
        present, made = complete(args, given)
        call(**given)
        results = tuple([given[key] for key in present if key in made or key not in read_too])
        return results[0] if len(results) == 1 else results

    def explain(*args, **given):
        complete(args, given)
        return op.explain(**given)

    parameters = [_parameter(field) for field in fields]
    if "stream" not in (field.name for field in fields):
        parameters.append(inspect.Parameter("stream", inspect.Parameter.KEYWORD_ONLY, default=None))
    function.__name__ = function.__qualname__ = name
    function.__module__ = "saker"
    function.__signature__ = inspect.Signature(parameters)
    lines = [op.doc, "", *map(_describe, op.fields)]
    lines.append("    stream (int): CUDA stream handle; left out, it is the tensors' framework's current stream")
    function.__doc__ = "\n".join(lines)
    return function, explain


def _field(row):
    kind = KINDS[row["kind"]]
    choices = tuple((row["choices"] or "").split("|")) if kind == "enum" else ()
    number = row["default"]
    default = {"f32": number, "f64": number, "bool": bool(number), "i64": int(number)}.get(kind)
    if kind == "enum":
        default = choices[int(row["default"])]
    return Field(row["name"], row["doc"], kind, row["required"], tuple(row["types"]), choices, default)


OPS = {
    row["name"]: Op(row["name"], row["doc"], tuple(map(_field, row["fields"])), row["call"], row["explain"])
    for row in _saker.table()
}
EXPLAIN = {}
for _op in OPS.values():
    globals()[_op.name], EXPLAIN[_op.name] = _functions(_op)
del _op

__all__ = [*OPS]
