#!/usr/bin/env python3
"""A Debian package of moetwin, unpacked: runs from any directory, and the example of docs/install.md embeds the core.
Arguments: SOURCE_ROOT BUILD_ROOT."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, BUILD = Path(sys.argv[1]), Path(sys.argv[2])


def run(*words, **options):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Installation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.place = Path(cls.folder.name)
        cls.package = run(SOURCE / "cli/install/package", SOURCE, BUILD / "package", cls.place).split()[-1]
        cls.root = cls.place / "somewhere else"
        run("dpkg-deb", "-x", cls.package, cls.root)
        cls.program = cls.root / "usr/bin/moetwin"

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_runs_a_shipped_scenario_by_name(self):
        # No library of the build may serve instead.
        run("ldd", self.program)
        words = [self.program, "run", "seed-high-ep-fits", "--numerics", "none", "--set", "training_config.steps=2"]
        self.assertIn("seed-high-ep-fits on sim", run(*words, cwd=self.place))

    def test_names_what_it_needs(self):
        control = run("dpkg-deb", "-f", self.package)
        for package in ("libsimgrid3.32", "libjsoncpp", "libfmt", "fortunes"):
            self.assertRegex(control, rf"Depends: .*{re.escape(package)}")

    def test_manual_and_completion(self):
        self.assertIn("MOETWIN", run("man", self.root / "usr/share/man/man1/moetwin.1.gz"))
        run("bash", "-n", self.root / "usr/share/bash-completion/completions/moetwin")
        complete = ('source "$1"; COMP_WORDS=(moetwin ru); COMP_CWORD=1; _moetwin; echo "${COMPREPLY[@]}"')
        self.assertEqual(run("bash", "-c", complete, "-", self.root / "usr/share/bash-completion/completions/moetwin"),
                         "run\n")

    def test_embeds(self):
        page = (SOURCE / "docs/install.md").read_text()
        program = self.place / "embed.cpp"
        program.write_text(re.search(r"```cpp\n(.*?)```", page, re.S).group(1))
        library = next(self.root.glob("usr/lib/*/pkgconfig"))
        environment = dict(os.environ, PKG_CONFIG_PATH=str(library))
        flags = run("pkg-config", "--cflags", "--libs", "moetwin", env=environment).strip()
        embed = self.place / "embed"
        run("bash", "-c", f'c++ "{program}" {flags} -o "{embed}"')
        scenarios = self.root / "usr/share/moetwin/scenarios"
        run(embed, scenarios / "seed-high-ep-fits.json", scenarios / "clusters", cwd=self.place)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
