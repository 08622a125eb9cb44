# shellcheck shell=bash
# What .ci/run and .ci/nightly share: steps, their times, the summary. Sourced at the root of the
# tree, with the names of wanted steps as arguments (none: all).
export OMP_WAIT_POLICY=passive
# Compiled files are kept between runs, and shared by the presets that compile them alike.
use_ccache() {
    if ! command -v ccache >/dev/null || ! mkdir -p "${CCACHE_DIR:=/var/cache/ferry/ccache}" 2>/dev/null; then return 0; fi
    export CCACHE_DIR CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    export CMAKE_CUDA_COMPILER_LAUNCHER=ccache
}

started=$SECONDS passed=0 failed=0 skipped=0
summary=""
wanted=" $* "

step() { # step NAME TITLE COMMAND...: exit 77 is a skip
    local name=$1 title=$2 begin=$SECONDS status=0 verdict
    shift 2
    if [ "$wanted" != "  " ] && [[ "$wanted" != *" $name "* ]]; then return 0; fi
    printf '\n======== %s: %s (after %d s)\n' "$name" "$title" "$((SECONDS - started))"
    "$@" </dev/null || status=$?
    case $status in
    0) verdict=passed passed=$((passed + 1)) ;;
    77) verdict=skipped skipped=$((skipped + 1)) ;;
    *) verdict="FAILED ($status)" failed=$((failed + 1)) ;;
    esac
    summary+=$(printf '%-10s %-14s %4d s  %s' "$name" "$verdict" "$((SECONDS - begin))" "$title")$'\n'
    printf -- '-------- %s: %s in %d s\n' "$name" "$verdict" "$((SECONDS - begin))"
    return 0
}

# Long tests of one thread, of processes under mpirun, and of whole commands, whose threads shorter tests use as well:
# ThreadSanitizer runs them in .ci/nightly only. Labels, then names.
# shellcheck disable=SC2034
tsan_long_labels='^(ops|golden)$'
# shellcheck disable=SC2034
tsan_long_names='^unit_(alloc_pool_random|dist_(bars|faults|norms|planned|ranks|shards)|backends_(conv_depthwise|dispatch|elementwise|matmul|move|reduce|slow_path)|train_(drop_bias|launches|model_recompute)|tools_(examples|precision|predict|replay|train))'

# Whole trainings and commands that shorter tests cover line by line: AddressSanitizer runs them in .ci/nightly.
# shellcheck disable=SC2034
asan_long_names='^(golden_plan_programs|unit_dist_bars|unit_tools_(examples|precision|replay))$'

with_preset() { # with_preset PRESET [CTEST OPTION...]
    scripts/build.sh "$1" && scripts/test.sh "$@"
}

summarize() { # the last words; fails if a step did
    printf '\n======== summary after %d s\n%s\n' "$((SECONDS - started))" "$summary"
    echo "ci: $passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
