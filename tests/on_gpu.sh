#!/usr/bin/env bash
# on_gpu.sh OVERTAKE PROGRAM ARGUMENTS...: runs a test program if OVERTAKE sees a GPU, else says so and exits 77.
set -euo pipefail
overtake=$1
shift
if ! "$overtake" devices | grep -q '^cuda:0 '; then
  echo "skipped: no GPU on this machine"
  exit 77
fi
exec "$@"
