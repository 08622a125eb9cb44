# shellcheck shell=bash
# Functions shared by the rules. Sourced with the current folder at the root of the tree to check.

# Folders of libferry (and its plugins), which must never print, exit or abort.
# shellcheck disable=SC2034  # rules use it
library_folders=(opset runtime alloc transfer ops backends train dist)

# find_files PATTERN... -- FOLDER...: files whose name matches one of the patterns, sorted; folders
# that do not exist are skipped, and so are builds and data sets.
find_files() {
    local tests=() folders=()
    while [ "$1" != -- ]; do
        if [ ${#tests[@]} -gt 0 ]; then tests+=(-o); fi
        tests+=(-name "$1")
        shift
    done
    shift
    local folder
    for folder in "$@"; do
        if [ -e "$folder" ]; then folders+=("$folder"); fi
    done
    if [ ${#folders[@]} -eq 0 ]; then return 0; fi
    find "${folders[@]}" \( -name build -o -name .git -o -name .cache -o -name __pycache__ -o -path ./data \) -prune -o -type f \( "${tests[@]}" \) -print |
        sed 's|^\./||' | LC_ALL=C sort
}

# code_of FILE...: lines "file:number:code" without comments and with the insides of strings and
# character constants taken out.
code_of() {
    if [ $# -eq 0 ]; then return 0; fi
    awk '
        FNR == 1 { in_comment = 0 }
        {
            line = $0; out = ""
            while (line != "") {
                if (in_comment) {
                    end = index(line, "*/")
                    if (!end) { line = ""; break }
                    line = substr(line, end + 2); in_comment = 0; out = out " "
                } else if (match(line, /^"([^"\\]|\\.)*"/)) { out = out "\"\""; line = substr(line, RLENGTH + 1) }
                else if (match(line, /^\047([^\047\\]|\\.)*\047/)) { out = out "\047\047"; line = substr(line, RLENGTH + 1) }
                else if (substr(line, 1, 2) == "/*") { in_comment = 1; line = substr(line, 3) }
                else if (substr(line, 1, 2) == "//") line = ""
                else if (match(line, /^[^"\047\/]+/)) { out = out substr(line, 1, RLENGTH); line = substr(line, RLENGTH + 1) }
                else { out = out substr(line, 1, 1); line = substr(line, 2) }
            }
            print FILENAME ":" FNR ":" out
        }' "$@"
}

# includes_of FILE...: lines "file:number:<name>" or "file:number:\"name\"", one per #include.
includes_of() {
    if [ $# -eq 0 ]; then return 0; fi
    awk 'match($0, /^[ \t]*#[ \t]*include[ \t]*[<"][^>"]+[>"]/) {
             name = substr($0, RSTART, RLENGTH); sub(/^[^<"]*/, "", name); print FILENAME ":" FNR ":" name }' "$@"
}

# report: copies standard input to standard output; fails if there was any.
report() { awk '{ print; found = 1 } END { exit found }'; }

# functions_declared HEADER...: names of the functions that they declare with FY_API or
# FY_API_STATUS, one a line.
functions_declared() {
    code_of "$@" | sed 's/^[^:]*:[0-9]*://' | tr '\n' ' ' | sed 's/FY_API/\nFY_API/g' |
        awk '/^FY_API(_STATUS)?[ \t]/ && match($0, /fy_[a-z0-9_]+[ \t]*\(/) {
                 name = substr($0, RSTART, RLENGTH); sub(/[ \t]*\(/, "", name); print name }' | LC_ALL=C sort -u
}
