#!/usr/bin/env bash
# The reference of the public headers, by Doxygen, in build/docs/html; a warning is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mkdir -p build/docs
log=build/docs/warnings.log
doxygen docs/Doxyfile >build/docs/doxygen.log 2>&1 || { tail -n 20 build/docs/doxygen.log >&2 && exit 1; }
if [ -s "$log" ]; then
    cat "$log" >&2
    echo "docs: $(wc -l <"$log") warnings" >&2
    exit 1
fi
echo "docs: no warnings; build/docs/html/index.html"
