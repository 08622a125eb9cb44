# shellcheck shell=bash
# What .ci/run and .ci/check share: which files a change touches, steps and their times, the summary.
# Sourced at the root of the tree.
export OMP_WAIT_POLICY=passive
# What stays on a machine between runs: compiled files, Debian roots, records of green runs.
kept=${FERRY_CI_ROOTS:-/var/cache/ferry}
# landing: steps whose paths were not touched are left to the night; nightly: everything.
tier=landing

# Presets that compile a file alike share the result.
use_ccache() {
    if ! command -v ccache >/dev/null || ! mkdir -p "${CCACHE_DIR:=$kept/ccache}" 2>/dev/null; then return 0; fi
    export CCACHE_DIR CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
    export CMAKE_CUDA_COMPILER_LAUNCHER=ccache
}

# find_base: prints the commit that the tree is compared with: $FERRY_CI_BASE, else the nearest ancestor of HEAD that
# passed a whole run on this machine (at night: a whole nightly) or that .ci/base names. Prints
# nothing if there is none.
find_base() {
    local commit least='' distance nearest=''
    if [ -n "${FERRY_CI_BASE:-}" ]; then
        git rev-parse --verify --quiet "$FERRY_CI_BASE^{commit}" || true
        return 0
    fi
    while read -r commit; do
        if ! git merge-base --is-ancestor "$commit" HEAD 2>/dev/null; then continue; fi
        distance=$(git rev-list --count "$commit..HEAD")
        if [ -z "$least" ] || [ "$distance" -lt "$least" ]; then least=$distance nearest=$commit; fi
    done < <({ cat .ci/base; if [ "$tier" = nightly ]; then ls "$kept/nightly"; else ls "$kept/green"; fi; } 2>/dev/null | grep -E '^[0-9a-f]{40}$')
    echo "$nearest"
}

# read_changes: sets $base, and $changed: the files that differ from it, committed or not.
base='' changed=''
read_changes() {
    base=$(find_base)
    if [ -z "$base" ]; then
        echo "no commit to compare with: every path counts as touched"
        return 0
    fi
    changed=$({ git -c core.quotePath=false diff --no-renames --name-only "$base" && git -c core.quotePath=false ls-files --others --exclude-standard; } | LC_ALL=C sort -u)
    echo "compared with $(git log -1 --format='%h %s' "$base"): $(grep -c . <<<"$changed" || true) files differ"
}

# touched BEGINNING...: does the path of a file that differs begin like this?
touched() {
    local file beginning
    if [ -z "$base" ]; then return 0; fi
    while read -r file; do
        for beginning; do
            if [[ -n "$file" && "$file" == "$beginning"* ]]; then return 0; fi
        done
    done <<<"$changed"
    return 1
}

# Tests that a change of a folder asks for, by the beginnings of their names.
asked="
tools unit_tools golden advisor
dist unit_dist
train unit_train
ops unit_ops ops property
opset unit_backends unit_cuda ops
backends unit_backends unit_sim unit_cuda ops
alloc unit_alloc faults_memory traces
transfer unit_transfer conformance mutation
runtime unit_runtime conformance mutation
include conformance
python python
scripts unit_scripts
.ci unit_scripts
cmake .
tests/support ."
# touched_tests: a regular expression for those and for the tests that were touched themselves; fails if there is none.
touched_tests() {
    local folder names found
    if [ -z "$base" ]; then echo . && return 0; fi
    found=$({
        while read -r folder names; do
            if [ -n "$folder" ] && touched "$folder/"; then tr ' ' '\n' <<<"$names"; fi
        done <<<"$asked"
        sed -nE 's|^tests/(CMakeLists.txt\|labels.cmake)$|.|p; s|^tests/unit/([a-z]+)/.*|unit_\1|p; s|^tests/(conformance\|ops\|property\|mutation\|faults\|golden\|traces\|advisor)/.*|\1|p' <<<"$changed"
    } | LC_ALL=C sort -u | paste -s -d '|')
    [ -n "$found" ] && echo "^($found)"
}

started=$SECONDS passed=0 failed=0 skipped=0 untouched=0
summary="" red="" wanted="" listing="" names=" "

# step NAME TITLE WHEN COMMAND...: exit 77 is a skip. WHEN: "always", "nightly", or beginnings of
# paths: at a landing it runs if one of them was touched.
step() {
    local name=$1 title=$2 when=$3 begin=$SECONDS status=0 verdict
    shift 3
    names+="$name "
    if [ -n "$wanted" ]; then
        if [[ "$wanted" != *" $name "* ]]; then return 0; fi
    elif [ "$tier" = landing ] && [ "$when" = nightly ]; then
        return 0
    elif [ "$tier" = landing ] && [ "$when" != always ]; then
        # shellcheck disable=SC2086  # several beginnings
        if ! touched $when; then
            untouched=$((untouched + 1))
            summary+=$(printf '%-13s %-14s %4d s  %s' "$name" "not touched" 0 "$title")$'\n'
            return 0
        fi
    fi
    if [ -n "$listing" ]; then echo "$name" && return 0; fi
    printf '\n======== %s: %s (after %d s)\n' "$name" "$title" "$((SECONDS - started))"
    "$@" </dev/null || status=$?
    case $status in
    0) verdict=passed passed=$((passed + 1)) ;;
    77) verdict=skipped skipped=$((skipped + 1)) ;;
    *) verdict="FAILED ($status)" failed=$((failed + 1)) red+=" $name" ;;
    esac
    summary+=$(printf '%-13s %-14s %4d s  %s' "$name" "$verdict" "$((SECONDS - begin))" "$title")$'\n'
    printf -- '-------- %s: %s in %d s\n' "$name" "$verdict" "$((SECONDS - begin))"
    return 0
}

# suite PRESET [CTEST OPTION...]: every test; at a landing without slow ones of folders that were not
# touched (tests/labels.cmake).
suite() {
    local tests status=0
    if [ "$tier" = nightly ]; then
        scripts/test.sh "$@"
        return
    fi
    scripts/test.sh "$@" -LE slow || status=1
    if tests=$(touched_tests); then scripts/test.sh "$@" -L slow -R "$tests" --no-tests=ignore || status=1; fi
    return $status
}

# sources_of_changes: the C sources that are or include a touched file, as the build of dev has seen
# it. Fails if that build has seen nothing.
sources_of_changes() {
    local seen
    seen=$(ninja -C build/dev -t deps) || return 1
    # shellcheck disable=SC2001  # each line
    { sed 's|^    |+ |; t; s|.*|.|' <<<"$seen" && sed 's|^|- |' <<<"$changed"; } | awk -v root="$(pwd -P)/" '
        function plain(path) {
            if (index(path, root) == 1) path = substr(path, length(root) + 1)
            while (sub(/^\.\.\//, "", path)) {}
            return path
        }
        { kind = $1; sub(/^[-+] /, "") }
        kind == "-" { is_changed[$0] = 1; next }
        kind == "+" { if (source == "") source = plain($0); includes[source] = includes[source] "\n" plain($0); next }
        { source = "" }
        END {
            if (length(includes) == 0) { print "the build of dev has seen no source" >"/dev/stderr"; exit 1 }
            for (source in includes) {
                n = split(includes[source], files, "\n")
                for (i = 1; i <= n; i++) if (files[i] in is_changed) { print source; break }
            }
        }' | LC_ALL=C sort -u
}

# bisect STEP...: names the commit since which each of them fails.
bisect() {
    local name clone=build/bisect
    for name; do
        rm -rf "$clone"
        git clone -q . "$clone" || return 1
        echo "======== $name fails since:"
        (
            cd "$clone" || exit 1
            # shellcheck disable=SC2016  # the inner shell expands it; 125: that commit says nothing
            { git bisect start HEAD "$base" && git bisect run bash -c '.ci/run --nightly "$0" || { [ $? -ne 77 ] || exit 125; exit 1; }' "$name"; } >../bisect.log 2>&1
            git log -1 --format='%h %an %ad %s' refs/bisect/bad
        )
    done
}

# record_green: for find_base of later runs, with the summary. What a run left out by a base of the
# user's or by a skip is not known to be green.
record_green() {
    local folder commit folders=(green)
    if [ "$skipped" -ne 0 ] || [[ "${FERRY_CI_BASE:-none}" != none ]]; then
        echo "not recorded as green: $skipped steps were skipped, FERRY_CI_BASE is '${FERRY_CI_BASE:-}'"
        return 0
    fi
    commit=$(git rev-parse HEAD)
    if [ "$tier" = nightly ]; then folders+=(nightly); fi
    for folder in "${folders[@]}"; do
        if mkdir -p "$kept/$folder" 2>/dev/null && printf '%s' "$summary" >"$kept/$folder/$commit"; then
            echo "recorded as green: $kept/$folder/$commit"
        else
            echo "not recorded as green: $kept/$folder cannot be written (FERRY_CI_ROOTS names another folder)"
        fi
    done
}

# summarize: the last words. Status 1: a step failed; 2: there is no step of a wanted name; 77: all
# were skipped.
summarize() {
    local name
    for name in $wanted; do
        if [[ "$names" != *" $name "* ]]; then echo "there is no step $name:$names" >&2 && return 2; fi
    done
    if [ -n "$listing" ]; then return 0; fi
    printf '\n======== summary after %d s\n%s\n' "$((SECONDS - started))" "$summary"
    echo "ci: $passed passed, $failed failed, $skipped skipped, $untouched not touched (left to .ci/nightly)"
    if [ "$failed" -ne 0 ]; then return 1; fi
    if [ "$passed" -eq 0 ] && [ "$skipped" -ne 0 ]; then return 77; fi
}
