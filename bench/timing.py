"""Interleaved timing of several contenders, on the CPU and on CUDA.

SPDX-License-Identifier: Apache-2.0
"""

import resource
import time

import torch

from common import stats


class Cpu:
    """Each timing: a pause (a pool that spins after its work must not take the next contender's core), one call that is
    not timed, then enough calls."""

    least_s = 0.02

    def __init__(self):
        self.faults = {}

    def calls(self, run):
        run()
        start = time.perf_counter()
        run()
        took = time.perf_counter() - start
        return max(1, int(self.least_s / max(took, 1e-7)))

    def time(self, name, run, calls):
        time.sleep(0.005)
        run()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        start = time.perf_counter()
        for _ in range(calls):
            run()
        took = time.perf_counter() - start
        faults = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / calls
        self.faults[name] = min(faults, self.faults.get(name, faults))
        return took / calls * 1e6

    def extra(self, name):
        return {"page_faults_per_call": self.faults[name]}


class Cuda:
    """Each timing: the GPU is kept busy by a sleep while the host queues the calls, so that only device time lies between
    the two events."""

    least_s = 0.005

    def __init__(self):
        self.host = {}
        self.clock_hz = 1.7e9  # for the length of the sleep only; a longer sleep does no harm

    def calls(self, run):
        run()
        torch.cuda.synchronize()
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(4):
            run()
        b.record()
        torch.cuda.synchronize()
        return max(1, min(200, int(self.least_s * 1e3 / max(a.elapsed_time(b) / 4, 1e-3))))

    def time(self, name, run, calls):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(self.clock_hz * (self.host.get(name, 100e-6) * calls * 1.5 + 50e-6)))
        a.record()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        self.host[name] = max((time.perf_counter() - start) / calls, self.host.get(name, 0) * 0.5)
        b.record()
        torch.cuda.synchronize()
        return a.elapsed_time(b) * 1e3 / calls

    def extra(self, name):
        return {"host_us_per_call": self.host[name] * 1e6}


def interleave(clock, contenders, seconds, rounds=7):
    """{name: run} -> {name: stats}: all in turn, round after round."""
    calls = {name: clock.calls(run) for name, run in contenders.items()}
    times = {name: [] for name in contenders}
    end = time.perf_counter() + seconds
    done = 0
    while done < rounds or (time.perf_counter() < end and done < 200):
        for name, run in contenders.items():
            times[name].append(clock.time(name, run, calls[name]))
        done += 1
    return {name: {**stats(values), **clock.extra(name)} for name, values in times.items()}
