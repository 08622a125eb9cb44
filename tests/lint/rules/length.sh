# shellcheck shell=bash
# Sources past 600 lines are split by noun. tests/lint/long-files.txt lists the ones that may not
# be, each with its reason.

check() {
    local files
    mapfile -t files < <(find_files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.hpp' '*.sh' '*.cmake' '*.def' -- include opset runtime alloc transfer ops backends train tools examples bench tests scripts cmake .ci)
    {
        wc -l "${files[@]}" | awk '$2 != "total" && $1 > 600 { print $2, $1 }' | while read -r file count; do
            if ! grep -q "^$file [^ ]" tests/lint/long-files.txt; then echo "$file:$count: longer than 600 lines: split it by noun"; fi
        done
        while read -r file reason; do
            case "$file" in '' | '#'*) continue ;; esac
            if [ -z "$reason" ]; then echo "tests/lint/long-files.txt:1: $file is listed without a reason"; fi
            if [ ! -f "$file" ] || [ "$(wc -l <"$file")" -le 600 ]; then echo "tests/lint/long-files.txt:1: $file need not be listed"; fi
        done <tests/lint/long-files.txt
    } | report
}

plant() { yes '/* line */' | head -n 601 >runtime/planted.c; }
