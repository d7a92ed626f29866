#!/usr/bin/env python3
"""usage: on_gpu.py PROGRAM [ARGUMENT]...: runs it where there is a GPU and it is built, else exits with 77 (skipped)."""
import os
import sys

import gpu

number, reason = gpu.count()
if not number:
    print(f"skipped: {reason}")
    sys.exit(77)
if not os.path.exists(sys.argv[1]):
    print(f"skipped: {sys.argv[1]} is not built; ninja tests/device/conformance-device in the build folder makes it")
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
