#!/usr/bin/env bash
# Which steps and tests .ci/run chooses for a change: functions of .ci/steps.inc.sh in a small
# repository. Usage: test_ci.sh BUILD_DIR.
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
needs_command git
unset FERRY_CI_BASE
export FERRY_CI_ROOTS=$work/kept HOME=$work GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
# equals WHAT GOT WANT
equals() { [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"; }
# commit FILE: changes it; prints the commit
commit() { mkdir -p "$(dirname "$1")" && echo "$RANDOM $RANDOM" >>"$1" && git add -A && git commit -q -m "$1" && git rev-parse HEAD; }

mkdir "$work/tree" && cd "$work/tree" || exit 1
git init -q .
# shellcheck source=.ci/steps.inc.sh
. "$root/.ci/steps.inc.sh"
first=$(commit alloc/cache.c)
equals "the base without a record" "$(find_base)" ""
read_changes >/dev/null
if ! touched docs/; then equals "docs/ without a base" spared touched; fi
equals "tests without a base" "$(touched_tests)" .

# the nearest ancestor that is known to be green
mkdir .ci && echo "$first" >.ci/base
second=$(commit ops/fuse.c)
equals "the base of .ci/base" "$(find_base)" "$first"
mkdir -p "$kept/green" "$kept/nightly"
touch "$kept/green/$second" "$kept/green/$(printf '0%.0s' {1..40})" "$kept/green/notes"
third=$(commit tests/unit/train/test_clip.c)
equals "the base of a record" "$(find_base)" "$second"
tier=nightly
equals "the base at night" "$(find_base)" "$first"
tier=landing
git checkout -q -b other "$first"
commit docs/ops.md >/dev/null
equals "the base on another branch" "$(find_base)" ""
git checkout -q -
equals "a base that is asked for" "$(FERRY_CI_BASE=$third find_base)" "$third"
equals "no base" "$(FERRY_CI_BASE=none find_base)" ""

# committed, uncommitted and new files count; a beginning is no middle
echo x >>alloc/cache.c
echo x >notes.txt
read_changes >/dev/null
equals "the files that differ" "$(xargs <<<"$changed")" "alloc/cache.c notes.txt tests/unit/train/test_clip.c"
for path in alloc/ notes docs/\ tests/unit/; do
    # shellcheck disable=SC2086  # two beginnings
    touched $path || equals "$path" untouched touched
done
for path in docs/ train/ cache.c; do
    if touched $path; then equals "$path" touched untouched; fi
done
equals "their tests" "$(touched_tests)" "^(faults_memory|traces|unit_alloc|unit_train)"
# a moved file touches both places, and a name may have any letters
git checkout -q alloc
mkdir -p 'train/ä b' && git mv ops/fuse.c 'train/ä b/fuse.c' && git commit -q -m moved
read_changes >/dev/null
for path in ops/ 'train/ä b/fuse.c'; do
    touched "$path" || equals "$path" untouched touched
done
git reset -q --hard HEAD~1
echo x >>alloc/cache.c
read_changes >/dev/null

# sources that include a touched header, by the list of a build; a build without a list is no answer
built="a.c.o: #deps 2, deps mtime 1 (VALID)
    ../../alloc/a.c
    $PWD/alloc/a.h

b.c.o: #deps 2, deps mtime 1 (VALID)
    ../../alloc/b.c
    /usr/include/a.h"
# shellcheck disable=SC2317  # sources_of_changes calls it
ninja() { printf '%s\n' "$built"; }
changed="alloc/a.h"
equals "the sources that include a header" "$(sources_of_changes)" alloc/a.c
changed="alloc/b.c"
equals "a source" "$(sources_of_changes)" alloc/b.c
built=''
if sources_of_changes 2>/dev/null; then equals "an empty list" accepted refused; fi
read_changes >/dev/null

# steps: without a touched path they do not run, but at night, or if they are named
# shellcheck disable=SC2317  # step calls both
count() { ran+=" $1"; }
# shellcheck disable=SC2317
skip() { return 77; }
steps() {
    ran='' passed=0 failed=0 skipped=0 untouched=0 summary=''
    step one "" always count one
    step two "" "alloc/ docs/" count two
    step three "" docs/ count three
    step four "" nightly count four
    step five "" always false
    step six "" always skip
}
steps >/dev/null
equals "a landing" "$ran, $passed $failed $skipped $untouched" " one two, 2 1 1 1"
if summarize >/dev/null; then equals "a summary with a failure" success failure; fi
tier=nightly
steps >/dev/null
equals "a night" "$ran, $passed $failed $skipped $untouched" " one two three four, 4 1 1 0"
tier=landing wanted=" three four "
steps >/dev/null
equals "named steps" "$ran, $passed $failed $skipped $untouched" " three four, 2 0 0 0"
wanted=" three fuor "
steps >/dev/null
status=0
summarize >/dev/null 2>&1 || status=$?
equals "the status of an unknown step" "$status" 2
wanted="" skipped=1
summary=green
record_green >/dev/null
skipped=0
FERRY_CI_BASE=HEAD~1 record_green >/dev/null
if [ -e "$kept/green/$third" ]; then equals "a record" made "none, after a skip or with a base of the user's"; fi
record_green >/dev/null
equals "the record" "$(cat "$kept/green/$third")" green

# the commit since which a step fails
base=''
for state in 0 0 1 1; do
    printf '#!/bin/sh\nexit %d\n' $state >.ci/run
    chmod +x .ci/run
    commit "docs/page$state" >/dev/null
    if [ -z "$base" ]; then base=$(git rev-parse HEAD); fi
    if [ $state = 1 ] && [ -z "${broken:-}" ]; then broken=$(git log -1 --format=%h); fi
done
equals "the bisection" "$(bisect lint | sed -n 2p | cut -d ' ' -f 1)" "$broken"

# coverage leaves out what the rest of CI leaves out of its quick suites
mkdir -p scripts bin build/coverage && cp "$root/scripts/coverage.sh" scripts/
for name in scripts/build.sh scripts/test.sh bin/gcovr; do
    # shellcheck disable=SC2016  # that program expands it
    printf '#!/bin/sh\necho "$(basename "$0") $*"\n' >"$name"
    chmod +x "$name"
done
equals "the tests of coverage" "$(PATH=$PWD/bin:$PATH scripts/coverage.sh 2>/dev/null | grep '^test.sh')" "test.sh coverage -LE consume|long"

# every label names a test (tests/labels.cmake), if the build has all: CUDA, no sanitizer
names=$(ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p')
cd "$root" || exit 1
if grep -qx ops_op_matrix_fake_cuda <<<"$names" && grep -qx consume <<<"$names"; then
    while read -r name; do
        if ! grep -qx "$name" <<<"$names"; then equals "$name of tests/labels.cmake" missing "a test"; fi
    done < <(sed -n "s/^    \([a-z0-9_]*\))\{0,1\}\$/\1/p" tests/labels.cmake)
fi
