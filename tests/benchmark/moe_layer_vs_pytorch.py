#!/usr/bin/env python3
"""Our MoE layer beside PyTorch's on this processor, in turns in one run: the ratio is what counts.

Usage: moe_layer_vs_pytorch.py BENCH_MOE_LAYER [ROUNDS], with a python3 that has PyTorch (the CPU runs it).
PyTorch's layer is what its users write: softmax, top-k, tokens gathered per expert, one product pair per expert,
index_add. Prints milliseconds per pass and PyTorch / ours (above 1: ours is faster) on one and two threads.
"""
import json
import statistics
import subprocess
import sys
import time

import torch

T, H, F, E, K = 2048, 512, 2048, 8, 2


def make():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(T, H, generator=g, requires_grad=True)
    router = (torch.randn(H, E, generator=g) * 0.02).requires_grad_()
    w1 = (torch.randn(E, H, F, generator=g) * 0.02).requires_grad_()
    w2 = (torch.randn(E, F, H, generator=g) * 0.02).requires_grad_()
    return x, router, w1, w2, torch.randn(T, H, generator=g) * 0.01


def one_pass(x, router, w1, w2, dy):
    for p in (x, router, w1, w2):
        p.grad = None
    weights, ids = torch.topk(torch.softmax(x @ router, dim=-1), K, dim=-1)
    order = torch.argsort(ids.flatten(), stable=True)
    counts = torch.bincount(ids.flatten(), minlength=E).tolist()
    tokens = order // K
    rows = x[tokens]
    parts, at = [], 0
    for e, n in enumerate(counts):
        parts.append(torch.nn.functional.gelu(rows[at:at + n] @ w1[e]) @ w2[e])
        at += n
    y = torch.cat(parts) * weights.flatten()[order].unsqueeze(1)
    out = torch.zeros_like(x).index_add(0, tokens, y)
    out.backward(dy)


def pytorch_seconds(threads):
    torch.set_num_threads(threads)
    tensors = make()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        one_pass(*tensors)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def our_seconds(program, threads):
    out = subprocess.run([program, f"--benchmark_filter=moe_layer/{threads}/", "--benchmark_format=json"],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out)["benchmarks"][0]["real_time"] / 1e3


def main():
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    print(f"PyTorch {torch.__version__}; T={T} H={H} F={F} E={E} k={K}, fp32, forward and backward")
    for threads in (1, 2):
        ours, theirs, ratios = [], [], []
        for _ in range(rounds):
            a, b = our_seconds(program, threads), pytorch_seconds(threads)
            ours.append(a), theirs.append(b), ratios.append(b / a)
        print(f"{threads} thread{'s' if threads > 1 else ' '}  ours {statistics.median(ours) * 1e3:7.1f} ms   "
              f"PyTorch {statistics.median(theirs) * 1e3:7.1f} ms   ratio {statistics.median(ratios):.2f} "
              f"[{min(ratios):.2f}-{max(ratios):.2f}]")


if __name__ == "__main__":
    main()
