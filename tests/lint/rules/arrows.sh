# shellcheck shell=bash disable=SC2154  # library_folders is in lib.sh
# The direction of includes: include, opset <- runtime <- alloc <- transfer <- ops, with
# backends, train, the command, examples and benchmarks on the public headers only. runtime/wire.c
# alone connects the folders and may include all of them.

check() {
    local files
    mapfile -t files < <(find_files '*.c' '*.h' '*.cu' '*.cuh' '*.def' '*.cpp' '*.hpp' -- include "${library_folders[@]}" tools examples bench)
    includes_of "${files[@]}" | awk '
        BEGIN {
            rank["runtime"] = 1; rank["alloc"] = 2; rank["transfer"] = 3; rank["ops"] = 4
            split("backend op status types", seam); for (i in seam) seam_header["<ferry/" seam[i] ".h>"] = 1
            house = "^(opset|runtime|alloc|transfer|ops|backends|train|tools|tests|bench|examples|include)/"
        }
        function bad(why) { print file ":" line ": includes " name ": " why }
        {
            split($0, part, ":"); file = part[1]; line = part[2]; name = part[3]
            folder = file; sub(/\/.*/, "", folder)
            quoted = (name ~ /^"/); path = substr(name, 2, length(name) - 2)
            target = path; sub(/\/.*/, "", target)
            if (path !~ /\//) target = folder
            if (path ~ /\.(c|cu|cpp)$/) { bad("sources are not included"); next }
            if (path ~ /^\.\.?\//) { bad("name it from the root of the tree"); next }
            if (!quoted && path ~ house) { bad("<...> is for public and system headers"); next }
            if (quoted && path ~ /^ferry\//) { bad("public headers are included as <ferry/...>"); next }
            is_public = (path ~ /^ferry\//)
            if (file == "runtime/wire.c") next
            if (folder == "include") {
                if (quoted) bad("public headers see public and system headers only")
                else if (is_public && file !~ /^include\/ferry\/(train\/|dist_train\.h)/ && path ~ /^ferry\/train\//) bad("libferry does not know libferry_train")
                next
            }
            if (is_public && path ~ /^ferry\/train\// && folder != "train" && folder != "dist" && folder != "tools" && folder != "examples" && folder != "bench")
                { bad("libferry does not know libferry_train"); next }
            if (is_public && folder == "backends" && !(name in seam_header))
                { bad("backends see <ferry/{backend,op,status,types}.h> only"); next }
            if (!quoted || is_public) next
            if (target == "opset") next
            if (folder == "opset") { bad("opset/ includes <ferry/...> and itself only"); next }
            # Header only, and the only way to read an environment variable (environment.sh), and to
            # read or write a fraction (locale.sh).
            if (path == "runtime/base/environment.h" && target == "runtime" && (folder ~ /^(backends|tools|dist)$/)) next
            if (path == "runtime/base/c_locale.h" && folder ~ /^(backends|train|dist)$/) next
            # The only writer of complete files, the only readers of input files and JSON and the
            # only loader of plugins need nothing of Ferry, the reader of structs only fy_error_set:
            # they are compiled into libferry_train and the command too.
            if (path ~ /^runtime\/base\/(replace|input|json)\.h$/ && folder ~ /^(train|tools)$/) next
            # Header only: threads, conditions, the clock.
            if (path == "runtime/base/posix.h" && folder ~ /^(backends|train|dist)$/) next
            if (path == "runtime/base/abi.h" && folder ~ /^(train|dist)$/) next
            if (path == "runtime/base/load.h" && folder == "dist") next
            # Plain data in shared memory, without anything of Ferry.
            if (path == "runtime/base/live_page.h" && file == "tools/cli/cmd_watch.c") next
            if (path ~ /^runtime\/base\/(input|json)\.h$/ && file ~ /^backends\/sim\//) next
            # The names of events, without anything of Ferry.
            if (path == "runtime/base/event_list.h" && file == "tools/program/program.h") next
            # A snapshot is plain data that the command reads and draws with the same code:
            # CMakeLists.txt.
            if (path == "alloc/report/snapshot.h" && file == "tools/cli/snapshot_file.h") next
            # Predictions have formulas and clock of the simulator: CMakeLists.txt.
            if (path ~ /^backends\/sim\/(clock|profile)\.h$/ && file == "tools/program/figures.h") next
            if (path == "backends/sim/network.h" && file == "tools/network/overlap.h") next
            # A comparison runs the same step that `ferry bench` times: cmake/bench.cmake.
            if (file ~ /^bench\/peers_/ && path ~ /^tools\/(bench\/roofline|train\/(image|small)_train)\.h$/) next
            if (folder in rank) {
                if (!(target in rank)) bad(folder "/ may include include/ and folders left of it, not " target "/")
                else if (rank[target] > rank[folder]) bad("the arrow points the other way: " target "/ may include " folder "/")
            } else if (target != folder) bad(folder "/ may include <ferry/...> and itself, not " target "/")
        }' | report
}

plant() { echo '#include "ops/dispatch.h"' >>alloc/planted.h; }
