#!/usr/bin/env python3
"""Derives the polynomial coefficients of src/cpu/simd/vmath.h. Needs mpmath.

SPDX-License-Identifier: Apache-2.0

For each function: a minimax polynomial (Remez exchange, 40 digits) of the stated degree for the stated interval and weight. Coefficients are
rounded to f32 one by one, from the lowest order (which matters most), and the rest is fitted again after each. Printed: the f32 coefficients as
C hexadecimal literals, lowest order first, and the largest weighted error of the polynomial in exact arithmetic; the error of the
function as computed in f32 is measured by tests/test_vmath.c.
"""
import struct
from mpmath import mp, mpf, cos, sin, exp, log, tanh, erf, erfc, pi, sqrt, ln, matrix, lu_solve, floor

mp.dps = 40


def to_f32(v):
    return mpf(struct.unpack("f", struct.pack("f", float(v)))[0])


def hex_f32(v):
    mantissa, exponent = float(v).hex().split("p")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}p{int(exponent)}f"


def value(c, x):
    r = mpf(0)
    for a in reversed(c):
        r = r * x + a
    return r


def remez(f, w, a, b, orders, steps=30):
    """Coefficients for x^order, order in orders, that minimise max |w (f - p)| on [a, b]."""
    n = len(orders)
    points = [(a + b) / 2 - (b - a) / 2 * cos(pi * (i + mpf(1) / 2) / (n + 1)) for i in range(n + 1)]
    grid = [a + (b - a) * i / mpf(1200) for i in range(1201)]
    for _ in range(steps):
        m, y = matrix(n + 1, n + 1), matrix(n + 1, 1)
        for i, x in enumerate(points):
            for j, o in enumerate(orders):
                m[i, j] = x**o
            m[i, n] = (-1) ** i / w(x)
            y[i] = f(x)
        s = lu_solve(m, y)
        c = [s[j] for j in range(n)]

        def error(x):
            return w(x) * (f(x) - sum(c[j] * x**o for j, o in enumerate(orders)))

        values = [error(x) for x in grid]
        extrema, best = [], None
        for x, v in zip(grid, values):  # the largest error of each run of one sign
            if best is None or (v > 0) != (best[1] > 0):
                if best:
                    extrema.append(best)
                best = (x, v)
            elif abs(v) > abs(best[1]):
                best = (x, v)
        extrema.append(best)
        while len(extrema) > n + 1:  # drop the smaller end
            extrema.pop(0 if abs(extrema[0][1]) < abs(extrema[-1][1]) else -1)
        if len(extrema) < n + 1:
            break
        points = [x for x, _ in extrema]
        sizes = [abs(v) for _, v in extrema]
        if max(sizes) / min(sizes) < 1.02:
            break
    return c


def fit(name, f, w, a, b, degree):
    a, b = mpf(a), mpf(b)
    fixed = []
    for k in range(degree + 1):
        rest = remez(lambda x: f(x) - value(fixed, x), w, a, b, list(range(k, degree + 1)))
        fixed.append(to_f32(rest[0]))
    worst = max(abs(w(x) * (f(x) - value(fixed, x))) for x in (a + (b - a) * i / mpf(4000) for i in range(4001)))
    print(f"{name}: degree {degree} on [{float(a):.6g}, {float(b):.6g}], error {float(worst):.2e}")
    print("    " + ", ".join(hex_f32(c) for c in fixed))


def split(name, v, bits):
    """v as a sum of f32 numbers; all but the last keep only `bits` mantissa bits."""
    parts = []
    for b in bits:
        if b < 24:
            scale = mpf(2) ** (b - 1 - floor(ln(abs(v)) / ln(2)))
            p = floor(v * scale) / scale
        else:
            p = to_f32(v)
        parts.append(p)
        v -= p
    print(f"{name}: " + ", ".join(hex_f32(p) for p in parts) + f" (left over {float(v):.1e})")


tiny = mpf(2) ** -40


def series(f, at0):
    return lambda x: at0 if abs(x) < tiny else f(x)


split("ln 2", ln(2), (16, 24))
split("pi / 2", pi / 2, (24, 24, 24))
split("log2 e", 1 / ln(2), (24, 24))
split("2 / pi", 2 / pi, (24,))
h = ln(2) / 2 * mpf("1.0001")
fit("exp(r) = 1 + r + r^2 P(r)", series(lambda r: (exp(r) - 1 - r) / r**2, mpf(1) / 2), lambda r: r**2 / exp(r) + tiny, -h, h, 4)
fit("exp2(f) = 1 + f P(f)", series(lambda f: (2**f - 1) / f, ln(2)), lambda f: abs(f) / 2**f + tiny, mpf("-0.5001"), mpf("0.5001"), 5)
fit("exp2(f) = 1 + f P(f), short", series(lambda f: (2**f - 1) / f, ln(2)), lambda f: abs(f) / 2**f + tiny, mpf("-0.5001"), mpf("0.5001"), 4)
fit("log(1 + f) = f - f^2/2 + f^3 P(f)", series(lambda f: (log(1 + f) - f + f**2 / 2) / f**3, mpf(1) / 3),
    lambda f: f**2 + mpf("1e-3"), sqrt(mpf("0.5")) - 1, sqrt(mpf(2)) - 1, 8)
fit("tanh(x) = x + x^3 P(x^2), |x| < 0.625", series(lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z, -mpf(1) / 3), lambda z: z + tiny, 0,
    mpf("0.625") ** 2, 5)
fit("erf(x) = x + x P(x^2), |x| < 0.921875", series(lambda z: erf(sqrt(z)) / sqrt(z) - 1, 2 / sqrt(pi) - 1), lambda z: mpf(1), 0,
    mpf("0.921875") ** 2, 6)
fit("-log(erfc(a)) = P(a), 0.921875 <= a <= 4", lambda a: -log(erfc(a)), lambda a: erfc(a), mpf("0.921875"), 4, 8)
below = lambda a: erfc(a / sqrt(mpf(2))) / 2  # the normal integral up to -a
fit("log2(below(a)) = P(a)", lambda a: log(below(a)) / ln(2), lambda a: below(a) * ln(2) / (1 - below(a)), 0, mpf("5.5"), 8)
q = (pi / 4 * mpf("1.01")) ** 2  # a large argument's quotient is rounded: r passes pi/4 a little
fit("sin(r) = r + r^3 P(r^2)", series(lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z, -mpf(1) / 6), lambda z: z + tiny, 0, q, 3)
fit("cos(r) = 1 - r^2/2 + r^4 P(r^2)", series(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24), lambda z: z**2 + tiny, 0, q, 2)
mp.dps = 120
words, v = [], 2 / pi
for _ in range(7):
    v *= mpf(2) ** 32
    words.append(int(floor(v)))
    v -= floor(v)
print("2 / pi in binary, after the point: " + ", ".join(f"0x{x:08x}" for x in words))
