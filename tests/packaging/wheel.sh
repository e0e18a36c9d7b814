#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The wheel of this build: pip installs it into a fresh environment, where the programs train with libraries of their own, to the
# bits of the build tree; where pip would do harm it refuses; and nothing is left of it afterwards.
# WHEEL_PYTHONS="python3.9 ..." are the Pythons to install it for, instead of python3.
# shellcheck disable=SC2086 # pip and options are lists of words
. "${srcdir:-.}/tests/lib/cli.inc"
for tool in patchelf dpkg-query python3 cmark-gfm mandoc; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done
python3 -c 'import ensurepip, venv' 2>/dev/null || skip "python3 makes no virtual environment: install python3-venv"

# Not part of the make that runs this test: without its options and its TESTS.
expect "make wheel" 0 '' env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u TESTS "${MAKE:-make}" -s -C "$top" wheel WHEEL_DIR="$work/dist/new"
wheel=$(echo "$work"/dist/new/ddprun-*-py3-none-manylinux_2_[1-9]*_"$(uname -m)".whl)
[ -f "$wheel" ] || { fail "no wheel: $(ls "$work/dist/new")"; finish; }
case $(getconf GNU_LIBC_VERSION):$wheel in *\ 2.36:*manylinux_2_3[5-9]_*) fail "Debian 12's wheel needs a newer glibc than 2.34: $wheel" ;; esac
[ "$(wc -c <"$wheel")" -le 15000000 ] || fail "the wheel has $(wc -c <"$wheel") bytes"

# The plugin for GPUs, where this build has it; no GPU is needed.
cuda_wheel=
if [ -e "$top/.libs/libddp-cuda.so" ]; then
    expect "make wheel-cuda" 0 '' env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u TESTS "${MAKE:-make}" -s -C "$top" wheel-cuda WHEEL_DIR="$work"
    cuda_wheel=$(echo "$work"/ddprun_cuda-*-py3-none-manylinux_2_[1-9]*_"$(uname -m)".whl)
    [ -f "$cuda_wheel" ] || { fail "no wheel of the plugin: $(ls "$work")"; cuda_wheel=; }
fi

make_data
training="--data $work/images --model mlp --hidden 16 --batch-size 8 --global-batch 16 --steps 4 --no-eval --quiet"
unset LD_LIBRARY_PATH
# trains DIRECTORY: the programs in its bin, to the bits of this build, with libraries in it and of no one else but C and C++
trains() {
    same "$1: trainer" "$1/bin/trainer" $training
    same "$1: ddprun" "$1/bin/ddprun" -n 2 trainer $training
    expect "$1: ddpreport" 0 '^ddpreport [0-9]' "$1/bin/ddpreport" --version
    for file in bin/trainer bin/ddprun bin/ddpreport libexec/ddprun/libddp.so.0; do
        foreign=$(ldd "$1/$file" | awk '/=>/ { print $3 == "not" ? $1 : $3 }' | grep -vE "^$1/|/lib([cm]|stdc\+\+)\.so\.6$|/libgcc_s\.so\.1$")
        [ -z "$foreign" ] || fail "$1: $file needs $foreign"
    done
}
same "build tree" "$trainer" $training

# finds_cuda PYTHON: the wheel of the plugin finds CUDA where NVIDIA's wheels put it, and libddp's libraries in the other wheel.
finds_cuda() {
    expect "$1: pip install of the plugin" 0 '' $pip install -q --no-index --no-deps "$cuda_wheel"
    site=$(echo "$work"/venv/lib/python*/site-packages)/nvidia
    mkdir -p "$site/cu13/lib" "$site/nccl/lib"
    ldd "$top/.libs/libddp-cuda.so" | awk '/lib(cudart|cublasLt|nccl)\.so/ { print $3 }' | while read -r library; do
        case $library in
        */libnccl.so*) ln -s "$library" "$site/nccl/lib" ;;
        *) ln -s "$library" "$site/cu13/lib" ;;
        esac
    done
    found=$(ldd "$work/venv/libexec/ddprun/libddp-cuda.so" | grep -c "=> $work/venv/.*/lib\(cudart\|cublasLt\|nccl\|jansson.*\)\.so")
    count=$((count + 1))
    [ "$found" -eq 4 ] || fail "$1: the plugin of the wheel: $(ldd "$work/venv/libexec/ddprun/libddp-cuda.so")"
    expect "$1: pip uninstall of the plugin" 0 '' $pip uninstall -q -y ddprun-cuda
    rm -r "$site"
}

# installed PYTHON: into an environment of its own, $work/venv, which is as it was when it is uninstalled
installed() {
    rm -rf "$work/venv"
    expect "$1: venv" 0 '' "$1" -m venv "$work/venv"
    (cd "$work/venv" && find . ! -type d ! -name '*.pyc' | sort) >"$work/before"
    pip="$work/venv/bin/python -m pip --disable-pip-version-check"
    expect "$1: pip install" 0 '' $pip install -q --no-index "$wheel"
    trains "$work/venv"
    echo 'import sys; print("in", sys.prefix)' >"$work/train.py"
    expect "$1: the environment's Python" 0 "in $work/venv\$" "$work/venv/bin/ddprun" -n 2 "$work/train.py"
    for page in trainer.1 ddprun.1 ddpreport.1 trainer-data.7; do
        [ -s "$work/venv/share/man/man${page#*.}/$page" ] || fail "$page is not there"
    done
    expect "links of the documentation" 0 'lead somewhere' python3 "$here/tests/doc/links.py" "$work/venv/share/doc/ddprun/html"
    if command -v manpath >/dev/null; then
        expect "$1: man" 0 "(^|:)$work/venv/share/man" env PATH="$work/venv/bin:$PATH" manpath -q
    fi
    [ -s "$(echo "$work"/venv/lib/python*/site-packages/ddprun-*.dist-info/licenses/LICENSE)" ] || fail "no licence"
    expect "$1: libddp for Python" 0 "$work/venv/libexec/ddprun$" "$work/venv/bin/python" -c \
        'import os, ddprun._lib as d; d.lib.ddp_version; print(os.environ["DDP_PLUGIN_PATH"])'
    [ -z "$cuda_wheel" ] || finds_cuda "$1"
    # A plugin beside the programs is found.
    echo "no library" >"$work/venv/libexec/ddprun/libddp-cuda.so"
    expect "$1: plugin" 9 "cannot load $work/venv/libexec/ddprun/libddp-cuda.so: " "$work/venv/bin/trainer" --device cuda
    rm "$work/venv/libexec/ddprun/libddp-cuda.so"
    expect "$1: pip uninstall" 0 '' $pip uninstall -q -y ddprun
    (cd "$work/venv" && find . ! -type d ! -name '*.pyc' | sort) | comm -13 "$work/before" - >"$work/left"
    [ ! -s "$work/left" ] || fail "left behind: $(cat "$work/left")"
}
for python in ${WHEEL_PYTHONS:-python3}; do
    installed "$python"
done
expect "musl" 1 'is not a supported wheel on this platform' $pip download --no-index --no-deps \
    --only-binary :all: --platform "musllinux_1_2_$(uname -m)" -d "$work/download" "$wheel"
expect "pip install --target" 0 '' $pip install -q --no-index --target "$work/target" "$wheel"
trains "$work/target"
finish
