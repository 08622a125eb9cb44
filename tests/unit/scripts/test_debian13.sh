#!/usr/bin/env bash
# The checks of .ci/debian13 behind its packages: a file or a package that is left, a search that
# fails, a mount in a folder that is deleted. The functions run without a root: `in_root` is one of
# this test. Usage: test_debian13.sh BUILD_DIR.
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
cd "$root" || exit 1
for name in remove_folder traces check_purged; do
    body=$(sed -n "/^$name() {/,/^}/p" .ci/debian13)
    [ -n "$body" ] || { echo "FAILED: .ci/debian13 has no $name" && exit 1; }
    eval "$body"
done

# expect STATUS TEXT: of check_purged, with $found, $found_status, $listed, $listed_status
expect() {
    local output status=0
    output=$(check_purged libferry0 ferry-tools 2>&1) || status=$?
    [[ $status -eq $1 && $output == *"$2"* ]] || fail "status $status, not $1, or no '$2' in: $output"
}
# shellcheck disable=SC2317  # check_purged calls it
in_root() {
    case $1 in
    find*) printf '%s' "$found" && return "$found_status" ;;
    dpkg-query*) printf '%s\n' "$listed" && return "$listed_status" ;;
    esac
    return 1
}

found='' found_status=0 listed=$'ii  base-files\nii  gcc' listed_status=0
expect 0 ''
found=/usr/lib/libferry.so
expect 1 'the purge leaves these'
found=''
listed=$'ii  base-files\nrc  ferry-tools'
expect 1 'package ferry-tools is left'
listed=$'ii  base-files'
found_status=1
expect 1 'files cannot be searched'
found_status=0 listed_status=1
expect 1 'packages cannot be listed'

# kept MOUNTS STATUS: the folder stays if this is what awk prints and returns
kept() {
    # shellcheck disable=SC2317  # remove_folder calls it
    (
        awk() { printf '%s' "$mounts" && return "$status"; }
        mounts=$1 status=$2
        ! remove_folder "$work/folder" 2>/dev/null && [ -e "$work/folder" ]
    )
}
mkdir "$work/folder"
kept '' 2 || fail "a folder was deleted although its mounts are unknown"
kept "$work/folder/root" 0 || fail "a folder with a mount was deleted"
remove_folder "$work/folder"
[ ! -e "$work/folder" ] || fail "the folder is left"
