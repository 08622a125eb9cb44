# shellcheck shell=bash disable=SC2154  # library_folders is in lib.sh
# Library code never prints, aborts or exits, registers nothing by static constructors, and uses no
# call that cannot be bounded.
# Programs (tools, examples, bench, tests) may.

check() {
    local files
    mapfile -t files < <(find_files '*.c' '*.h' '*.cu' '*.cuh' -- "${library_folders[@]}")
    code_of "${files[@]}" | awk '
        BEGIN {
            n = split("abort exit _exit _Exit quick_exit assert printf vprintf puts putchar perror err errx warn warnx system " \
                      "sprintf vsprintf strcat gets strtok alloca rand srand signal", list)
            for (i = 1; i <= n; i++) forbidden[list[i]] = 1
        }
        {
            at = index($0, ":"); file = substr($0, 1, at - 1); rest = substr($0, at + 1)
            at = index(rest, ":"); number = substr(rest, 1, at - 1); code = substr(rest, at + 1)
            whole = code
            if (whole ~ /(^|[^A-Za-z0-9_])(stderr|stdout)([^A-Za-z0-9_]|$)/) print file ":" number ": library code does not print: stderr, stdout"
            if (whole ~ /__attribute__.*[( ,_]constructor/) print file ":" number ": no static constructors"
            while (match(code, /[A-Za-z_][A-Za-z0-9_]*[ \t]*\(/)) {
                name = substr(code, RSTART, RLENGTH); sub(/[ \t]*\($/, "", name)
                before = (RSTART > 1) ? substr(code, RSTART - 1, 1) : ""
                before2 = (RSTART > 2) ? substr(code, RSTART - 2, 2) : ""
                # A slot of that name (table->exit(...), x.abort(...)) is another function.
                if (name in forbidden && before != "." && before2 != "->") print file ":" number ": forbidden in library code: " name "()"
                code = substr(code, RSTART + RLENGTH)
            }
        }' | report
}

plant() { printf 'void f(void);\nvoid f(void) { abort(); }\n' >runtime/planted.c; }
