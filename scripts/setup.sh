#!/usr/bin/env bash
# Installs what the build and the tests need, from Debian 12's own packages. Does nothing where all of it is there.
# `setup.sh browser` adds what the tests of the report's page need.
set -euo pipefail
packages=(build-essential git cmake ninja-build libdnnl-dev libfmt-dev nlohmann-json3-dev libcli11-dev libgtest-dev
          zlib1g-dev libgloo-dev dataset-fashion-mnist clang-format python3 iproute2)
if [ "${1:-}" = browser ]; then packages+=(chromium chromium-driver python3-selenium); fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
echo "installing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: run as root, or install: ${missing[*]}" >&2; exit 2; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
