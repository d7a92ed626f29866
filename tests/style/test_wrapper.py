#!/usr/bin/env python3
"""The wrapper ./moetwin on planted tools: what it calls, says and returns. Installs nothing."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

WRAPPER = Path(__file__).resolve().parents[2] / "moetwin"

# Each planted tool writes its name and arguments into $CALLS and then does as its body says.
TOOLS = {
    "dpkg-query": 'for p; do [[ $p == -* || $p == \\$* || " $MISSING " == *" $p "* ]] ||'
                  ' printf "installed:%s " "$p"; done; exit 1',
    "apt-get": 'exit ${APT_EXIT:-0}',
    "id": 'echo ${FAKE_UID:-0}',
    "sudo": '[[ ${SUDO-} == yes ]] || exit 1; shift; "$@"',
    "meson": 'for last; do :; done; mkdir -p "${@: -2:1}"; touch "${@: -2:1}/build.ninja"',
    "ninja": 'if [[ ${NINJA-} == bad ]]; then echo "[1/2] Compiling a"; echo "FAILED: b.o";'
             ' echo "b.cpp:1: oops"; exit 1; fi; mkdir -p "$2/cli"; if [[ ! -e $2/cli/moetwin ]];'
             ' then echo "[1/9] Compiling a"; printf \'#!/bin/bash\\necho "$PWD: $*"\\nexit 5\\n\''
             ' >"$2/cli/moetwin"; chmod +x "$2/cli/moetwin"; fi',
}


class Wrapper(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve() / "a tree"
        self.tools = self.root / "tools"
        self.calls = self.root / "calls"
        self.tools.mkdir(parents=True)
        shutil.copy(WRAPPER, self.root / "moetwin")
        for name, body in TOOLS.items():
            tool = self.tools / name
            tool.write_text(f'#!/bin/bash\necho "{name} $*" >>"$CALLS"\n{body}\n')
            tool.chmod(0o755)

    def run_it(self, *arguments, program=None, cwd=None, **settings):
        self.calls.write_text("")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MOETWIN_")}
        environment |= {"PATH": f"{self.tools}:/usr/bin:/bin", "CALLS": str(self.calls)} | settings
        run = subprocess.run([program or self.root / "moetwin", *arguments], cwd=cwd or self.root,
                             env=environment, capture_output=True, text=True, check=False)
        self.called = [line.split()[0] for line in self.calls.read_text().splitlines()]
        return run

    def test_first_call_sets_up_and_the_second_is_quiet(self):
        first = self.run_it("run", "x y.json")
        self.assertEqual(first.stdout, f"{self.root}: run x y.json\n")
        self.assertEqual(first.returncode, 5)  # the program's own
        self.assertEqual(self.called, ["dpkg-query", "meson", "ninja"])
        self.assertEqual(first.stderr, "moetwin: configuring\nmoetwin: building, 9 steps\n")
        second = self.run_it("run", "x y.json")
        self.assertEqual((second.stdout, second.stderr), (first.stdout, ""))
        self.assertEqual(self.called, ["ninja"])

    def test_any_folder_and_through_a_symlink(self):
        other = self.root / "other"
        other.mkdir()
        (other / "link").symlink_to("../moetwin")
        (other / "twice").symlink_to("link")
        run = self.run_it("topology", program="./twice", cwd=other)
        self.assertEqual(run.stdout, f"{other}: topology\n")
        self.assertTrue((self.root / "build" / "build.ninja").exists())
        self.assertFalse((other / "build").exists())

    def test_missing_packages_without_root(self):
        run = self.run_it("run", MISSING="meson libfmt-dev", FAKE_UID="1000")
        self.assertEqual(run.returncode, 2)
        self.assertTrue(run.stderr.endswith(
            '\n  sudo sh -c "apt-get update && apt-get install -y --no-install-recommends '
            'meson libfmt-dev"\n'), run.stderr)
        self.assertNotIn("apt-get", self.called)
        self.assertNotIn("meson", self.called)

    def test_missing_packages_with_root_or_sudo(self):
        for settings in ({}, {"FAKE_UID": "1000", "SUDO": "yes"}):
            shutil.rmtree(self.root / "build", ignore_errors=True)
            run = self.run_it("run", MISSING="g++", **settings)
            self.assertEqual(run.returncode, 5, run.stderr)
            calls = self.calls.read_text()
            self.assertIn("apt-get -q update\n", calls)
            self.assertIn("apt-get -q install -y --no-install-recommends g++\n", calls)
            self.assertIn("moetwin: installing 1 Debian packages: g++\n", run.stderr)

    def test_installing_fails(self):
        run = self.run_it("run", MISSING="g++", APT_EXIT="100")
        self.assertEqual(run.returncode, 2)
        self.assertIn("could not install the packages; from " +
                      str(self.root / "build" / "setup.log"), run.stderr)
        self.assertNotIn("meson", self.called)

    def test_the_build_fails(self):
        run = self.run_it("run", NINJA="bad")
        self.assertEqual(run.returncode, 70)
        self.assertTrue(run.stderr.endswith("FAILED: b.o\nb.cpp:1: oops\n"), run.stderr)
        again = self.run_it("run")  # all packages are there: only the build is tried again
        self.assertEqual(self.called, ["ninja"])
        self.assertEqual(again.returncode, 5)

    def test_a_moved_tree_is_configured_anew(self):
        self.run_it("run")
        (self.root / "build" / "build.ninja").write_text("old place")
        stamp = self.root / "build" / ".stamp"
        stamp.write_text("/elsewhere\n" + stamp.read_text().split("\n", 1)[1])
        self.run_it("run")
        self.assertEqual(self.called, ["dpkg-query", "meson", "ninja"])
        self.assertEqual((self.root / "build" / "build.ninja").read_text(), "")


if __name__ == "__main__":
    unittest.main()
