#!/usr/bin/env bash
# Installs cuobjdump and nvdisasm, by which tests/unit/cuda/test_sass.sh reads the machine code of
# the kernels, where the CUDA toolkit came without them: from PyPI (nvidia-cuda-cuobjdump,
# nvidia-cuda-nvdisasm, 15 MB) into a virtual environment outside the tree,
# ${XDG_CACHE_HOME:-~/.cache}/ferry/cuda-tools. Usage: scripts/cuda-tools.sh      prints the folder
# of the tools Exit 77 with the reason on standard error where there is no nvcc (then there is no
# machine code either), no python3 or no PyPI.
set -euo pipefail

skip() {
    echo "cuda-tools: $1" >&2
    exit 77
}

for folder in "$(dirname "$(command -v cuobjdump || echo /nowhere/x)")" "${CUDA_HOME:-/usr/local/cuda}/bin"; do
    if [ -x "$folder/cuobjdump" ] && [ -x "$folder/nvdisasm" ]; then echo "$folder" && exit 0; fi
done
if ! command -v nvcc >/dev/null && [ ! -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ]; then skip "there is no nvcc, so no kernels to read"; fi

venv=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/ferry/cuda-tools
find_tools() {
    local file
    for file in "$venv"/lib/python3*/site-packages/nvidia/*/bin/cuobjdump; do
        if [ -x "$file" ] && [ -x "${file%/*}/nvdisasm" ]; then dirname "$file" && return 0; fi
    done
    return 1
}
if find_tools; then exit 0; fi

command -v python3 >/dev/null || skip "there is no python3, so cuobjdump cannot be installed from PyPI"
rm -rf "$venv"
mkdir -p "$(dirname "$venv")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! python3 -m venv "$venv" >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    rm -rf "$venv"
    skip "python3 makes no virtual environment here (Debian: python3-venv)"
fi
if ! "$venv/bin/pip" --disable-pip-version-check --quiet --retries 1 --timeout 15 install 'nvidia-cuda-cuobjdump>=13,<14' 'nvidia-cuda-nvdisasm>=13,<14' >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    rm -rf "$venv"
    skip "PyPI is out of reach: nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm were not installed"
fi
find_tools || skip "the packages from PyPI have no bin/cuobjdump and bin/nvdisasm"
