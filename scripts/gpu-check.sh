#!/usr/bin/env bash
# Checks Ferry on a machine that has an NVIDIA card and nothing else: no network, no compiler, no
# packages.
#
#   gpu-check.sh prepare [--arch 90] [--out DIR] [--data DIR] [--build DIR] [--fake]
#       Run it on a machine with nvcc; it needs no GPU. It builds for compute capability ARCH (90 is 9.0) and stages everything that a check
#       needs into one folder, DIR [build/gpu-check]: stripped programs and tests, their libraries, MNIST, recorded losses, these scripts. The
#       folder and the tree's tracked files together have at most 60 MiB.
#       --data: the folder with MNIST's four files, or with a folder mnist that has them [$FERRY_DATA, else data/].
#       --build: stage this build and build nothing. --fake: also stage the fake driver, which `run` then uses; such a run is short, tests
#       the folder and says nothing about a card.
#   DIR/gpu-check.sh run [--results DIR] [--before DIR] CALL      (right, figures, learn)
#       Run it on the machine with the card, from any place. It needs bash, coreutils and the driver. The calls end within 200, 240 and
#       200 s. A step that fails or takes too long does not stop the others. Each result is written when it is known, to --results DIR
#       [$OUT, else gpu-check-results in the current folder]: steps.tsv, results.jsonl, logs.txt, card.profile.json; at the end summary.txt,
#       which is printed: failures first. Steps that passed in an earlier call are not repeated: that of this machine, else the one whose
#       results are in --before DIR [before, beside the script]. A device that does not open ends the call.
#   gpu-check.sh plan       prints every step with its time limit
#
# Exit status 0: every step of this call passed or was skipped; 1: a step did not, or prepare failed;
# 2: usage.
# Variables of `run`:
#   FERRY_GPU_DEVICE        the device [cuda:0]
#   FERRY_GPU_PYTHON        Python programs or virtual environments, separated by ':', that are searched for PyTorch and NVIDIA's libraries
#   FERRY_GPU_WORK          the folder for unpacked files and for results between runs [$TMPDIR or /tmp, ferry-gpu-check-UID]
#   FERRY_GPU_LOADER=staged uses the staged C library (otherwise only if the machine's is too old)
#   XZ_OPT                  of prepare: how programs are compressed
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
    [[ $1 == run ]] && command=run_call || command=plan_calls
    shift
    # shellcheck source=scripts/gpu-check/machine.inc.sh
    source "$parts/machine.inc.sh"
    # shellcheck source=scripts/gpu-check/steps.inc.sh
    source "$parts/steps.inc.sh"
    # shellcheck source=scripts/gpu-check/phases.inc.sh
    source "$parts/phases.inc.sh"
    "$command" "$@"
    ;;
'') usage "no command" ;;
*) usage "'$1' is no command" ;;
esac
