# shellcheck shell=bash
# Shell scripts pass shellcheck and can be run.

check() {
    local files file
    if ! command -v shellcheck >/dev/null 2>&1; then echo "no shellcheck here" && return 77; fi
    mapfile -t files < <(find_files '*.sh' run nightly debian13 check planted -- scripts tests python debian cmake .ci | grep -vE '/run\.[^s]' || true)
    {
        shellcheck -x -f gcc "${files[@]}"
        for file in "${files[@]}"; do
            case "$file" in tests/lint/rules/* | tests/lint/lib.sh | *.inc.sh) continue ;; esac
            if ! head -n 1 "$file" | grep -q '^#!'; then echo "$file:1: no #! line"; fi
            if [ ! -x "$file" ]; then echo "$file:1: not executable"; fi
        done
    } | report
}

# shellcheck disable=SC2016  # the planted script has the mistake
plant() { printf '#!/bin/bash\nrm $1/*\n' >scripts/planted.sh && chmod +x scripts/planted.sh; }
