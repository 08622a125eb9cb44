# Peaks of the memory pools, from an event file alone (docs/internals/events.md): for each pool a
# line `NAME<tab>peak live<tab>peak reserved<tab>blocks`. Usage: awk -f peak.awk events.jsonl
function number(key) {
    if (!match($0, "\"" key "\":[0-9]+")) return 0
    return substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
function text(key) {
    if (!match($0, "\"" key "\":\"[^\"]*\"")) return ""
    return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
function look(pool) {
    if (live[pool] > peak_live[pool]) peak_live[pool] = live[pool]
    if (reserved[pool] > peak_reserved[pool]) peak_reserved[pool] = reserved[pool]
}
{ kind = text("ev") }
kind ~ /^(pool|block_alloc|block_free|segment_alloc|segment_free)$/ {
    pool = text("pool")
    if (kind == "pool") { live[pool] = number("live_bytes"); reserved[pool] = number("reserved_bytes") }
    if (kind == "block_alloc") { live[pool] += number("bytes"); blocks[pool]++ }
    if (kind == "block_free") live[pool] -= number("bytes")
    if (kind == "segment_alloc") reserved[pool] += number("bytes")
    if (kind == "segment_free") reserved[pool] -= number("bytes")
    look(pool)
}
kind == "end" { whole = 1; lost = number("lost") }
END {
    if (!whole || lost) { print "the file is not whole" > "/dev/stderr"; exit 1 }
    for (pool in live) printf "%s\t%.0f\t%.0f\t%d\n", pool, peak_live[pool], peak_reserved[pool], blocks[pool]
}
