#!/usr/bin/env python3
"""The suite cuda_on_host under AddressSanitizer and UndefinedBehaviorSanitizer.

usage: sanitized.py SOURCE BUILD [TEST]...

Builds what the suite needs in BUILD (kept, so that the next run is shorter) and runs it, or the tests
named, there. Exit code 77 (skipped) where the compiler has no sanitizers.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

# -O1 and line tables: fast enough to build and to train, and what a report names is still there.
# Warnings are the ordinary build's to judge: GCC 12 finds its own intrinsics uninitialised when they are instrumented.
OPTIONS = ["-Db_sanitize=address,undefined", "-Db_lundef=false", "-Doptimization=1", "-Ddebug=false",
           "-Dcpp_args=-g1", "-Dbenchmarks=disabled", "-Dcuda=disabled",
           "-Dwerror=false"]
SUITE = "cuda_on_host"


def has_sanitizers():
    probe = subprocess.run(["c++", "-xc++", "-", "-fsanitize=address,undefined", "-o", "/dev/null"], text=True,
                           input="int main() {}", capture_output=True, check=False)
    return probe.returncode == 0


def introspect(build, what):
    text = subprocess.run(["meson", "introspect", build, what], capture_output=True, text=True, check=True).stdout
    return json.loads(text)


def targets_of(build, names):
    """Files that the suite's tests (those named, if any are) need."""
    files = {target["id"]: target["filename"] for target in introspect(build, "--targets")}
    found = set()
    for test in introspect(build, "--tests"):
        if any(suite.split(":")[-1] == SUITE for suite in test["suite"]) and (not names or test["name"] in names):
            found.update(name for target in test["depends"] for name in files[target])
    return sorted(os.path.relpath(name, build) for name in found)


def main(source, build, *names):
    if not has_sanitizers():
        print("the compiler has no sanitizers")
        return 77
    if not (Path(build) / "build.ninja").exists():
        subprocess.run(["meson", "setup", build, source, *OPTIONS], check=True)
    subprocess.run(["ninja", "-C", build, "build.ninja"], check=True)
    targets = targets_of(build, names)
    if not targets:
        print(f"no test of the suite is named {', '.join(names)}")
        return 1
    subprocess.run(["ninja", "-C", build, *targets], check=True)
    environment = dict(os.environ)
    environment["ASAN_OPTIONS"] = "detect_leaks=1:strict_string_checks=1:detect_invalid_pointer_pairs=2"
    environment["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    command = ["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", "--timeout-multiplier", "10",
               "--no-suite", "slow", "--suite", SUITE, *names]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
