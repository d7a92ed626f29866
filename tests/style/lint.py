#!/usr/bin/env python3
"""usage: lint.py lint [CHECK]... | format

Runs the checks of this folder (all of them, or those named) over the repository and prints one
line per violation. Exit code 1 when there is any, 77 (skipped) when a lone check has no tool.
"""
import sys

import formatting
import layering
import ops
import places
import rules
import sizes
from sources import ROOT

CHECKS = {"formatting": formatting, "layering": layering, "rules": rules, "sizes": sizes,
          "places": places, "ops": ops}


def main(arguments):
    if arguments[:1] == ["format"]:
        return formatting.fix(ROOT)
    names = arguments[1:] or list(CHECKS)
    if arguments[:1] != ["lint"] or not set(names) <= set(CHECKS):
        print(__doc__ + f"\nchecks: {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    if names == ["formatting"] and not formatting.available():
        print("clang-format is not installed")
        return 77
    found = [violation for name in names for violation in CHECKS[name].check(ROOT)]
    for violation in found:
        print(violation)
    print(f"{', '.join(names)}: {len(found)} violations; {sizes.report(ROOT)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
