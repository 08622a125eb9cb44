#!/usr/bin/env bash
# Checks Ferry on a machine that has an NVIDIA card and nothing else: no network, no compiler, no packages.
#
#   gpu-check.sh prepare [--arch 90] [--out DIR] [--data DIR] [--build DIR] [--fake]
#       On a machine with nvcc; needs no GPU. Builds for compute capability ARCH (90 is 9.0) and stages everything that a check needs into one
#       folder, DIR [build/gpu-check], of at most 60 MiB: stripped programs and tests, the libraries they need, MNIST, these scripts. --data: the
#       folder that has MNIST's four files or a folder mnist with them [$FERRY_DATA, ../shared/data, data]. --build: stage this build, build
#       nothing. --fake: stage the fake driver, too; `run` then uses it, which shows that the folder is whole and says nothing about a card.
#   DIR/gpu-check.sh run [--results DIR] PHASE...      (right, order, figures, learn, all)
#       On the machine with the card, wherever the folder is. Needs bash, coreutils and the driver. Each phase ends within its limit, below
#       8 minutes; all four end within 25 minutes. A step that fails stops no other. Each run ends with a table, failures first, and writes
#       summary.json, summary.txt, logs.txt and card.profile.json to --results DIR [$OUT, else gpu-check-results here]. Runs with the same
#       folder add up: results of an earlier phase stay, a phase that runs again replaces its own.
#   gpu-check.sh plan       prints every step with its time limit
#
# Exit 0: every step of these phases passed or was skipped; 1: one did not, or prepare failed; 2: usage.
# Settings of `run`: FERRY_GPU_DEVICE [cuda:0] · FERRY_GPU_PYTHON: python programs or virtual environments to look in for PyTorch and NVIDIA's
# libraries, separated by ':' · FERRY_GPU_WORK: where it unpacks and keeps results between runs [$TMPDIR or /tmp, ferry-gpu-check-UID] ·
# FERRY_GPU_LOADER=staged: use the staged C library (otherwise only if the machine's is too old) · FERRY_GPU_QUICK=1: a shortened run, to test
# the script. What a card must reach: docs/cuda.md, docs/results.
set -u -o pipefail
export LC_ALL=C

script=$(readlink -f "${BASH_SOURCE[0]}")
here=${script%/*}
parts=$here/gpu-check

usage() {
    echo "gpu-check: $1" >&2
    echo "usage: gpu-check.sh prepare|run|plan ...   (--help says more)" >&2
    exit 2
}
die() {
    echo "gpu-check: $*" >&2
    exit 1
}

help() {
    local line
    while IFS= read -r line; do
        [[ $line == '#!'* ]] && continue
        [[ $line == '#'* ]] || break
        line=${line#'#'}
        echo "${line# }"
    done <"$script"
}

case ${1:-} in
-h | --help | help)
    help
    exit 0
    ;;
prepare)
    shift
    # shellcheck source=scripts/gpu-check/prepare.inc.sh
    source "$parts/prepare.inc.sh"
    # shellcheck source=scripts/gpu-check/phases.inc.sh
    source "$parts/phases.inc.sh"
    prepare "$@"
    ;;
run | plan)
    command=$1
    shift
    # shellcheck source=scripts/gpu-check/machine.inc.sh
    source "$parts/machine.inc.sh"
    # shellcheck source=scripts/gpu-check/steps.inc.sh
    source "$parts/steps.inc.sh"
    # shellcheck source=scripts/gpu-check/phases.inc.sh
    source "$parts/phases.inc.sh"
    # shellcheck source=scripts/gpu-check/report.inc.sh
    source "$parts/report.inc.sh"
    "${command}_phases" "$@"
    ;;
'') usage "no command" ;;
*) usage "'$1' is no command" ;;
esac
