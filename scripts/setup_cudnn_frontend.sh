#!/usr/bin/env bash
# Puts the headers of cudnn-frontend, which the CUDA build includes, into build/cudnn-frontend/include. Does nothing if
# they are there.
set -euo pipefail
VERSION=1.32.0
# Of the one wheel that is fetched, whatever Python and processor are here: only its headers are used. A new version needs
# a new hash: `pip download` with the options below and without --require-hashes, then `pip hash`.
HASH=sha256:c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
cd "$(dirname "$0")/.."
TARGET=build/cudnn-frontend

if [ -f "$TARGET/version" ] && [ "$(cat "$TARGET/version")" = "$VERSION" ]; then
  exit 0
fi
if ! python3 -m pip --version > /dev/null 2>&1; then
  echo "setup_cudnn_frontend: needs Python's pip to fetch the headers of cudnn-frontend $VERSION; install it" \
    "(Debian: apt-get install python3-pip), or put the headers into $TARGET/include and '$VERSION' into" \
    "$TARGET/version" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "nvidia-cudnn-frontend==$VERSION --hash=$HASH" > "$work/requirements.txt"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --implementation cp \
  --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64 --dest "$work" --require-hashes \
  -r "$work/requirements.txt"
# A wheel is a zip file; the headers lie in its data folder or under include/.
python3 - "$work" <<'PYTHON'
import pathlib, sys, zipfile
work = pathlib.Path(sys.argv[1])
(wheel,) = work.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(work / "wheel")
PYTHON
umbrella=$(find "$work/wheel" -name cudnn_frontend.h -print -quit)
if [ -z "$umbrella" ]; then
  echo "setup_cudnn_frontend: the package of version $VERSION has no cudnn_frontend.h" >&2
  exit 1
fi
rm -rf "$TARGET"
mkdir -p "$TARGET"
cp -r "$(dirname "$umbrella")" "$TARGET/include"
echo "$VERSION" > "$TARGET/version"
echo "cudnn-frontend $VERSION: headers in $TARGET/include"
