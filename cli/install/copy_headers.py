"""Copies the headers that programs which embed moetwin include: copy_headers.py SOURCE_ROOT INCLUDE_DIRECTORY."""
import os
import pathlib
import shutil
import sys

source = pathlib.Path(sys.argv[1])
target = pathlib.Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / sys.argv[2]
for folder in ("core", "backends/sim", "backends/cuda", "analysis"):
    for header in sorted((source / folder).rglob("*.h")):
        place = target / header.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(header, place)
