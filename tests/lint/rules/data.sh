# shellcheck shell=bash
# No file but those of .ci/ names the folder shared/ beside the tree: data sets are in $FERRY_DATA or
# in data/ (scripts/get-data.sh).

check() {
    local files
    mapfile -t files < <(find_files '*' -- . | grep -v '^\.ci/')
    { grep -nIE '\.\./shared' "${files[@]}" /dev/null || true; } | sed -E 's/^([^:]*:[0-9]+:).*/\1 a folder beside the tree: say FERRY_DATA or data\/ instead/' | report
}

plant() { printf '# data sets: ..%s\n' /shared/data >>scripts/planted.cmake; }
