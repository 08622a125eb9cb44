#!/usr/bin/env bash
# `ferry ledger` and --record: the recording of a run agrees with the run's ledger. An independent
# reader (python3, if installed) gets the same figures. Broken files are refused. Usage:
# test_ledger.sh BUILD_DIR.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

# ---- usage ----
prints "usage: ferry ledger FILE" ledger --help
refuses 2 "which file?" ledger
expect 2 ledger --json
refuses 2 "did you mean --format?" ledger "$work/x" --fromat json
refuses 1 "nowhere" ledger "$work/nowhere"
silent out

# ---- the recording agrees with the output of the run ----
for device in host sim:0; do
    file=$work/events.jsonl
    expect 0 experiment roundtrip --device $device --iters 5 --traffic --record "$file"
    traffic=$(grep '^traffic:' "$work/out")
    expect 0 ledger "$file" --format csv
    line=$(grep '^everything,' "$work/out" | tr -d '\r')
    IFS=, read -r _ requests uploads up_bytes _ _ _ downloads down_bytes _ _ _ _ _ _ syncs _ <<<"$line"
    found="traffic: requests=$requests uploads=$uploads upload_bytes=$up_bytes downloads=$downloads download_bytes=$down_bytes syncs=$syncs"
    [ "$found" = "$traffic" ] || fail "$device: recorded '$found', the run said '$traffic'"
    prints "roundtrip/resident/loop" ledger "$file"
    says out "call site"
    matches out 'events [0-9]+, lost 0;'
    # ops and syncs have call sites in functions of the command, although these are not exported
    grep -q '"ev":"site".*"site":"[a-z0-9_.]*+0x' "$file" || fail "$device: no call site has a function"
    grep '"ev":"site"' "$file" | grep -E '"(ferry|libferry[a-z_.]*so[.0-9]*)\+0x' && fail "$device: call sites of the command without a function"
    grep -q '"ev":"op".*"site":[0-9]' "$file" || fail "$device: ops have no call sites"
    expect 0 ledger "$file" --scope roundtrip/copies
    grep -q "roundtrip/resident" "$work/out" && fail "--scope shows other scopes"
    expect 0 ledger "$file" --events
    [ "$(wc -l <"$work/out")" -eq $(($(wc -l <"$file") - 2)) ] || fail "--events prints $(wc -l <"$work/out") lines of $(wc -l <"$file")"
    says out "op matmul"
    expect 0 ledger "$file" --json
    cp "$work/out" "$work/sums.json"
    if command -v python3 >/dev/null; then
        python3 - "$file" "$work/sums.json" <<'PY' || fail "$device: the independent reader finds other sums"
import collections, json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
sums = json.load(open(sys.argv[2]))
assert events[0]["ev"] == "ferry" and events[-1]["ev"] == "end" and events[-1]["events"] == len(events) - 2
for row in sums["scopes"]:
    path = "" if row["scope"] == "everything" else row["scope"]
    inside = [e for e in events[1:-1] if not path or e["scope"] == path or e["scope"].startswith(path + "/")]
    assert row["requests"] == sum(e["ev"] == "op" for e in inside), row
    assert row["syncs"] == sum(e["ev"] == "sync" for e in inside), row
    for way in ("upload", "download"):
        moved = [e["bytes"] for e in inside if e["ev"] == "transfer" and e["direction"] == way]
        assert [row[way + "s"], row[way + "_bytes"]] == [len(moved), sum(moved)], row
        wire = [e["bytes"] for e in inside if e["ev"] == "copy" and e["direction"] == way]
        assert [row[way + "_copies"], row[way + "_wire_bytes"]] == [len(wire), sum(wire)], row
live, peak = collections.Counter(), collections.Counter()
for e in events:
    if e["ev"] in ("block_alloc", "block_free"):
        live[e["pool"]] += e["bytes"] if e["ev"] == "block_alloc" else -e["bytes"]
        peak[e["pool"]] = max(peak[e["pool"]], live[e["pool"]])
for row in sums["pools"]:
    assert row["peak_live_bytes"] == peak[row["pool"]], row
# Dependencies: every version that is read was written by an earlier line, or by the program.
written = {}
for e in events:
    for storage, version in [d for d in ([e["dst"]] if e["ev"] == "transfer" else e.get("dst", [])) if d]:
        assert version >= written.get(storage, 0), e
        written[storage] = version
    for storage, version in [s for s in ([e["src"]] if e["ev"] == "transfer" else e.get("src", [])) if s]:
        assert version <= written.get(storage, version), e
PY
    else
        echo "no python3: the independent reader is skipped"
    fi
done

# ---- the environment ----
FERRY_RECORD=$work/env.%p.jsonl "$ferry" experiment roundtrip --device sim:0 --iters 1 >/dev/null || fail "the run with FERRY_RECORD failed"
prints "roundtrip/copies" ledger "$(echo "$work"/env.[0-9]*.jsonl)"
FERRY_RECORD=/nowhere/at/all refuses 1 "nothing is recorded" experiment roundtrip --device sim:0 --iters 1
FERRY_RECORD=$work/not_this.jsonl expect 0 info --record "$work/this.jsonl"
[ -e "$work/not_this.jsonl" ] && fail "--record does not replace FERRY_RECORD"
expect 0 ledger "$work/this.jsonl"
FERRY_RECORD=/nowhere/at/all refuses 1 "nothing is recorded" info
FERRY_RECORD=$work/this.jsonl expect 1 ledger "$work/missing.jsonl" # only reads: the file that the variable names is not overwritten
prints "everything" ledger "$work/this.jsonl"
if [ -w /dev/full ]; then
    refuses 1 "is incomplete" info --record /dev/full
fi

# ---- compressed ----
expect 0 experiment roundtrip --device sim:0 --iters 5 --record "$work/packed.jsonl.gz"
prints "roundtrip/copies" ledger "$work/packed.jsonl.gz"
gzip -t "$work/packed.jsonl.gz" || fail "gzip does not accept the compressed file"
expect 0 timeline "$work/packed.jsonl.gz" --out "$work/packed.trace"
expect 0 replay "$work/packed.jsonl.gz" --policy ferry
events=$(gzip -cd "$work/packed.jsonl.gz" | wc -l)
[ "$(wc -c <"$work/packed.jsonl.gz")" -le $((60 * events)) ] || fail "more than 60 bytes an event: $(wc -c <"$work/packed.jsonl.gz") of $events"
cp "$work/packed.jsonl.gz" "$work/padded.gz" && head -c 200000 /dev/zero >>"$work/padded.gz"
prints "roundtrip/copies" ledger "$work/padded.gz"
printf more >>"$work/padded.gz"
refuses 1 "is damaged" ledger "$work/padded.gz"
head -c 3000 "$work/packed.jsonl.gz" >"$work/cut.gz"
refuses 1 "has no end" ledger "$work/cut.gz"
head -c 8 "$work/packed.jsonl.gz" >"$work/cut.gz"
refuses 1 "is cut off" ledger "$work/cut.gz"
refuses 1 "zstd is not available" info --record "$work/packed.zst"
if [ -w /dev/full ]; then
    ln -sf /dev/full "$work/full.gz"
    refuses 1 "is incomplete" info --record "$work/full.gz"
fi
refuses 1 "/nowhere/at/all" experiment roundtrip --device sim:0 --record /nowhere/at/all

# ---- invalid options ----
refuses 1 "nosuch" ledger "$file" --scope nosuch
silent out
expect 2 ledger "$file" --events --json
silent out
expect 2 ledger "$file" --events --format csv
silent out

# ---- broken files ----
head -n -1 "$file" >"$work/killed.jsonl"
refuses 1 "has no end" ledger "$work/killed.jsonl"
says out "roundtrip/copies" # up to the broken line
sed 5d "$file" >"$work/less"
refuses 1 "does not have as many events as its last line says" ledger "$work/less"
for bytes in 1 30 5000 5001 5002 5003 5010 5017 5023 5031 5040 5055 5071 5090; do
    head -c $bytes "$file" >"$work/cut.jsonl"
    expect 1 ledger "$work/cut.jsonl"
    if [ $bytes -le 30 ]; then says err "line 1 is cut off"; else says err "has no end"; fi
done

# A full disk cuts a file within a line: each reader shows the lines before it. The same bytes in the
# middle are damage.
"$ferry" experiment roundtrip --device sim:0 --size 16 --iters 3 --record "$work/cut" >/dev/null
for command in ledger advise predict replay 'report --out FILE' 'timeline --out FILE' 'memory --format pytorch --out FILE'; do
    read -r -a words <<<"$command"
    words=("${words[@]/FILE/$work/shown}")
    for bytes in 1 20; do
        head -n -1 "$work/cut" | head -c -$bytes >"$work/half"
        expect 1 "${words[0]}" "$work/half" "${words[@]:1}"
        matches err 'has no end|is not whole'
        { cat "$work/half" && printf '\n{"ev":"sync"}\n'; } >"$work/damaged"
        [ $bytes -eq 1 ] && continue # the line is whole
        expect 1 "${words[0]}" "$work/damaged" "${words[@]:1}"
        matches err 'no whole event file: line [0-9]+ is cut off'
    done
done
printf '{"ev":"ferry","version":1}\n{"ev":"scope_begin","scope":"a\\ud83d\\ude00b"}\n' >"$work/pair" # one character changed
expect 1 ledger "$work/pair" --events
says out "$(printf 'a\360\237\230\200b')"
# Many scopes: the figures of each path and of its parents. Visiting all paths for each scope would
# take minutes.
awk 'BEGIN { print "{\"ev\":\"ferry\",\"version\":1}"
    for (i = 0; i < 60000; i++) print "{\"ev\":\"op\",\"t\":" i ",\"thread\":1,\"scope\":\"all/n" i "\",\"op\":\"add\"}" }' >"$work/many"
(ulimit -t 60 && exec "$ferry" ledger "$work/many" --format csv) >"$work/out" 2>"$work/err" # the file has no end, so the status is 1
[ "$(wc -l <"$work/out")" = 60003 ] || fail "not a line for each of 60,000 scopes: $(wc -l <"$work/out"), $(head -c 300 "$work/err")"
matches out '^everything,60000,' '^all,60000,' '^all/n59999,1,'
timeout 600 "$ferry" ledger /dev/zero >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || fail "/dev/zero is read for ever"
says err "cannot read /dev/zero: it is a device"
: >"$work/empty"
refuses 1 "is empty" ledger "$work/empty"
echo '{"hello": 1}' >"$work/other.json"
refuses 1 "does not begin an event file" ledger "$work/other.json"
silent out
head -c 3000 /dev/urandom >"$work/noise"
refuses 1 "line 1" ledger "$work/noise"
sed '1s/"version":1/"version":2/' "$file" >"$work/later"
refuses 1 "version 2" ledger "$work/later"
(cat "$file" && sed -n 2p "$file") >"$work/more"
refuses 1 "follows the end" ledger "$work/more"

# ---- values that cannot be added ----
# hostile NAME LINE...: a whole file of these lines
hostile() {
    local name=$1
    shift
    { printf '{"ev":"ferry","version":1}\n' && printf '%s\n' "$@" && printf '{"ev":"end","events":%d,"lost":0}\n' $#; } >"$work/$name"
}
# refused TEXT LINE...
refused() {
    local text=$1
    shift
    hostile hostile "$@"
    for command in ledger "ledger @/one_rank" "report --out @/hostile.html"; do
        split "$command"
        expect 1 "${words[0]}" "$work/hostile" "${words[@]:1}"
        silent out
        says err "$work/hostile" "$text"
    done
    [ -e "$work/hostile.html" ] && fail "ferry report wrote a page of: $text"
}
hostile one_rank '{"ev":"collective_ran","op":"group_barrier","rank":7,"scope":"","number":1,"lasted_ns":5,"status":"OK"}'
expect 0 ledger "$work/one_rank" "$work/one_rank" --json
grep -q '"rank": *7' "$work/out" || fail "a rank of 7 is not in: $(cat "$work/out")"
good='{"ev":"collective","op":"group_all_reduce","bytes":5,"scope":""}'
for value in '"1"' -1 -0.5 1.5 1e3 true null '[1,2]' 2147483648 4294967296 18446744073709551615 18446744073709551617 1e999; do
    hostile rank "$good" '{"ev":"collective_ran","op":"group_barrier","rank":'"$value"',"scope":"","number":1}'
    refuses 1 "$work/rank cannot be summed up: \"rank\" of line 3 is no whole number from 0 to 2147483647" ledger "$work/rank"
    silent out
    refuses 1 "\"rank\" of line 3" ledger "$work/one_rank" "$work/rank" --scope nosuch
done
for value in '"5"' -5 0.5 1e3 true null '[]' 9223372036854775808 18446744073709551616; do
    for line in '{"ev":"collective","op":"group_broadcast","scope":"a","bytes":@}' \
        '{"ev":"exchange","scope":"a","bytes":@,"messages":1,"blocked_ns":1}' \
        '{"ev":"exchange","scope":"a","bytes":1,"blocked_ns":1,"messages":@}' \
        '{"ev":"exchange","scope":"a","bytes":1,"messages":1,"blocked_ns":@}' \
        '{"ev":"transfer","scope":"a","direction":"upload","path":"pageable","bytes":@}' \
        '{"ev":"copy","scope":"a","direction":"peer","bytes":@}' \
        '{"ev":"sync","scope":"a","blocked_ns":@}' \
        '{"ev":"block_alloc","pool":"host","block":1,"bytes":@}' \
        '{"ev":"pool","pool":"host","live_bytes":@}'; do
        refused 'of line 3 is no whole number from 0 to 9223372036854775807' "$good" "${line/@/$value}"
    done
done
big='"bytes":9223372036854775807'
refused '"bytes" of line 3 its figures exceed 2^63 - 1' '{"ev":"collective","scope":"a",'"$big"'}' "$good"
refused '"bytes" of line 3 its figures exceed 2^63 - 1' '{"ev":"exchange","scope":"a",'"$big"'}' '{"ev":"exchange","scope":"b",'"$big"'}'
refused '"messages" of line 2 its figures exceed 2^63 - 1' '{"ev":"exchange","scope":"a",'"$big"',"messages":1}'
refused '"bytes" of line 3 its figures exceed 2^63 - 1' '{"ev":"block_alloc","pool":"host",'"$big"'}' '{"ev":"block_alloc","pool":"host","bytes":1}'
hostile big '{"ev":"collective","scope":"a","op":"x",'"$big"'}'
hostile freed '{"ev":"block_free","pool":"host","block":9,"bytes":7}' '{"ev":"segment_free","pool":"host","segment":9,"bytes":7}'
expect 0 ledger "$work/big" --format csv
matches out '^everything,.*,9223372036854775807,'
refuses 1 "the figures of these files cannot be added" ledger "$work/big" "$work/big" # each can be summed up
silent out
expect 0 ledger "$work/freed" --json
matches out '"live_bytes": 0'
printf '{"ev":"ferry","version":1}\n{"ev":"end","events":0,"lost":-1}\n' >"$work/hostile"
refuses 1 '"lost" of line 2 is no whole number' ledger "$work/hostile"
printf '{"ev":"ferry","version":1}\n{"ev":"end","events":0,"lost":9223372036854775807}\n' >"$work/hostile"
expect 0 ledger "$work/hostile"
refuses 1 "the lost events exceed" ledger "$work/hostile" "$work/hostile"

# ---- files of several ranks: each, and their sums ----
expect 0 experiment roundtrip --device sim:0 --iters 5 --record "$work/one"
expect 0 train linear --device sim:0 --epochs 2 --record "$work/two"
prints "all ranks together:" ledger "$work/one" "$work/two"
says out "sim:0, rank 1"
refuses 2 "of one file" ledger "$work/one" "$work/two" --events
expect 1 ledger "$work/one" "$work/nowhere"
silent out
refuses 1 "nothing in these files" ledger "$work/one" "$work/two" --scope nothing
for file in one two; do
    expect 0 ledger "$work/$file" --json
    cp "$work/out" "$work/$file.json"
done
expect 0 ledger "$work/one" "$work/two" --json
python3 - "$work" <<'PY' || fail "the sums of two files are not those of each"
import json, sys
one, two, both = (json.load(open(f"{sys.argv[1]}/{name}")) for name in ("one.json", "two.json", "out"))
assert both["file"] is None and both["events"] == one["events"] + two["events"]
def everything(document): return next(row for row in document["scopes"] if row["scope"] == "everything")
for key, value in everything(both).items():
    if key != "scope": assert value == everything(one)[key] + everything(two)[key], key
assert [row["rank"] for row in both["ranks"]] == [0, 1]
assert [row["upload_bytes"] for row in both["ranks"]] == [everything(d)["upload_bytes"] for d in (one, two)]
assert sum(p["blocks"] for p in both["pools"]) == sum(p["blocks"] for d in (one, two) for p in d["pools"])
PY
head -n 50 "$work/two" >"$work/cut"
expect 1 ledger "$work/one" "$work/cut"
says out "all ranks together:"
says err "$work/cut has no end"
