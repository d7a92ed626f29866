"""Writes files into a C++ source as string views. usage: embed.py OUT NAME=FILE[,FILE]..."""
import sys
from pathlib import Path

# A string literal may hold 65,536 characters by the standard; pieces stand one behind the other.
PIECE = 4096


def literal(text):
    lines = []
    data = text.encode("utf-8")
    for start in range(0, len(data), PIECE):
        piece = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}"
                        for b in data[start:start + PIECE])
        lines.append(f'    "{piece}"')
    return "\n".join(lines) or '    ""'


def main():
    out, *entries = sys.argv[1:]
    source = ['#include "analysis/page/assets.h"', "", "namespace moetwin::page_assets {"]
    for entry in entries:
        name, paths = entry.split("=", 1)
        text = "\n".join(Path(p).read_text(encoding="utf-8") for p in paths.split(","))
        source += ["", f"const std::string_view {name}(", literal(text) + ",",
                   f"    {len(text.encode('utf-8'))});"]
    source += ["", "}  // namespace moetwin::page_assets", ""]
    Path(out).write_text("\n".join(source), encoding="utf-8")


if __name__ == "__main__":
    main()
