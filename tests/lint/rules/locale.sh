# shellcheck shell=bash disable=SC2154  # library_folders is in lib.sh
# Texts and numbers are alike in every locale: a host program may call setlocale. Libraries read and
# write fractions, and compare characters, by runtime/base/c_locale.h; nothing in them or in the
# command changes the process's locale. Digits are alike everywhere: isdigit, strtol and its kin,
# whole numbers in formats.

check() {
    local files programs status=0
    mapfile -t files < <(find_files '*.c' '*.h' '*.cu' '*.cuh' -- "${library_folders[@]}" python/core | grep -vx 'runtime/base/c_locale\.h')
    mapfile -t programs < <(find_files '*.c' '*.h' -- tools)
    code_of "${files[@]}" "${programs[@]}" | awk '
        BEGIN {
            split("setlocale newlocale uselocale localeconv", list); for (i in list) everywhere[list[i]] = 1
            split("strtod strtof strtold atof vsnprintf vfprintf vdprintf vasprintf isspace isblank isalpha isalnum isupper islower ispunct " \
                  "isprint isgraph iscntrl tolower toupper strcasecmp strncasecmp strcasestr strcoll strxfrm strftime strerror strerror_r dlerror", list)
            for (i in list) library[list[i]] = 1
        }
        {
            at = index($0, ":"); file = substr($0, 1, at - 1); rest = substr($0, at + 1)
            at = index(rest, ":"); number = substr(rest, 1, at - 1); code = substr(rest, at + 1)
            while (match(code, /[A-Za-z_][A-Za-z0-9_]*[ \t]*\(/)) {
                name = substr(code, RSTART, RLENGTH); sub(/[ \t]*\($/, "", name)
                if (name in everywhere || (name in library && file !~ /^tools\//))
                    print file ":" number ": " name "() knows the locale: runtime/base/c_locale.h"
                code = substr(code, RSTART + RLENGTH)
            }
        }' | report || status=1
    # Calls with a fraction in a format.
    if [ ${#files[@]} -eq 0 ]; then return $status; fi
    awk '
        FNR == 1 { call = "" }
        call == "" && match($0, /(^|[^A-Za-z0-9_])(snprintf|fprintf|dprintf|asprintf|sscanf|fscanf)[ \t]*\(/) { line = FNR; call = " " }
        call != "" {
            call = call $0
            if ($0 !~ /\)[ \t]*;/) next
            while (match(call, /"([^"\\]|\\.)*"/)) {
                format = substr(call, RSTART, RLENGTH); call = substr(call, RSTART + RLENGTH)
                gsub(/%%/, "", format)
                if (format ~ /%[-+ #0-9.*]*[lL]?[aAeEfFgG]/) { print FILENAME ":" line ": a fraction in a format of the locale: runtime/base/c_locale.h"; break }
            }
            call = ""
        }' "${files[@]}" | report || status=1
    return $status
}

plant() {
    printf '#include <stdio.h>\nvoid f(char *text, double x);\nvoid f(char *text, double x) { snprintf(text, 9, "%%.3g",\n x); }\n' >train/planted.c
}
