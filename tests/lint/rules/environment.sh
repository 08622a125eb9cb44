# shellcheck shell=bash disable=SC2154  # library_folders is in lib.sh
# Environment variables are read by fy__env_file and fy__env_value (runtime/base/environment.h). So
# variables that name a file are ignored in setuid programs, and an empty one counts as unset
# everywhere.

check() {
    local files
    mapfile -t files < <(find_files '*.c' '*.h' '*.cu' '*.cuh' -- "${library_folders[@]}" tools | grep -v '^runtime/base/environment\.h$')
    code_of "${files[@]}" | awk '
        {
            at = index($0, ":"); file = substr($0, 1, at - 1); rest = substr($0, at + 1)
            at = index(rest, ":"); number = substr(rest, 1, at - 1); code = substr(rest, at + 1)
            if (code ~ /(^|[^A-Za-z0-9_])(secure_)?getenv[ \t]*\(/)
                print file ":" number ": read variables with fy__env_file (names of files) or fy__env_value (runtime/base/environment.h)"
        }' | report
}

plant() { printf '#include <stdlib.h>\nconst char *fy__f(void);\nconst char *fy__f(void) { return getenv("FERRY_PLANTED"); }\n' >backends/cuda/planted.c; }
