# Doxygen's input filter (docs/Doxyfile): makes plain C comments documentation comments and escapes what Doxygen would read as commands.
# A comment that starts a line documents what follows; one behind code, that code; the one at the head of a file, the file.
in_comment { print escape($0); in_comment = !/\*\//; next }
FNR == 1 && /^\/\*/ { start("/** @file\n *"); next }
/^\/\* ---- / { print; next }
/^[ \t]*\/\*/ { start("/**"); next }
/\/\* / && !/^[ \t]*#/ { start("/**<"); next }
{ print }

function start(opening,    at) {
    at = index($0, "/*")
    print substr($0, 1, at - 1) opening escape(substr($0, at + 2))
    in_comment = !/\*\//
}
function escape(text) {
    gsub(/\\/, "\\\\\\\\", text)
    gsub(/[@#<]/, "\\\\&", text)
    return text
}
