"""Small files: none over 600 lines; the median is reported."""
from statistics import median

from sources import CPP, files, read

LIMIT = 600


def sizes(root):
    return {name: read(root, name).count("\n") for name in files(root)
            if name.endswith(CPP + (".py", ".build"))}


def check(root):
    """The violations found, as "file:line: what" strings."""
    return [f"{name}:{lines}: {lines} lines; a file has at most {LIMIT}"
            for name, lines in sizes(root).items() if lines > LIMIT]


def report(root):
    lines = [count for name, count in sizes(root).items() if name.endswith(CPP)]
    if not lines:
        return "no C++ file"
    return f"{len(lines)} C++ files, median {median(lines):.0f} lines, longest {max(lines)}"
