#!/usr/bin/env python3
"""The commands of the documentation.
Arguments: SOURCE_ROOT MOETWIN named|quick|slow.

named: verbs, options, scenario keys and shipped scenarios that any command of a page or of a --help names exist.
quick: the blocks of a page that are marked ```sh run, in order, in a folder of the page's own that has `moetwin`, `scenarios` and nothing
  else, succeed; a line that ends with `# exit code N` ends with N. A block ```text output after one is what it printed: the same words on the
  same lines, numbers within 5%, `...` for lines left out.
slow: the same of the pages that have blocks marked ```sh run slow, with these.
"""
import functools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from pages import calls, pages, shell_lines

ROOT, MOETWIN, KIND = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
WRAPPER_VERBS = {"test", "lint", "format", "bench", "package"}


@functools.cache
def help_of(*verb):
    return subprocess.run([MOETWIN, *verb, "--help"], capture_output=True, text=True, check=True).stdout


@functools.cache
def verbs():
    return re.findall(r"^  (\w+) +\S", help_of().split("Subcommands:")[1].split("\n\n")[0], re.M)


@functools.cache
def options(verb):
    usage = help_of(verb).split("Examples:")[0]
    return set(re.findall(r"(?<![\w-])(--?[A-Za-z][\w-]*)", usage))


@functools.cache
def scenario_keys():
    schema = json.loads(subprocess.run([MOETWIN, "schema"], capture_output=True, text=True, check=True).stdout)
    found = set()

    def walk(properties, prefix):
        for name, value in properties.items():
            found.add(prefix + name)
            walk(value.get("properties", {}), prefix + name + ".")

    walk(schema["properties"], "")
    return found


def problems(arguments):
    """What is wrong with one call of moetwin."""
    verb, rest = (arguments or [""])[0], arguments[1:]
    if verb in WRAPPER_VERBS or verb.startswith("-") or not verb.islower():
        return []
    if verb not in verbs():
        return [f"{verb} is no verb"]
    wrong = []
    for i, word in enumerate(rest):
        if re.match(r"--?[A-Za-z]", word) and word.partition("=")[0] not in options(verb):
            wrong.append(f"{verb} has no option {word}")
        if re.match(r"(\.\./)*scenarios/", word) and not (ROOT / word).exists() and "NAME" not in word:
            if rest[i - 1] not in ("-o", "--out", "--write") and verb != "import":
                wrong.append(f"there is no {word}")
        if i > 0 and rest[i - 1] in ("--set", "--over") and word != "KEY=VALUE":
            key = word.partition("=")[0]
            if "." in key and key not in scenario_keys() and not key.startswith(("section.", "nccl.")):
                wrong.append(f"there is no key {key}")
    return wrong


def fits(expected, printed):
    """Whether a printed line is an expected one: words equal, numbers within 5%; bars go with the numbers."""
    expected, printed = (re.sub("[\u2580-\u259f]", "", text) for text in (expected, printed))
    if NUMBER.sub("#", expected).split() != NUMBER.sub("#", printed).split():
        return False
    value = lambda text: float(text.replace(",", ""))
    return all(math.isclose(value(a), value(b), rel_tol=0.05, abs_tol=1e-12)
               for a, b in zip(NUMBER.findall(expected), NUMBER.findall(printed)))


def first_difference(expected, printed):
    """The first expected line that does not come, in order; None: all do."""
    lines = iter(printed.splitlines())
    for line in expected.splitlines():
        if line.strip() in ("", "..."):
            continue
        if not any(fits(line, other) for other in lines):
            return line
    return None


def script(text):
    """Bash that stops at the first line which does not end as the page says."""
    made = ["set -euo pipefail"]
    for line in text.splitlines():
        if wanted := re.search(r"#\s*exit code (\d+)\s*$", line):
            command = line[:wanted.start()].rstrip()
            made.append(f"code=0; {command} || code=$?; [[ $code == {wanted[1]} ]] || "
                        f"{{ echo \"exit code $code, not {wanted[1]}\" >&2; exit 99; }}")
        else:
            made.append(line)
    return "\n".join(made) + "\n"


def runnable(block, kind):
    return block.language == "sh" and block.words in ([["run"]] if kind == "quick" else [["run"], ["run", "slow"]])


def is_of(page, kind):
    return any(block.language == "sh" and block.words == (["run"] if kind == "quick" else ["run", "slow"])
               for block in page.blocks)


class Named(unittest.TestCase):
    def test_commands_of_pages(self):
        wrong, seen = [], 0
        for page in pages(ROOT):
            found = []
            for block in page.blocks:
                if block.language in ("sh", "bash", ""):
                    found += [(block.line + offset, line.removeprefix("$ ")) for offset, line in shell_lines(block.text)]
            found += [(line, code) for line, code in page.inline_code() if re.match(r"(\./)?moetwin \w", code)]
            for line, text in found:
                for call in calls(text):
                    seen += 1
                    wrong += [f"{page.name}:{line}: {what}" for what in problems(call)]
        self.assertGreater(seen, 100)
        self.assertEqual([], wrong)

    def test_examples_of_help(self):
        wrong = []
        for verb in verbs():
            text = help_of(verb)
            self.assertIn("Examples:", text, f"moetwin {verb} --help has no examples")
            found = [call for _, line in shell_lines(text.split("Examples:")[1]) for call in calls(line)]
            self.assertTrue(any(call[:1] == [verb] for call in found), f"no example of {verb} calls it")
            wrong += [f"moetwin {verb} --help: {what}" for call in found for what in problems(call)]
        self.assertEqual([], wrong)

    def test_blocks_are_marked_as_the_convention_has_it(self):
        wrong = [f"{page.name}:{block.line}: {block.language} {' '.join(block.words)}" for page in pages(ROOT)
                 for block in page.blocks
                 if block.words and (block.language, block.words) not in
                 [("sh", ["run"]), ("sh", ["run", "slow"]), ("text", ["output"])]]
        self.assertEqual([], wrong)

    def test_the_checkers_on_planted_faults(self):
        self.assertEqual(problems(["run", "scenarios/quickstart.json", "--seed", "2"]), [])
        self.assertEqual(problems(["fly"]), ["fly is no verb"])
        self.assertEqual(problems(["run", "--sede", "2"]), ["run has no option --sede"])
        self.assertEqual(problems(["run", "scenarios/no.json"]), ["there is no scenarios/no.json"])
        self.assertEqual(problems(["sweep", "x.json", "--over", "training_config.sede=1,2"]),
                         ["there is no key training_config.sede"])
        self.assertEqual(calls("a | ./moetwin run x --seed 2 > y # moetwin z"), [["run", "x", "--seed", "2"]])
        self.assertIsNone(first_difference("loss 5.65\n...\nend", "noise\nloss 5.60\nmore\nend\n"))
        self.assertEqual(first_difference("loss 5.65\nend", "loss 6.60\nend\n"), "loss 5.65")
        self.assertEqual(first_difference("b\na", "a\nb\n"), "a")
        for text, ends in (("true", 0), ("false\ntrue", 1), ("(exit 3)  # exit code 3", 0), ("true # exit code 3", 99)):
            self.assertEqual(subprocess.run(["bash", "-c", script(text)], capture_output=True).returncode, ends)


class Running(unittest.TestCase):
    def run_page(self, page):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            (place / "scenarios").symlink_to(ROOT / "scenarios")
            (place / "moetwin").symlink_to(MOETWIN)
            environment = dict(os.environ, PATH=f"{place}:{os.environ['PATH']}")
            printed = ""
            for block in page.blocks:
                with self.subTest(f"{page.name}:{block.line}"):
                    if runnable(block, KIND):
                        done = subprocess.run(["bash", "-c", script(block.text)], cwd=place, env=environment,
                                              capture_output=True, text=True)
                        self.assertEqual(done.returncode, 0, f"{page.name}:{block.line}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
                        printed = done.stdout
                    elif block.words == ["output"] and printed is not None:
                        missing = first_difference(block.text, printed)
                        self.assertIsNone(missing, f"{page.name}:{block.line}: not printed: {missing}\n{printed}")
                    elif block.language == "sh":
                        printed = None  # not run: an output after it is not checked

    def test_runs(self):
        chosen = [page for page in pages(ROOT) if is_of(page, KIND)]
        self.assertTrue(chosen, f"no page has {KIND} blocks")
        for page in chosen:
            self.run_page(page)


if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Named if KIND == "named" else Running)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
