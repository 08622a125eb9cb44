#!/usr/bin/env bash
# Formats every source in place, as .clang-format says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find include opset runtime alloc transfer ops backends train dist python tools examples bench tests -type f \
    \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.hpp' \) -print0 | xargs -0 clang-format -i
