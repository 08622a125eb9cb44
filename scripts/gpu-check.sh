#!/usr/bin/env bash
# Checks Ferry on a machine that has an NVIDIA card and nothing else: no network, no compiler, no
# packages.
#
#   gpu-check.sh prepare [--arch 90] [--out DIR] [--data DIR] [--build DIR] [--fake]
#       Run it on a machine with nvcc; it needs no GPU. It builds for compute capability ARCH (90 is 9.0) and stages everything that a check
#       needs into one folder, DIR [build/gpu-check], of at most 60 MiB: stripped programs and tests, their libraries, MNIST, these scripts.
#       --data: the folder with MNIST's four files, or with a folder mnist that has them [$FERRY_DATA, else data/].
#       --build: stage this build and build nothing. --fake: also stage the fake driver, which `run` then uses; such a run tests the
#       folder and says nothing about a card.
#   DIR/gpu-check.sh run [--results DIR] PHASE...      (right, order, figures, learn, all)
#       Run it on the machine with the card, from any place. It needs bash, coreutils and the driver. Each phase ends within its limit of
#       less than 8 minutes, all four within 25 minutes. A step that fails does not stop the others. Each run prints a table, failures
#       first, and writes summary.json, summary.txt, logs.txt and card.profile.json to --results DIR [$OUT, else gpu-check-results in the
#       current folder]. A later run with the same folder keeps the results of other phases and replaces those of its own.
#   gpu-check.sh plan       prints every step with its time limit
#
# Exit status 0: every step of these phases passed or was skipped; 1: a step did not, or prepare
# failed; 2: usage.
# Variables of `run`:
#   FERRY_GPU_DEVICE        the device [cuda:0]
#   FERRY_GPU_PYTHON        Python programs or virtual environments, separated by ':', that are searched for PyTorch and NVIDIA's libraries
#   FERRY_GPU_WORK          the folder for unpacked files and for results between runs [$TMPDIR or /tmp, ferry-gpu-check-UID]
#   FERRY_GPU_LOADER=staged uses the staged C library (otherwise only if the machine's is too old)
#   FERRY_GPU_QUICK=1       a shortened run, to test the script
# What a card must reach: docs/cuda.md, docs/results.
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
