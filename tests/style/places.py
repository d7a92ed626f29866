"""Nothing committed names a place of one machine: a home, a scratch folder, a private registry."""
import re

from sources import files, line_of, read

# Written in pieces, so that this file does not name them either.
PATTERNS = [
    (r"(?<![\w.$}-])/" + r"work/\w", "a path of one machine"),
    (r"(?<![\w.])/tmp/" + r"build", "a scratch build folder"),
    (r"(?<![\w.])/(?:home|Users)/" + r"\w+/|(?<![\w.])/root/" + r"\w", "somebody's home"),
    (r"https?://[^\s\"'<>]*(?:pkg\." + r"dev|artifactory|jfrog\.io|/nexus/|\.internal\b)",
     "a private package registry"),
]


def check(root):
    """The violations found, as "file:line: what" strings."""
    found = []
    for name in files(root):
        text = read(root, name)
        if "\0" in text:
            continue
        for pattern, what in PATTERNS:
            for match in re.finditer(pattern, text):
                found.append(f"{name}:{line_of(text, match.start())}: names {what}")
    return found
