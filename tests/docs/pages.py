"""The documentation as data: pages, their headings, links and code blocks."""
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(.*)$")


@dataclass
class Block:
    """A fenced code block: its language, the words after it, its first line's number and its text."""
    language: str
    words: list
    line: int
    text: str


class Page:
    def __init__(self, root, path):
        self.root, self.path = root, path
        self.name = path.relative_to(root).as_posix()
        self.blocks, self.prose = [], []  # prose: (line number, text) outside of blocks
        lines = iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))
        for number, line in lines:
            opening = FENCE.match(line)
            if not opening:
                self.prose.append((number, line))
                continue
            indent, fence, info = opening.groups()
            words, body = info.split(), []
            for _, inner in lines:
                if inner.strip() == fence:
                    break
                body.append(inner.removeprefix(indent))
            else:
                raise ValueError(f"{self.name}:{number}: a code block without an end")
            self.blocks.append(Block(words[0] if words else "", words[1:], number + 1, "\n".join(body) + "\n"))

    def anchors(self):
        """Of the headings, as GitHub makes them."""
        seen, found = {}, set()
        for _, line in self.prose:
            if heading := re.match(r"#{1,6}\s+(.*?)\s*#*$", line):
                text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "").lower()
                anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
                times = seen.get(anchor, 0)
                seen[anchor] = times + 1
                found.add(f"{anchor}-{times}" if times else anchor)
        return found

    def links(self):
        """(line, target) of every link and picture."""
        for number, line in self.prose:
            plain = re.sub(r"`[^`]*`", "", line)
            for match in re.finditer(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)", plain):
                yield number, match[1]

    def inline_code(self):
        for number, line in self.prose:
            for match in re.finditer(r"`([^`]+)`", line):
                yield number, match[1]

    def words(self):
        """How many words it has outside of code."""
        return sum(len(re.findall(r"[^\W\d_]{2,}", line)) for _, line in self.prose)


def pages(root):
    """Every Markdown page of the repository: docs/, and README and CONTRIBUTING of its folders."""
    skipped = {"build", "runs", ".git"}
    for path in sorted(root.rglob("*.md")):
        parts = path.relative_to(root).parts
        if not any(p in skipped or p.startswith("build") for p in parts[:-1]):
            yield Page(root, path)


def shell_lines(text):
    """Commands of a shell text, continued lines joined and comments left out: (offset of the line, text)."""
    joined, begin = "", 0
    for offset, line in enumerate(text.splitlines()):
        if not joined:
            begin = offset
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield begin, joined + line
        joined = ""


def words_of(line):
    """The words of a shell line, operators apart; [] where it is no shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        return list(lexer)
    except ValueError:
        return []


def calls(line):
    """The argument lists of every call of moetwin in a shell line."""
    words, found = words_of(line), []
    for i, word in enumerate(words):
        if word.rsplit("/", 1)[-1] == "moetwin" and (word in ("moetwin", "./moetwin")):
            if i > 0 and words[i - 1] in ("man", "-P", "python3", "bash", "echo"):
                continue
            rest = []
            for argument in words[i + 1:]:
                if set(argument) <= set("|&;()<>"):
                    break
                rest.append(argument)
            found.append(rest)
    return found
