# shellcheck shell=bash
# Names that public headers add to a program's name space start with fy_ or FY_ (include guards:
# FERRY_), and fy__ stays inside. dlpack.h has those of the DLPack specification, too.
# An options struct starts with struct_size; a struct with struct_size that callers fill or pass has
# an _INIT macro.

check() {
    local files
    mapfile -t files < <(find_files '*.h' -- include)
    {
        code_of "${files[@]}" | awk '
            {
                at = index($0, ":"); file = substr($0, 1, at - 1); rest = substr($0, at + 1)
                at = index(rest, ":"); number = substr(rest, 1, at - 1); code = substr(rest, at + 1)
                if (match(code, /^[ \t]*#[ \t]*define[ \t]+[A-Za-z_0-9]+/)) {
                    name = substr(code, RSTART, RLENGTH); sub(/.*[ \t]/, "", name)
                    if (file ~ /\/dlpack\.h$/ && name ~ /^DLPACK_/) next
                    if (name !~ /^(FY_|FERRY_)/ && name != "X") print file ":" number ": macro without FY_: " name
                    if (name == "X") x_open[file] = number
                }
                if (code ~ /^[ \t]*#[ \t]*undef[ \t]+X/) delete x_open[file]
                if (code ~ /fy__/) print file ":" number ": fy__ names are internal"
                if (match(code, /^(typedef[ \t]+)?(struct|enum|union)[ \t]+[A-Za-z_0-9]+/)) {
                    name = substr(code, RSTART, RLENGTH); sub(/.*[ \t]/, "", name)
                    if (file ~ /\/dlpack\.h$/ && name ~ /^(DL[A-Z]|int32_t$)/) next
                    if (name !~ /^fy_/) print file ":" number ": type without fy_: " name
                }
            }
            END { for (file in x_open) print file ":" x_open[file] ": #define X is not undefined again" }'
        local macros
        macros=$(grep -hoE '^#define FY_[A-Z0-9_]+_INIT' "${files[@]}" | sed 's/#define //')
        code_of "${files[@]}" | awk -v macros="$macros" '
            BEGIN { n = split(macros, list, /[ \n]+/); for (i = 1; i <= n; i++) has_macro[list[i]] = 1 }
            {
                at = index($0, ":"); file = substr($0, 1, at - 1); rest = substr($0, at + 1)
                at = index(rest, ":"); number = substr(rest, 1, at - 1); code = substr(rest, at + 1)
                if (match(code, /^typedef struct fy_[a-z0-9_]+ *\{/)) {
                    name = code; sub(/^typedef struct /, "", name); sub(/ *\{.*/, "", name); first = 1; sub(/^[^{]*\{/, "", code)
                    start = number
                }
                if (first && code ~ /[^ \t]/) {
                    sized = (code ~ /size_t struct_size/)
                    if (name ~ /_options$/ && !sized) print file ":" start ": " name "_t does not start with size_t struct_size"
                    if (sized) { struct_file[name] = file ":" start }
                    first = 0
                }
                # A caller makes one where a function takes it by plain pointer, as an out parameter
                # or as options.
                while (match(code, /(fy_[a-z0-9_]+)_t \*(out_[a-z_]+|options)[,)]/)) {
                    used = substr(code, RSTART, RLENGTH); code = substr(code, RSTART + RLENGTH)
                    sub(/_t \*.*/, "", used); made[used] = 1
                }
            }
            END {
                for (name in struct_file) if (name in made) {
                    macro = toupper(name) "_INIT"
                    if (!(macro in has_macro)) print struct_file[name] ": " name "_t has no " macro
                }
            }'
    } | report
}

plant() { printf '#define PLANTED 1\n' >>include/ferry/types.h; }
