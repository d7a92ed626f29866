"""What the style checks read: the files of the repository, and C++ without comments and strings."""
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPP = (".h", ".cpp", ".cu", ".cuh")


def files(root=ROOT):
    """All files that are committed or would be, as sorted paths relative to `root`."""
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        names = listed.split("\0")[:-1]
    except (OSError, subprocess.CalledProcessError):  # no git, or a tree without one
        names = []
        for folder, below, inside in os.walk(root):
            below[:] = [d for d in below if d not in (".git", "runs", "__pycache__")
                        and not d.startswith("build")]
            names += [os.path.relpath(os.path.join(folder, name), root) for name in inside]
    return sorted(name for name in names if (Path(root) / name).is_file())


def cpp_files(root=ROOT):
    return [name for name in files(root) if name.endswith(CPP)]


def read(root, name):
    return (Path(root) / name).read_text(encoding="utf-8", errors="replace")


TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
                    re.S)


def code_only(text):
    """`text` with comments gone and literals empty; line numbers stay. Digit separators survive."""
    def blank(match):
        token = match[0]
        if token.startswith("'") and match.start() and text[match.start() - 1].isalnum():
            return token  # 1'000'000
        kept = '""' if token.startswith(('"', "R")) else "' '" if token.startswith("'") else ""
        return kept + "\n" * token.count("\n")
    return TOKENS.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1
