# shellcheck shell=bash
# libferry.so exports exactly the functions that the public headers declare; everything else with
# external linkage is fy__, in libferry_train fyt_.

check() {
    local library=$FERRY_BUILD_DIR/lib/libferry.so archive=$FERRY_BUILD_DIR/lib/libferry.a train=$FERRY_BUILD_DIR/lib/libferry_train.so
    local dist=$FERRY_BUILD_DIR/lib/libferry_dist.so
    if [ -z "$FERRY_BUILD_DIR" ] || [ ! -e "$library" ]; then
        echo "no libferry.so: name a build folder with --build"
        return 77
    fi
    local temp headers file
    temp=$(mktemp -d) || return 1
    nm -D --defined-only "$library" | awk '$2 ~ /^[TDBRVW]$/ { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort -u >"$temp/exported"
    for file in "$train" "$dist"; do
        if [ ! -e "$file" ]; then continue; fi
        nm -D --defined-only "$file" | awk '$2 ~ /^[TDBRVW]$/ { sub(/@.*/, "", $3); print $3 }' >>"$temp/exported"
    done
    LC_ALL=C sort -u -o "$temp/exported" "$temp/exported"
    mapfile -t headers < <(find_files '*.h' -- include | if [ -e "$train" ]; then cat; else grep -v '^include/ferry/train/'; fi)
    functions_declared "${headers[@]}" >"$temp/declared"
    # Coverage and sanitizer builds add other symbols.
    sed -i '/^__gcov\|^__asan\|^__ubsan\|^__tsan\|^__odr_asan\|^mangle_path$/d' "$temp/exported"
    {
        LC_ALL=C comm -13 "$temp/declared" "$temp/exported" | sed 's|^|libferry.so:1: exported, but in no public header: |'
        LC_ALL=C comm -23 "$temp/declared" "$temp/exported" | sed 's|^|include/ferry:1: declared, but not exported: |'
        for file in "$archive" "${archive%.a}_train.a"; do
            if [ ! -e "$file" ]; then continue; fi
            nm --defined-only "$file" 2>/dev/null | awk -v file="${file##*/}" '$2 ~ /^[TDBRVWC]$/ && $3 !~ /^fyt?_/ && $3 !~ /^(_|DW\.)/ { print file ":1: external name without fy__ or fyt_: " $3 }'
        done
    } | LC_ALL=C sort -u | report
    local status=$?
    rm -rf "$temp"
    return $status
}

plant() { printf 'FY_API int fy_planted(void);\n' >>include/ferry/types.h; }
