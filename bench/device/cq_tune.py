# trial script: lean quantised, lean residual, lean backward
import os, sys, json
import gpu, rms_norm_shapes as S, rms_norm_tune as T
gpu.INCLUDES = '#include "cuda/sm90.cuh"\n#include "ops/rms_norm/rms_norm_lean.cuh"\n#include "ops/rms_norm/rms_norm_backward_rows.cuh"\n#include "ops/rms_norm/rms_norm_parts.cuh"\n'
BOUNDS = {64: (1, 12), 128: (1, 5, 6), 256: (1, 2, 3), 512: (1,), 1024: (1,)}

def owners(v):
    for lanes, threads in ((8, 128), (16, 128), (32, 128), (64, 64), (128, 128), (256, 256), (512, 512)):
        vpt = v // lanes
        if vpt in (1, 2, 4, 8):
            yield lanes, threads, vpt, 1
    for threads in (128, 256, 512):
        for c in (2, 4, 8, 16):
            vpt = v // (threads * c)
            if v >= 2048 and vpt in ((4, 8) if v > 4096 or vpt == 8 else (4,)):
                yield threads, threads, vpt, c


def entry(kind, t, n, lanes, threads, vpt, c, struct, tag, shared, **k):
    e = S.entry(kind, t, n, lanes, threads, vpt, c, struct, tag, shared, **k)
    e['name'] = e['name'].replace('full', kind)
    return e

BW = {'bf16': {512: [(32,128,2,1,2,0,1),(32,256,2,1,2,0,1)], 1024: [(32,256,4,1,2,1,1),(128,128,1,1,3,0,1),(32,128,4,1,2,2,1)],
 8192: [(512,512,2,1,2,1,2),(256,256,4,1,2,2,2)],
 16384: [(512,512,4,1,2,1,1),(512,512,4,1,2,2,1),(256,256,8,1,1,2,2)],
 32768: [(512,512,8,1,1,2,1),(512,512,4,2,2,2,1),(256,256,8,2,1,2,2)],
 65536: [(512,512,8,2,1,2,1),(256,256,8,4,1,2,2),(256,256,4,8,1,1,2)],
 131072: [(512,512,8,4,1,2,1),(256,256,8,8,1,2,2),(512,512,4,8,2,2,1)],
 262144: [(512,512,8,8,1,2,1),(256,256,8,16,1,2,2),(512,512,4,16,2,2,1)]},
 'f32': {32768: [(512,512,8,2,1,1,1)], 65536: [(512,512,8,4,1,1,1),(256,256,8,8,1,1,2),(512,512,4,8,2,0,1)],
 131072: [(512,512,8,8,1,1,1)], 262144: [(512,512,8,16,1,1,1)]}}

def backward(t, n):
    vec = 16 // S.BYTES[t]
    for lanes, threads, vpt, c, stages, ws, b in BW[t].get(n, ()):
        shared = threads * (stages * (2 * vpt * 16 + 4) + vpt * (0, vec * 4, 16)[ws])
        yield entry('backward', t, n, lanes, threads, vpt, c, "rms_norm_backward<{T}, {O}, {VPT}, {STAGES}, %d, true>" % ws, f"s{stages}w{ws}", shared, blocks=b, stages=stages)

def quant(t, n):
    vec = 16 // S.BYTES[t]
    v = n // vec
    L = [(l, max(l, 128) if l != 64 else 64, v // l, 1) for l in (4, 8, 16, 32, 64, 128, 256, 512) if v // l in (4, 8)]
    L += [(th, th, v // (th * c), c) for th in (128, 256, 512) for c in (2, 4, 8, 16) if v >= 2048 and v // (th * c) in (4, 8)]
    for lanes, threads, vpt, c in L:
        if threads == 128 and c > 1 and vpt == 4: continue
        regs = vpt * vec
        for hold in (0, 1):
            if hold and (regs > 32 or t == 'bf16' and c > 1): continue
            want = 96 if regs > 32 or hold and regs == 32 else 64
            if want == 96 and threads > 128 and c > 1: want = 128
            if hold and t == 'f32' and vpt == 8: want = 128
            b = max(1, 65536 // threads // want)
            yield entry('e4m3', t, n, lanes, threads, vpt, c, "rms_norm_quant<{T}, {O}, {VPT}, 2, %d>" % hold, f"s2h{hold}", 2 * vpt * threads * 16, blocks=b, stages=2)

RES = {'bf16': {16384: [(512,4,1,1),(512,4,1,2)], 32768: [(512,8,1,1),(256,4,4,3)], 65536: [(256,4,8,3),(256,8,4,2)], 131072: [(256,4,16,3),(256,4,16,2),(256,8,8,2)], 262144: [(256,8,16,2),(512,8,8,1)]},
 'f32': {16384: [(512,8,1,1)], 32768: [(512,4,4,1),(512,4,4,2)], 65536: [(512,4,8,1),(512,4,8,2)], 131072: [(512,4,16,1),(512,4,16,2),(256,8,16,2)], 262144: [(512,8,16,1)]}}

def residual(t, n):
    for threads, vpt, c, b in RES[t].get(n, ()):
        yield entry('residual', t, n, threads, threads, vpt, c, "rms_norm_residual<{T}, {O}, {VPT}>", "", 0, blocks=b)

def shapes(kind, t, n):
    return [dict(e, flavour='') for e in {'backward': backward, 'e4m3': quant, 'residual': residual}[kind](t, n)]

if __name__ == '__main__':
    folder = 'build-cudaq/tune'
    if sys.argv[1] == 'compile':
        entries = [e for k in sys.argv[2:] for t in T.TYPES for n in T.WIDTHS for e in shapes(k, t, n)]
        print(len(entries), len({(e['flavour'], e['name']) for e in entries}))
        import collections
        print(collections.Counter((e['kind'], e['type'], e['n']) for e in entries))
        os.cpu_count = lambda: 2
        entries = T.compile_entries(entries, folder)
        json.dump(entries, open(folder + '/entries.json', 'w'))
        os.system(f'rm -f {folder}/*.cu; du -sh {folder}')
    else:
        T.FEW, T.REPEATS, T.KEEP = 5, 40, 6
        entries = json.load(open(folder + '/entries.json'))
        r = T.run_worker(entries, folder, [5, 40], 'lean')
        T.table(r, 'lean')
