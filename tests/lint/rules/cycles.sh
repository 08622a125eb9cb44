# shellcheck shell=bash disable=SC2154  # library_folders is in lib.sh
# No header reaches itself through #include lines.

check() {
    local files
    mapfile -t files < <(find_files '*.h' '*.cuh' '*.def' -- include "${library_folders[@]}" tools bench tests)
    { printf '%s\n' "${files[@]}" | sed 's/^/F:/' && includes_of "${files[@]}"; } | awk '
        /^F:/ { exists[substr($0, 3)] = 1; next }
        {
            split($0, part, ":"); file = part[1]; path = substr(part[3], 2, length(part[3]) - 2)
            folder = file; sub(/[^\/]*$/, "", folder)
            if (("include/" path) in exists) path = "include/" path
            else if (!(path in exists) && ((folder path) in exists)) path = folder path
            if (path in exists) edge[file, ++degree[file]] = path
        }
        function visit(file, trail,    i) {
            if (state[file] == 2) return
            if (state[file] == 1) {
                sub(".*(^| )" file " ", file " ", trail)
                if (!(file in told)) { gsub(/ /, " -> ", trail); print file ":1: include cycle: " trail; told[file] = 1 }
                return
            }
            state[file] = 1
            for (i = 1; i <= degree[file]; i++) visit(edge[file, i], trail " " edge[file, i])
            state[file] = 2
        }
        END { for (file in degree) visit(file, file) }' | report
}

plant() {
    echo '#include "runtime/planted_b.h"' >runtime/planted_a.h
    echo '#include "runtime/planted_a.h"' >runtime/planted_b.h
}
