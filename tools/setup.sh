#!/bin/sh
# Makes this machine ready: `setup.sh build` for make and make demo; for make test as well `setup.sh test` (programs) and
# `setup.sh python` (packages, which takes a minute or two and can go on beside the build).
# Installs only what is missing, says what it installs, and without root says what is missing instead.
# Python packages go into the private environment .venv; nothing else on the machine's Python changes.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
what=${1:-build}
say() { echo "setup: $*"; }
have() { command -v "$1" >/dev/null 2>&1; }

# Debian packages: "command:package" pairs. need: fail without them. want: tests that use them are skipped, and say so.
need="" want=""
missing() { # command package -> package, when the command is not there
    have "$1" || echo " $2"
}
need="$need$(missing "${CC:-gcc}" gcc)$(missing make make)$(missing ar binutils)"
[ -e /usr/include/stdio.h ] || need="$need libc6-dev"
if [ "$what" = test ]; then
    need="$need$(missing python3 python3)$(missing g++ g++)$(missing pkg-config pkg-config)$(missing cmake cmake)"
    python3 -c 'import ensurepip, venv' 2>/dev/null || need="$need python3-venv"
    python3 -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null ||
        need="$need python3-dev"
    want="$want$(missing clang clang)"
    ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 || want="$want libclang-rt-14-dev"
    case $(uname -m) in
    aarch64) other=x86_64 gcc=gcc-x86-64-linux-gnu libc=libc6-dev-amd64-cross ;;
    x86_64) other=aarch64 gcc=gcc-aarch64-linux-gnu libc=libc6-dev-arm64-cross ;;
    *) other="" ;;
    esac
    if [ "$other" ]; then
        [ -e /usr/$other-linux-gnu/include/stdio.h ] || want="$want $libc" # the compiler only recommends it
        want="$want$(missing $other-linux-gnu-gcc $gcc)$(missing qemu-$other qemu-user)"
    fi
fi

install_packages() {
    say "installing Debian packages: $*"
    [ -n "${apt_updated:-}" ] || { apt-get update -qq >/dev/null 2>&1 || true; apt_updated=1; }
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/tmp/saker-setup.$$ 2>&1 ||
        { tail -5 /tmp/saker-setup.$$; rm -f /tmp/saker-setup.$$; return 1; }
    rm -f /tmp/saker-setup.$$
}
if [ "$what" != python ] && [ -n "$need$want" ]; then
    if [ "$(id -u)" = 0 ] && have apt-get; then
        [ -z "$need" ] || install_packages $need || { say "could not install:$need"; exit 1; }
        for package in $want; do
            install_packages "$package" || say "could not install $package: the tests that use it will be skipped"
        done
    else
        [ -z "$need" ] || { say "missing (install them, or run as root on Debian or Ubuntu):$need"; exit 1; }
        say "missing, so the tests that use them will be skipped:$want"
    fi
fi
[ "$what" = python ] || exit 0

# ---------------------------------------------------------------- Python packages
py=.venv/bin/python
if [ ! -x $py ]; then
    say "creating the private Python environment .venv"
    python3 -m venv --system-site-packages .venv
fi
lacking=""
for module in numpy ml_dtypes pytest hypothesis matplotlib wheel; do
    $py -c "import $module" 2>/dev/null || lacking="$lacking $module"
done
$py -c 'import setuptools, sys; sys.exit(int(setuptools.__version__.split(".")[0]) < 77)' 2>/dev/null || lacking="$lacking setuptools>=77"
if [ -n "$lacking" ]; then
    say "installing Python packages into .venv:$lacking"
    $py -m pip install -q --disable-pip-version-check $lacking || { say "pip could not install:$lacking"; exit 1; }
fi
if [ "${TORCH:-1}" != 0 ] && ! $py -c 'import torch' 2>/dev/null; then
    wanted=10 # GB: what pip downloads and what it unpacks lie side by side for a while
    free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1000000) }')
    if [ "$free" -lt $wanted ]; then
        say "PyTorch needs $wanted GB of disk to install and $free are free: the PyTorch tests will be skipped"
    else
        say "installing the newest PyTorch into .venv (several GB with its CUDA packages; TORCH=0 leaves the PyTorch tests out)"
        $py -m pip install -q --disable-pip-version-check --no-cache-dir torch ||
            say "pip could not install torch: the PyTorch tests will be skipped"
    fi
fi
