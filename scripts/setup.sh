#!/usr/bin/env bash
# Installs what the build and the tests need, from Debian 12's own packages. Does nothing where all of it is there.
# `setup.sh tests` adds what the tests of the report's page and of etcd need.
set -euo pipefail
packages=(build-essential git cmake ninja-build libdnnl-dev libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev
          libgtest-dev zlib1g-dev libgloo-dev libcurl4-openssl-dev dataset-fashion-mnist clang-format python3 iproute2)
if [ "${1:-}" = tests ]; then packages+=(chromium chromium-driver python3-selenium curl); fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: run as root, or install: ${missing[*]}" >&2; exit 2; }
    as_root=(sudo)
  fi
  if ! { "${as_root[@]}" apt-get update -q &&
         DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"; }; then
    echo "setup: these packages of Debian's could not be installed: ${missing[*]}" >&2
    echo "setup: apt says why, above; without a network, install them from elsewhere and run this again" >&2
    exit 2
  fi
fi

# Debian's etcd for the tests, unpacked and not installed, because installing it starts a service.
etcd="$(dirname "$0")/../build/etcd"
if [ "${1:-}" = tests ] && ! command -v etcd >/dev/null && [ ! -x "$etcd/usr/bin/etcd" ]; then
  mkdir -p "$etcd"
  if (cd "$etcd" && apt-get download -q etcd-server && dpkg-deb -x etcd-server_*.deb .); then
    rm "$etcd"/etcd-server_*.deb
  else
    echo "setup: there is no etcd-server; the tests that need it are skipped" >&2
  fi
fi
