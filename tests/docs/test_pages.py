#!/usr/bin/env python3
"""Every page of the documentation: it says something, its links and anchors lead somewhere, it is found.
Arguments: SOURCE_ROOT MOETWIN."""
import re
import subprocess
import sys
import unittest
from pathlib import Path
from urllib.parse import unquote

from pages import pages

ROOT, MOETWIN = Path(sys.argv[1]), sys.argv[2]
PAGES = {page.name: page for page in pages(ROOT)}
LEAST_WORDS = 30  # a page of a verb as small as `schema`


def verbs():
    done = subprocess.run([MOETWIN, "--help"], capture_output=True, text=True, check=True)
    return re.findall(r"^  (\w+) +\S", done.stdout.split("Subcommands:")[1].split("\n\n")[0], re.M)


class Documentation(unittest.TestCase):
    def test_links_and_anchors_lead_somewhere(self):
        wrong, seen = [], 0
        for page in PAGES.values():
            for line, target in page.links():
                if re.match(r"(https?|mailto):", target):
                    continue
                seen += 1
                path, _, anchor = unquote(target).partition("#")
                there = (page.path.parent / path).resolve() if path else page.path
                if not there.exists():
                    wrong.append(f"{page.name}:{line}: {target}: there is no such file")
                elif anchor:
                    other = PAGES.get(there.relative_to(ROOT.resolve()).as_posix() if path else page.name)
                    if other is None or anchor not in other.anchors():
                        wrong.append(f"{page.name}:{line}: {target}: there is no such heading")
        self.assertGreater(seen, 100)
        self.assertEqual([], wrong)

    def test_every_page_says_something(self):
        empty = []
        for page in PAGES.values():
            text = "\n".join(line for _, line in page.prose)
            if page.words() < LEAST_WORDS:
                empty.append(f"{page.name}: {page.words()} words")
            if hole := re.search(r"\b(TODO|TBD|FIXME|XXX|lorem ipsum|coming soon)\b", text, re.I):
                empty.append(f"{page.name}: says {hole[0]}")
            if page.name.startswith("docs/"):
                headings = [line for _, line in page.prose if line.startswith("# ")]
                if len(headings) != 1:
                    empty.append(f"{page.name}: {len(headings)} titles")
        self.assertEqual([], empty)

    def test_no_section_is_empty(self):
        empty = []
        for page in PAGES.values():
            fenced = {block.line for block in page.blocks}
            last = None  # (line, level) of a heading nothing has followed yet
            for line, text in page.prose + [(10**9, "# end")]:
                if last and any(last[0] < begin < line for begin in fenced):
                    last = None
                if heading := re.match(r"(#+) ", text):
                    if last and len(heading[1]) <= last[1]:
                        empty.append(f"{page.name}:{last[0]}: nothing under this heading")
                    last = (line, len(heading[1]))
                elif text.strip():
                    last = None
        self.assertEqual([], empty)

    def test_every_page_is_found_from_the_index(self):
        index = {(PAGES["docs/README.md"].path.parent / target.partition("#")[0]).resolve()
                 for _, target in PAGES["docs/README.md"].links()}
        missing = [name for name, page in PAGES.items()
                   if re.fullmatch(r"docs/[^/]+\.md", name) and name != "docs/README.md"
                   and page.path.resolve() not in index]
        self.assertEqual([], missing)

    def test_every_verb_has_a_page(self):
        found = verbs()
        self.assertIn("sweep", found)
        without = [verb for verb in found if f"docs/{verb}.md" not in PAGES
                   or f"moetwin {verb}" not in PAGES[f"docs/{verb}.md"].path.read_text().splitlines()[0]]
        self.assertEqual([], without)

    def test_every_picture_is_shown(self):
        shown = {(page.path.parent / target).resolve() for page in PAGES.values() for _, target in page.links()}
        unused = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*")
                  if path.suffix in (".png", ".svg") and path.resolve() not in shown]
        self.assertEqual([], unused)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
