# shellcheck shell=bash
# Each step of a landing is a job of the hosted workflow, a row of .ci/README.md, and has a fault in
# .ci/planted.

check() {
    local step
    FERRY_CI_BASE=none .ci/run --list 2>/dev/null | {
        while read -r step; do
            if ! grep -qE "^ *step: \[(.*, )?$step(, .*)?\]$" .github/workflows/ci.yml; then echo ".github/workflows/ci.yml:1: no job $step"; fi
            if ! grep -q "^| $step |" .ci/README.md; then echo ".ci/README.md:1: no row for step $step"; fi
            if ! grep -qE "^    $step\)" .ci/planted; then echo ".ci/planted:1: no fault for step $step"; fi
        done
    } | report
}

plant() { sed -i 's/^step lint /step planted "" always true\n&/' .ci/run; }
