#!/usr/bin/env bash
# Builds what run.sh runs, for GPUs of one architecture (default 90), and gathers it in build-device/carry: under 64 MiB,
# with the libraries that a bare machine lacks. CUDA's own and NCCL are expected there.
# usage: tests/device/build.sh [ARCHITECTURE]
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
arch=${1:-90}
build=build-device
carry=$build/carry
targets=(tests/device/moetwin-device tests/device/conformance-device)
if [ ! -f $build/build.ninja ]; then
  meson setup $build -Dcuda=enabled -Dbenchmarks=disabled -Dgpu_arch="$arch"
else
  meson configure $build -Dgpu_arch="$arch"
fi
ninja -C $build "${targets[@]}" cli/moetwin

rm -rf $carry
mkdir -p $carry/lib $carry/text $carry/fixtures
for target in "${targets[@]}"; do
  strip -o "$carry/$(basename "$target")" "$build/$target"
done
# Libraries that are neither the system's C library nor CUDA's: beside the programs, which look in lib/ first.
kept='^(libc|libm|libdl|librt|libpthread|ld-linux-x86-64|linux-vdso|libcudart|libcublas|libcublasLt|libnccl)\.so'
for target in "${targets[@]}"; do
  ldd "$build/$target" | awk '/=> \//{print $1, $3}' | while read -r name path; do
    [[ $name =~ $kept ]] || [ -e "$carry/lib/$name" ] || strip -o "$carry/lib/$name" "$path"
  done
done
missing=$(for program in moetwin-device conformance-device; do
  LD_LIBRARY_PATH= ldd "$carry/$program" | awk -v lib="$PWD/$carry/lib/" '/=> \// && index($3, lib) != 1 {print $1}'
done | sort -u | grep -Ev "$kept" || true)
if [ -n "$missing" ]; then
  echo "these libraries would be looked for on the other machine: $missing" >&2
  exit 1
fi

# Data of the quickstart, and what the modelled GPU makes of it on one rank: the losses to compare with.
cp /usr/share/games/fortunes/* $carry/text/
find $carry/text -type l -delete
cp tests/fixtures/pytorch.json $carry/fixtures/
python3 tests/device/quickstart.py > $carry/quickstart-arguments
mapfile -t arguments < $carry/quickstart-arguments
$build/cli/moetwin run scenarios/quickstart.json "${arguments[@]}" --out $carry/quickstart-sim --quiet
rm -f $carry/quickstart-sim/timeline.json $carry/quickstart-sim/report.html

size=$(du -sm $carry | cut -f1)
echo "$carry: $size MiB"
[ "$size" -lt 64 ] || { echo "more than 64 MiB" >&2; exit 1; }
