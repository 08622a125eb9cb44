# shellcheck shell=bash
# Warnings are errors where a preset sets FERRY_WERROR, and nowhere else: a user with another
# compiler gets warnings, not a failure.
# Only cmake/flags.cmake turns warnings into errors. A test compiles the small applications of
# tests/consume, not the build.

check() {
    local files
    mapfile -t files < <(find_files 'CMakeLists.txt' '*.cmake' 'CMakePresets.json' 'Makefile' 'build.sh' -- . | grep -vE '^(cmake/flags\.cmake|tests/consume/.*)$')
    {
        grep -nE -e '-Werror|warning-as-error|COMPILE_WARNING_AS_ERROR' "${files[@]}" /dev/null | sed 's/\(^[^:]*:[0-9]*:\).*/\1 makes warnings errors: only FERRY_WERROR does, in cmake\/flags.cmake/'
        awk '/"name": "base"/ { base = 1 } base && /"FERRY_WERROR": "ON"/ { found = 1 } /}/ && found { exit } END { if (!found) print "CMakePresets.json:1: the preset base does not set FERRY_WERROR" }' CMakePresets.json
    } | report
}

plant() { echo 'target_compile_options(ferry PRIVATE -Werror)' >>cmake/cuda.cmake; }
