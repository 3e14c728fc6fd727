#!/bin/sh
# Builds the fuzzing programs: "deep" (the default) with sanitizers into build/fuzz, "fast" without into build/fuzz-fast.
set -eu
mode=${1:-deep}
root=$(cd "$(dirname "$0")/../.." && pwd)
case $mode in
  deep) out=$root/build/fuzz ;;
  fast) out=$root/build/fuzz-fast ;;
  *) echo "build.sh: '$mode' is no mode; give deep or fast" >&2; exit 2 ;;
esac
cmake -S "$root/tests/fuzz" -B "${2:-$out}" -G Ninja -DCMAKE_CXX_COMPILER="${CXX:-clang++-16}" -DOVERTAKE_FUZZ="$mode" >/dev/null
cmake --build "${2:-$out}" --parallel "${JOBS:-$(nproc)}"
