#!/usr/bin/env bash
# Checks everything that only a GPU can show, in under 8 minutes, with binaries built before by build.sh.
# usage: tests/device/run.sh    (writes JSON under $OUT, by default analysis/results/)
# Exit code: 0 all passed or skipped with a reason, 1 something failed, 77 no GPU or nothing to run.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
if ! command -v python3 >/dev/null; then
  echo "skipped: python3 is not installed" >&2
  exit 77
fi
exec python3 "$here/run.py" "$@"
