// numerics of wgmma fp8: one warpgroup, m64n64k32, A and B from shared, K-major, 128-byte swizzle rows (32 bytes used of 128)
#include <cstdio>
#include <cstdint>
#include <cmath>
#include <cstdlib>
#include <vector>
#include <algorithm>
#include <cuda_fp8.h>
#include "../src/cuda/wgmma.cuh"
#define FN(name, types) SKR_WGMMA(name, 64, float, "+f", "m64n64k32", types, ", 1, 1")
struct f44 { FN(run, "f32.e4m3.e4m3") };
struct f45 { FN(run, "f32.e4m3.e5m2") };
struct f54 { FN(run, "f32.e5m2.e4m3") };
struct f55 { FN(run, "f32.e5m2.e5m2") };
// a: [steps][64][128] bytes, b same; steps of 128 k. c: start. out after each step if every, accumulating or not
template <class F> __global__ void __launch_bounds__(128) kern(const uint8_t *a, const uint8_t *b, const float *c, float *out, int steps, int k32, int useC)
{
    __shared__ __align__(1024) uint8_t sa[64 * 128], sb[64 * 128];
    float d[32];
    int t = threadIdx.x, lane = t % 32;
    for (int i = 0; i < 32; i++) {
        int row = t / 32 * 16 + lane / 4 + (i / 2 & 1) * 8, col = i / 4 * 8 + lane % 4 * 2 + (i & 1);
        d[i] = useC ? c[row * 64 + col] : 0;
    }
    for (int s = 0; s < steps; s++) {
        __syncthreads();
        for (int i = t; i < 64 * 128; i += 128) {
            int r = i / 128, k = i % 128, ch = k / 16;
            int to = r * 128 + ((ch ^ (r & 7)) << 4) + k % 16;
            sa[to] = a[s * 8192 + i]; sb[to] = b[s * 8192 + i];
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        uint64_t da = wgmma_tile((uint32_t)__cvta_generic_to_shared(sa), 16), db = wgmma_tile((uint32_t)__cvta_generic_to_shared(sb), 16);
        wgmma_pin(d); wgmma_begin();
        for (int i = 0; i < k32; i++) F::run(d, da + i * 2, db + i * 2, 1);
        wgmma_commit(); wgmma_pin(d); wgmma_wait<0>(); wgmma_pin(d);
    }
    for (int i = 0; i < 32; i++) {
        int row = t / 32 * 16 + lane / 4 + (i / 2 & 1) * 8, col = i / 4 * 8 + lane % 4 * 2 + (i & 1);
        out[row * 64 + col] = d[i];
    }
}
static double val(uint8_t x, bool e5) { __half_raw h = __nv_cvt_fp8_to_halfraw(x, e5 ? __NV_E5M2 : __NV_E4M3); __half g(h); return (double)__half2float(g); }
static uint8_t code(double v, bool e5) { return __nv_cvt_double_to_fp8(v, __NV_SATFINITE, e5 ? __NV_E5M2 : __NV_E4M3); }
std::vector<uint8_t> A, B; std::vector<float> C, D;
uint8_t *da, *db; float *dc, *dd;
static void go(int which, int steps, int k32, int useC)
{
    cudaMemcpy(da, A.data(), A.size(), cudaMemcpyHostToDevice); cudaMemcpy(db, B.data(), B.size(), cudaMemcpyHostToDevice);
    cudaMemcpy(dc, C.data(), 16384, cudaMemcpyHostToDevice);
    auto k = which == 0 ? kern<f44> : which == 1 ? kern<f45> : which == 2 ? kern<f54> : kern<f55>;
    k<<<1, 128>>>(da, db, dc, dd, steps, k32, useC);
    cudaMemcpy(D.data(), dd, 16384, cudaMemcpyDeviceToHost);
    cudaError_t e = cudaGetLastError(); if (e) { printf("error %s\n", cudaGetErrorString(e)); exit(1); }
}
static void clear() { std::fill(A.begin(), A.end(), 0); std::fill(B.begin(), B.end(), 0); std::fill(C.begin(), C.end(), 0.f); }
// row r: product list in the first instruction
static void put(int r, int k, double a, double b) { A[r * 128 + k] = code(a, 0); B[k] = 0; (void)b; }
static double model(const double *a, const double *b, double c, int la, int lb, int F, int L, int R)
{
    for (int g = 0; g < 32; g += L) {
        int top = c != 0 ? ilogb(c) : -1000;
        for (int k = g; k < g + L; k++) if (a[k] * b[k] != 0) top = std::max(top, std::max(ilogb(a[k]), la) + std::max(ilogb(b[k]), lb));
        if (top == -1000) continue;
        double grain = ldexp(1, top - F), s = trunc(c / grain);
        for (int k = g; k < g + L; k++) s += trunc(a[k] * b[k] / grain);
        s *= grain;
        if (R && s != 0) { grain = ldexp(1, ilogb(s) - R); s = trunc(s / grain) * grain; }
        c = (float)s;
    }
    return c;
}
int main()
{
    A.resize(64 * 8192); B.resize(64 * 8192); C.resize(4096); D.resize(4096);
    cudaMalloc(&da, A.size()); cudaMalloc(&db, B.size()); cudaMalloc(&dc, 16384); cudaMalloc(&dd, 16384);
    // B row 0 all ones (column 0): products are a's values. Other columns: powers.
    auto probe = [&](const char *what, std::vector<std::pair<double, double>> p, float c) {
        clear();
        for (size_t k = 0; k < p.size(); k++) A[k] = code(p[k].first, 0), B[k] = code(p[k].second, 0);
        for (auto &x : C) x = c;
        go(0, 1, 1, 1);
        double want = c; for (auto &q : p) want += val(code(q.first, 0), 0) * val(code(q.second, 0), 0);
        printf("%-40s got %.17g want %.17g diff/2^-13 %.4f\n", what, D[0], want, (D[0] - want) * 8192);
    };
    typedef std::vector<std::pair<double, double>> v;
    for (int j = 8; j <= 18; j++) { char t[80]; int h = j / 2; snprintf(t, 80, "1 + 2^-%d", j); probe(t, v{{1, 1}, {ldexp(1, -h), ldexp(1, h - j)}}, 0); }
    for (int j = 8; j <= 18; j++) { char t[80]; int h = j / 2; snprintf(t, 80, "c 1 + 2^-%d", j); probe(t, v{{ldexp(1, -h), ldexp(1, h - j)}}, 1); }
    for (int j = 10; j <= 16; j++) { char t[80]; snprintf(t, 80, "1 and c 2^-%d", j); probe(t, v{{1, 1}}, ldexpf(1, -j)); }
    for (int j = 12; j <= 15; j++) { char t[80]; int h = j / 2; snprintf(t, 80, "1 - 2^-%d", j); probe(t, v{{1, 1}, {-ldexp(1, -h), ldexp(1, h - j)}}, 0); }
    for (int j = 12; j <= 15; j++) { char t[80]; int h = j / 2; snprintf(t, 80, "-1 + 2^-%d", j); probe(t, v{{-1, 1}, {ldexp(1, -h), ldexp(1, h - j)}}, 0); }
    probe("1.75*1.75 + 2^-13 (unnormalised?)", v{{1.75, 1.75}, {ldexp(1, -7), ldexp(1, -6)}}, 0);
    probe("1.75*1.75 + 2^-12", v{{1.75, 1.75}, {ldexp(1, -6), ldexp(1, -6)}}, 0);
    probe("4 x 1 + 2^-13", v{{1, 1}, {1, 1}, {1, 1}, {1, 1}, {ldexp(1, -7), ldexp(1, -6)}}, 0);
    probe("4 x 1 + 2^-12", v{{1, 1}, {1, 1}, {1, 1}, {1, 1}, {ldexp(1, -6), ldexp(1, -6)}}, 0);
    probe("4 x 1 + 2^-11", v{{1, 1}, {1, 1}, {1, 1}, {1, 1}, {ldexp(1, -6), ldexp(1, -5)}}, 0);
    probe("16 x 1 + 2^-10", v{{4, 1}, {4, 1}, {4, 1}, {4, 1}, {ldexp(1, -5), ldexp(1, -5)}}, 0);
    probe("16 x 1 + 2^-13 (top 2)", v{{4, 1}, {4, 1}, {4, 1}, {4, 1}, {ldexp(1, -7), ldexp(1, -6)}}, 0);
    for (int g = 1; g < 32; g++) { // is 1 - 1 at k=0 seen with the k of another group?
        v p(32, {0, 0}); p[0] = {1, 1}; p[1] = {-1, 1}; p[g == 1 ? 2 : g] = {ldexp(1, -8), ldexp(1, -8)};
        if (g % 4 == 0 || g == 2) { char t[80]; snprintf(t, 80, "1 - 1 + 2^-16 at k %d", g); probe(t, p, 0); }
    }
    probe("subnormal: 2^-9*2^0 + 2^-9*2^-9", v{{ldexp(1, -9), 1}, {ldexp(1, -9), ldexp(1, -9)}}, 0);
    probe("subnormal: 2^-8*448+2^-9*2^-9", v{{ldexp(1, -8), 448}, {ldexp(1, -9), ldexp(1, -9)}}, 0);
    probe("subnormal 2^-9*64+2^-18+c", v{{ldexp(1, -9), 64}, {ldexp(1, -9), ldexp(1, -9)}}, 0);
    // random: model and error per instruction, per 128, over k
    const char *names[] = {"e4m3 e4m3", "e4m3 e5m2", "e5m2 e4m3", "e5m2 e5m2"};
    for (int which = 0; which < 4; which++)
        for (int dist = 0; dist < 4; dist++) {
            bool ea = which >> 1, eb = which & 1;
            int la = ea ? -14 : -6, lb = eb ? -14 : -6;
            srand(1 + dist + 10 * which);
            auto draw = [&](bool e5) -> uint8_t {
                if (dist == 3) { uint8_t c; do c = rand(); while (!std::isfinite(val(c, e5))); return c; } // all codes
                double u = 0; for (int i = 0; i < 12; i++) u += rand() / (double)RAND_MAX; u -= 6;
                return code(dist == 0 ? u : dist == 1 ? fabs(u) : u * 100 , e5);
            };
            for (auto &x : A) x = draw(ea);
            for (auto &x : B) x = draw(eb);
            std::fill(C.begin(), C.end(), 0.f);
            printf("%s dist %d:", names[which], dist);
            int counts[4] = {1, 4, 4, 4}, stepses[4] = {1, 1, 8, 64};
            for (int q = 0; q < 4; q++) {
                go(which, stepses[q], counts[q], 0);
                double worst = 0, mean = 0, tight = 0; int off[3] = {0, 0, 0}; double worstmodel = 0;
                for (int r = 0; r < 64; r++)
                    for (int n = 0; n < 64; n++) {
                        double sum = 0, size = 0, m[3] = {0, 0, 0}, bound = 0, run = 0;
                        for (int s = 0; s < stepses[q]; s++)
                            for (int g = 0; g < counts[q]; g++) {
                                double a[32], b[32];
                                for (int k = 0; k < 32; k++) a[k] = val(A[s * 8192 + r * 128 + g * 32 + k], ea), b[k] = val(B[s * 8192 + n * 128 + g * 32 + k], eb);
                                int top = run > 0 ? ilogb(run) : -1000;
                                for (int k = 0; k < 32; k++) { sum += a[k] * b[k]; size += fabs(a[k] * b[k]); if (a[k]*b[k] != 0) top = std::max(top, std::max(ilogb(a[k]), la) + std::max(ilogb(b[k]), lb)); }
                                for (int k = 0; k < 32; k++) bound += fmin(fabs(a[k] * b[k]), ldexp(1, top - 13));
                                if (run > 0) bound += ldexp(1, top - 13);
                                run = size; bound += ldexp(run, -13);
                                m[0] = model(a, b, m[0], la, lb, 13, 32, 13); m[1] = model(a, b, m[1], la, lb, 13, 32, 0); m[2] = model(a, b, m[2], la, lb, 13, 16, 13);
                            }
                        double e = fabs(D[r * 64 + n] - sum);
                        worst = fmax(worst, e / size); mean += e / size; tight = fmax(tight, e / bound);
                        for (int i = 0; i < 3; i++) off[i] += D[r * 64 + n] != (float)m[i];
                        worstmodel = fmax(worstmodel, fabs(D[r * 64 + n] - m[0]) / size);
                    }
                printf("\n   k %5d: max err/sum|ab| 2^%.2f mean 2^%.2f, of the bound %.4f; differs from model F13R13 %d, F13 %d, L16 %d of 4096 (worst 2^%.1f)", stepses[q] * counts[q] * 32, log2(worst), log2(mean / 4096), tight, off[0], off[1], off[2], log2(worstmodel));
            }
            printf("\n");
        }
}
