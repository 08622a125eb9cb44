#!/usr/bin/env bash
# Every reader of input files, one row each, gets every kind of file that it cannot read. Each run
# ends with the row's exit status and a text that names the file, and uses little memory. Readers of
# text and of event files also read pipes. Usage: test_hostile_files.sh BUILD_DIR.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

cd "$work" || exit 1
chmod 755 .
cp "$ferry" ferry
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
seconds=10         # of processor time that one run has; each needs a small part of it
most_kib=$((3 << 19)) # address space of one run; sanitizers reserve terabytes
grep -qaE '__(asan|tsan|msan)_init' ferry && most_kib=unlimited

echo '{"a": 1}' >good.json
{ printf '\0\0\10\3\0\0\352\140\0\0\0\1\0\0\0\1' && head -c 60000 /dev/zero; } >good-images
mkdir good-data && awk 'BEGIN { for (i = 0; i < 1503; i++) print i, i % 7, i % 5, i % 11, i % 13, i % 17 }' >good-data/airfoil_self_noise.dat
{ printf '\0\0\10\1\0\0\352\140' && head -c 60000 /dev/zero; } >good-labels

user=() # runs the command as a user who cannot read every file

# bounded ARGUMENT...: one run.
status=0
bounded() { (ulimit -v "$most_kib" && ulimit -t "$seconds" && "${user[@]}" timeout -k 2 600 ./ferry "$@" >out 2>err); }
# in_folder NAME FILE: makes a folder `data` that has the file under this name.
in_folder() {
    rm -rf data && mkdir data && ln -s "$work/$2" "data/$1"
    shown=data/$1
}
# run READER FILE: sets $status to the exit status and $shown to the name that an error must
# contain.
run() {
    shown=$2
    case $1 in
    events) bounded ledger "$2" ;;
    advised) bounded advise "$2" ;;
   executed) bounded predict "$2" ;;
    drawn) bounded timeline "$2" --out /dev/null --clock both ;;
    reported) bounded report "$2" --out /dev/null ;;
    recording | trace) bounded replay "$2" --policy ferry ;;
    snapshot) bounded memory "$2" ;;
    predicted) bounded compare "$2" good.json --key a ;;
    measured) bounded compare good.json "$2" --key a ;;
    profile) bounded info --device "sim:0?profile=./$2" ;;
    images)
        in_folder train-images-idx3-ubyte "$2" && cp good-labels data/train-labels-idx1-ubyte
        bounded train mlp --device host --data data
        ;;
    labels)
        in_folder train-labels-idx1-ubyte "$2" && cp good-images data/train-images-idx3-ubyte
        bounded train mlp --device host --data data
        ;;
    table) bounded experiment minibatch --device host --runs gd --data "$2" ;;
    airfoil)
        in_folder airfoil_self_noise.dat "$2"
        bounded train linear --device host --data data
        ;;
    checkpoint)
        in_folder step-00000001.safetensors "$2"
        bounded train linear --device host --data good-data --max-steps 1 --checkpoint data --resume
        ;;
    esac
    status=$?
}
# begin READER: prints the beginning of such a file; any length may follow.
begin() {
    case $1 in
    events | advised | executed | drawn | reported | recording) printf '{"ev":"ferry","version":1}\n{"ev":"op","scope":"' ;;
    trace) printf 'ferry-trace 1\n@' ;;
    snapshot) printf '{"snapshot":1,"device":"' ;;
    predicted | measured) printf '{"a": "' ;;
    profile) printf '{"ferry_profile": 1, "name": "' ;;
    images) printf '\0\0\10\3\0\0\352\140\0\0\0\34\0\0\0\34' ;;
    labels) printf '\0\0\10\1\0\0\352\140' ;;
    table | airfoil) printf '1 2 3 4 5 6\n1' ;;
    checkpoint) printf '\0\341\365\5\0\0\0\0{"' ;;
    esac
}
# check READER KIND FILE: runs the reader and checks how it ends.
check() {
    local expected=1
    [ "$1" = profile ] && expected=2 # a device that cannot be opened as requested is a usage error
    run "$1" "$3"
    if [ $status -ne $expected ]; then
        fail "$1, $2: exit status $status, not $expected: $(head -c 300 err)"
    elif ! grep -qF -- "$shown" err; then
        fail "$1, $2: no '$shown' in: $(head -c 300 err)"
    fi
}

readers='events advised executed drawn reported recording trace snapshot predicted measured profile images labels table airfoil checkpoint'
mkdir folder
mkfifo lonely endless
: >empty
truncate -s 1T hole
head -c 1000000 /dev/urandom >noise
ln -s /dev/zero zero
ln -s /dev/null null
head -c 16M /dev/zero | gzip -1 >zeros.gz
for reader in $readers; do
    for kind in folder lonely empty hole noise zero null; do
        [ $kind = folder ] && [ "$reader" = table ] && continue # some readers accept a folder
        check "$reader" "$kind" "$kind"
    done
    begin "$reader" >begun-hole && truncate -s 1T begun-hole
    check "$reader" "a beginning, then a terabyte of nothing" begun-hole
    begin "$reader" >begun-hole && truncate -s 3G begun-hole
    check "$reader" "a beginning, then 3 GB of nothing" begun-hole
    { begin "$reader" && tr '\0' 7 </dev/zero; } >endless 2>/dev/null &
    check "$reader" "a pipe with a line that never ends" endless
    kill $! 2>/dev/null
    wait $! 2>/dev/null
done
for reader in images labels events drawn recording trace; do
    { begin "$reader" && head -c 16M /dev/zero; } | gzip -1 >bomb
    for ((i = 0; i < 400; i++)); do cat zeros.gz; done >>bomb # 6.4 GB
    check "$reader" "a gzip bomb" bomb
    head -c 64K /dev/zero | gzip -1 | head -c 20 >bomb && truncate -s 3G bomb
    check "$reader" "compressed zeros, then 3 GB of nothing" bomb
done

# A file without read permission. Root can read every file, so root becomes another user.
can_lock=yes
if [ "$(id -u)" -eq 0 ]; then
    user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    bounded --help || { can_lock= && echo "left out: a file that may not be read; user 65534 cannot run the command: $(head -c 200 err)"; }
fi
echo >locked && chmod 000 locked
if [ $can_lock ]; then
    for reader in $readers; do
        check "$reader" "a file that may not be read" locked
        grep -q 'Permission denied' err || fail "$reader, a file that may not be read: no reason in: $(head -c 300 err)"
    done
fi
user=()

# A valid input: a pipe whose writer may open it later than the reader. On a machine with a high
# load the writer may be later than the reader waits; it is there at the next try.
expect 0 experiment roundtrip --device sim:0 --size 16 --iters 2 --record good.events --snapshot good-memory.json
printf 'ferry-trace 1\n+100\n-1\n' >good.trace
most_kib=unlimited
rm -f lonely && mkfifo pipe
for row in events:good.events advised:good.events executed:good.events drawn:good.events reported:good.events recording:good.events trace:good.trace snapshot:good-memory.json predicted:good.json measured:good.json table:good-data/airfoil_self_noise.dat; do
    for wait in 0 0.1; do
        { sleep $wait && cat "${row#*:}"; } >pipe &
        run "${row%:*}" pipe
        while [ $status -ne 0 ] && grep -q 'no program has opened it for writing' err; do run "${row%:*}" pipe; done
        [ $status -eq 0 ] || fail "${row%:*}, a pipe after $wait s: exit status $status: $(head -c 300 err)"
        wait $!
    done
done

# Lines of the calls of a group in a whole recording, with values that no writer makes: read, or
# refused with the file's name.
lines=()
for value in '"1"' '""' -1 -0.5 0.5 1e3 1e999 true null '[]' '[[1,2],null]' 2147483648 9223372036854775807 18446744073709551615 99999999999999999999999999; do
    lines+=('{"ev":"collective","scope":"a/b","op":"group_all_reduce","site":1,"bytes":'"$value"'}'
        '{"ev":"collective","scope":"a/b","op":'"$value"',"site":'"$value"',"bytes":5}'
        '{"ev":"exchange","scope":'"$value"',"bytes":'"$value"',"messages":1,"blocked_ns":1}'
        '{"ev":"exchange","scope":"a","bytes":1,"messages":'"$value"',"blocked_ns":'"$value"'}'
        '{"ev":"collective_ran","scope":"a","op":"group_send","rank":'"$value"',"number":1,"lasted_ns":1,"status":"OK"}'
        '{"ev":"collective_ran","scope":"a","op":'"$value"',"rank":1,"t_ns":'"$value"',"model_ns":'"$value"',"thread":'"$value"',"number":'"$value"',"lasted_ns":'"$value"',"status":'"$value"'}')
done
lines+=('{"ev":"collective"}' '{"ev":"exchange"}' '{"ev":"collective_ran"}'
    '{"ev":"collective_ran","rank":0,"rank":1,"lasted_ns":5,"t_ns":1}'
    '{"ev":"collective","op":"'"$(head -c 100000 /dev/zero | tr '\0' x)"'","bytes":1}'
    '{"ev":"collective","op":"'"$(printf '\377\1')"'\u0000\ud800","bytes":1}')
whole=$(($(wc -l <good.events) - 2))
refused=0
for line in "${lines[@]}"; do
    { # three: sums of large values
        sed '$d' good.events
        printf '%s\n' "$line" "$line" "$line"
        printf '{"ev":"end","events":%d,"lost":0}\n' $((whole + 3))
    } >group.events
    for reader in events advised executed drawn reported recording; do
        run $reader group.events
        case $status in
        0) ;;
        1)
            refused=$((refused + 1))
            grep -qF group.events err || fail "$reader, ${line:0:200}: no file in: $(head -c 300 err)"
            ;;
        *) fail "$reader, ${line:0:200}: exit status $status: $(head -c 300 err)" ;;
        esac
        if [ $status -eq 0 ] && grep -qE -- '(^|[ ,:])-[0-9]|18446744073709551615' out; then
            fail "$reader, ${line:0:200}: a sum wrapped: $(grep -E -- '(^|[ ,:])-[0-9]|18446744073709551615' out | head -3)"
        fi
    done
done
[ $refused -gt 20 ] || fail "only $refused of these lines were refused"

# ---- a late recording: numbers that grow as long as a process lives, and nothing depends on ----
plain='s/(good|late)\.events/FILE/g; s/[0-9]+ (bytes; open it|arrows)/N \1/' # the page has some numbers; lists of points are not shifted
for key in seq block storage segment thread; do
    awk -v key="\"$key\":" '{
        done = ""
        while (at = index($0, key)) {
            done = done substr($0, 1, at + length(key) - 1)
            $0 = substr($0, at + length(key))
            match($0, /^[0-9]+/)
            if (RLENGTH > 0) {
                done = done sprintf("%.0f", substr($0, 1, RLENGTH) + 1099511627776)
                $0 = substr($0, RLENGTH + 1)
            }
        }
        print done $0
    }' good.events >late.events
    cmp -s good.events late.events && fail "good.events has no $key"
    for reader in advised executed drawn reported recording; do
        run $reader good.events && sed -E "$plain" out >want
        if ! { run $reader late.events && sed -E "$plain" out | diff want - >differs; }; then
            fail "$reader, $key + 2^40: exit status $status: $(head -c 300 err differs)"
        fi
    done
done

# ---- names and numbers that no device has so many of: each run stays within its processor time ----
at='"thread":1,"t_ns":%d,"model_ns":%d,"scope":"a"' op='"ev":"op","op":"add","device":"sim:0","stream":1,"number":%d,"seq":%d,"model_start_ns":%d,"model_end_ns":%d'
declare -A many=(
    [devices]="{${op/sim:0/sim:%d},$at}"
    [streams]="{${op/\"stream\":1/\"stream\":%d},$at}"
    [threads]="{$op,${at/\"thread\":1/\"thread\":%d}}"
    [scopes]="{$op,${at/\"a\"/\"a%d\"}}"
    [pools]='{"ev":"block_alloc","pool":"p%d","block":%d,"bytes":512,"requested_bytes":500,"category":"tensor",'"$at}"
    [lives]='{"ev":"pool","pool":"p","live_bytes":0,"reserved_bytes":0,'"$at}"'\n{"ev":"block_alloc","pool":"p","block":%d,"bytes":512,"requested_bytes":500,"category":"tensor",'"$at}"
    [operands]='{"ev":"operands","of":0,"src":[%d,0],"dst":[%d,1]}'
)
for kind in "${!many[@]}"; do
    awk -v kind="$kind" -v lines="${many[$kind]//%d/@}" 'BEGIN {
        print "{\"ev\":\"ferry\",\"version\":1}"
        print "{\"ev\":\"device\",\"device\":\"sim:0\",\"profile\":\"h200\",\"backend\":\"sim\"}"
        print "{\"ev\":\"op\",\"op\":\"add\",\"device\":\"sim:0\",\"stream\":1,\"number\":0,\"seq\":1,\"thread\":1,\"t_ns\":1,\"model_ns\":1,\"model_start_ns\":1,\"model_end_ns\":2}"
        print "{\"ev\":\"block_alloc\",\"pool\":\"sim:0\",\"block\":1,\"bytes\":512,\"requested_bytes\":500,\"category\":\"tensor\"}"
        for (i = 1; i <= 30000; i++) {
            line = lines
            gsub(/@/, i, line)
            print line
        }
        print "{\"ev\":\"end\",\"events\":" (kind == "lives" ? 60003 : 30003) ",\"lost\":0}"
    }' >many.events
    for reader in events advised executed drawn reported recording; do
        run $reader many.events
        case $kind:$reader:$status in
        devices:advised:1 | devices:executed:1 | devices:reported:1)
            grep -q 'beyond the 4096' err || fail "$reader, 30000 $kind: $(head -c 300 err)"
            ;;
        *:0) ;;
        *) fail "$reader, 30000 $kind: exit status $status: $(head -c 300 err)" ;;
        esac
    done
done

# A block's number that is no index, in three lines that refer to one another.
{
    echo '{"ev":"ferry","version":1}'
    echo '{"ev":"storage","storage":1,"device":"p","bytes":9,"block":18446744073709551615}'
    echo '{"ev":"block_alloc","pool":"p","block":18446744073709551615,"bytes":512,"requested_bytes":500,"category":"tensor"}'
    echo '{"ev":"named","storage":1,"bytes":9,"name":"x"}'
} >large.events
run reported large.events
[ $status -eq 1 ] || fail "reported, a block with number 2^64 - 1: exit status $status: $(head -c 300 err)"
