"""C++ is laid out by clang-format with the .clang-format of the root."""
import re
import shutil
import subprocess

from sources import cpp_files


def available():
    return shutil.which("clang-format") is not None


def check(root):
    """The violations found, as "file:line: what" strings: the first one of each file."""
    names = cpp_files(root)
    if not names:
        return []
    run = subprocess.run(["clang-format", "--dry-run", *names], cwd=root, capture_output=True,
                         text=True, check=False)
    first = {}
    for name, line in re.findall(r"^(.+?):(\d+):\d+: warning: ", run.stderr, re.M):
        first.setdefault(name, line)
    if run.returncode != 0 and not first:
        return [f".clang-format:1: clang-format failed: {run.stderr.strip()}"]
    return [f"{name}:{line}: not as clang-format lays it out; run ./moetwin format"
            for name, line in first.items()]


def fix(root):
    names = cpp_files(root)
    return subprocess.run(["clang-format", "-i", *names], cwd=root, check=False).returncode
