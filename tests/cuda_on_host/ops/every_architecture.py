#!/usr/bin/env python3
"""usage: every_architecture.py ROOT NVCC [FLAG]...

Translates every kernel for sm_80, sm_90 and sm_100 and to PTX, as the build would, and throws the results
away. Exit code 77 (skipped) without nvcc, 1 when one does not translate or says anything.
"""
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURES = ["80", "90", "100"]


def translate(nvcc, flags, root, source, folder):
    codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    codes.append(f"-gencode=arch=compute_{ARCHITECTURES[-1]},code=compute_{ARCHITECTURES[-1]}")
    run = subprocess.run([nvcc, *flags, f"-I{root}", *codes, "-c", source, "-o",
                          Path(folder) / (source.stem + ".o")], capture_output=True, text=True,
                         check=False)
    return run.returncode, (run.stdout + run.stderr).strip()


def main(root, nvcc, *flags):
    if not nvcc:
        print("nvcc is not installed")
        return 77
    sources = sorted(Path(root).glob("backends/cuda/**/*.cu"))
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda s: translate(nvcc, flags, root, s, folder), sources)
        for source, (code, text) in zip(sources, results):
            if code != 0 or text:
                failed += 1
                print(f"{source.relative_to(root)}: nvcc's exit code {code}\n{text}")
    print(f"{len(sources)} kernels for {', '.join(ARCHITECTURES)} and PTX, {failed} not as wanted")
    return 1 if failed or not sources else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
