# shellcheck shell=bash
# Lines of C, CUDA and Markdown have at most 100 columns. In Markdown these are exempt: tables,
# blocks of code, the targets of links, comments that generate a block. README.md and the pages of
# docs/ (without measured results and decisions) are short.

max_columns=100
max_words_readme=1200
max_words_docs=46000

# long_lines: of lines "file:number:text" on standard input those whose text has too many columns.
long_lines() {
    LC_ALL=C awk -v max=$max_columns '
        {
            text = $0; sub(/^[^:]*:[0-9]*:/, "", text)
            file = substr($0, 1, length($0) - length(text))
        }
        # Bytes are counted; the second and later ones of a UTF-8 character are no columns.
        { columns = text; gsub(/[\200-\277]/, "", columns) }
        length(columns) > max { print file " " length(columns) " columns, more than " max }'
}
# prose_of FILE...: lines "file:number:text" of Markdown to which the limit applies.
prose_of() {
    awk 'FNR == 1 { fenced = 0 }
         /^ *```/ { fenced = !fenced; next }
         fenced || /^ *\|/ || /^    / || /^<!-- .* -->$/ || /^!\[/ { next }
         { gsub(/\]\([^()]*\)/, "]()"); gsub(/https?:[^ )]*/, ""); print FILENAME ":" FNR ":" $0 }' "$@"
}
# code_of FILE...: the same of C and CUDA sources. Exempt are tables between
# clang-format off and on, and the backslash that ends a line of a macro.
code_of() {
    awk 'FNR == 1 { off = 0 }
         /clang-format off/ { off = 1 }
         !off { text = $0; sub(/ *\\$/, "", text); print FILENAME ":" FNR ":" text }
         /clang-format on/ { off = 0 }' "$@"
}
# few_words WHERE MAX FILE...: complains if the files have more words together; tables that a script
# writes do not count.
few_words() {
    local where=$1 max=$2 words
    shift 2
    words=$(sed '/^<!-- written by /,/^<!-- end of written -->$/d' "$@" | wc -w)
    if [ "$words" -gt "$max" ]; then echo "$where:1: $words words, more than $max"; fi
}

check() {
    local pages user sources
    mapfile -t sources < <(find_files '*.c' '*.h' '*.cu' '*.cuh' '*.cpp' '*.hpp' -- .)
    mapfile -t pages < <(find_files '*.md' -- .)
    mapfile -t user < <(find_files '*.md' -- docs | grep -vE '^docs/(results|decisions)/')
    {
        prose_of "${pages[@]}" | long_lines
        code_of "${sources[@]}" | long_lines
        few_words README.md $max_words_readme README.md
        few_words docs/README.md $max_words_docs "${user[@]}"
    } | report
}

plant() { printf 'A line of prose %s\n' "$(printf 'word %.0s' {1..30})" >>docs/ops.md; }
