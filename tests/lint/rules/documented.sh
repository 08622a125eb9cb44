# shellcheck shell=bash
# Every public function and type is documented. That means: a comment is above it, on its lines or
# inside it; or it belongs to an unbroken block of declarations with a comment above the first; or
# it is in a section opened with /* ---- title ---- */.
# An enum on one line needs no comment.

check() {
    local files
    mapfile -t files < <(find_files '*.h' -- include)
    awk '
        function flush(    i) {
            if (first && !documented) for (i = 1; i <= count; i++) print file ":" names[i]
            first = 0; documented = 0; count = 0
        }
        FNR == 1 { flush(); section = 0; in_comment = 0; depth = 0; head = 0; file = FILENAME }
        # The file comment ends at the include guard.
        /^#ifndef/ { head = 1 }
        !head { next }
        /^\/\* ---- .* ---- \*\/$/ { flush(); section = 1; next }
        /^#endif/ { section = section }
        /^[ \t]*$/ && depth == 0 { flush(); above = 0; next }
        {
            first = 1
            if ($0 ~ /\/\*/ || in_comment) documented = 1
            line = $0
            if (in_comment) { if (line ~ /\*\//) in_comment = 0; next }
            if (line ~ /^[ \t]*\/\*/ && line !~ /\*\//) { in_comment = 1; next }
            if (line ~ /\/\*/ && line !~ /\*\//) in_comment = 1
            if (section) documented = 1
            # Declarations that must be covered, each by the first line that names it.
            if (depth == 0 && line ~ /^(FY_API|FY_API_STATUS)[ \t]/) note(line)
            else if (depth == 0 && line ~ /^typedef[ \t]/ && line !~ /^typedef enum [a-z_]+ \{.*\}.*;$/) note(line)
            else if (depth == 0 && line ~ /^(struct|enum)[^;]*\{/) note(line)
            code = line; gsub(/\/\*.*\*\//, "", code); gsub(/\/\*.*/, "", code); gsub(/"[^"]*"/, "", code)
            if (code ~ /^extern ""/ || code ~ /^extern "C"/) next
            if (code !~ /^[ \t]*#/ && code !~ /\\$/) {
                depth += gsub(/\{/, "{", code) - gsub(/\}/, "}", code)
                if (depth < 0) depth = 0
            }
        }
        function note(text) { sub(/[ \t]*\{?[ \t]*$/, "", text); names[++count] = FNR ": no comment: " substr(text, 1, 90) }
        END { flush() }' "${files[@]}" | report
}

plant() { printf '#ifndef P_H_\n#define P_H_\n\n/* Says. */\nFY_API int fy_said(void);\n\nFY_API int fy_unsaid(int a);\n\n#endif\n' >include/ferry/planted.h; }
