# shellcheck shell=bash disable=SC2154,SC2034  # set by machine.inc.sh, used by the other parts
# Steps and their limits: runs commands, several at once, decides what their ends mean, and writes
# each result at once: a line of steps.tsv, one of results.jsonl, the log. Also: numbers and texts
# out of JSON documents, without any tool. The report of a call is a table of every step so far,
# failures first. Not here: which steps there are (phases.inc.sh).

# Seconds of a call, together at most 780.
declare -A call_seconds=([right]=200 [figures]=240 [learn]=200)
all_phases=(right figures learn)
at_once=12
is_plan=0 planned=0 # seconds that the steps of a plan may take
reserve=0           # seconds of the call that later steps keep
bad=0               # steps of this call that did not pass
queued=()
declare -A verdict_of=() # of each step, also of earlier calls

# One line, letters that no table or JSON document minds, at most 160.
plain() {
    local text=${1//[^[:alnum:] .:,_()=+\/%<>-]/ }
    while [[ $text == *'  '* ]]; do text=${text//  / }; done
    text=${text# }
    echo "${text:0:160}"
}

# The JSON documents that a step printed, with a comma between, in one line. Of a document that is
# not whole nothing is taken.
documents_of() {
    local text
    [[ -s $logs/$1.json ]] || return
    text=$(<"$logs/$1.json")
    [[ $text == '{'*'}' ]] || return
    text=${text//$'}\n{'/'}, {'}
    echo "${text//$'\n'/ }"
}

# A long log gives its first and last 20,000 bytes.
log_of() {
    printf '\n======== %s\n' "$1"
    if (($(wc -c <"$logs/$1.log") > 40000)); then
        head -c 20000 "$logs/$1.log"
        printf '\n[...]\n'
        tail -c 20000 "$logs/$1.log"
    else
        cat "$logs/$1.log"
    fi
}

# note NAME VERDICT SECONDS LIMIT TEXT: verdicts are passed, failed, timeout, notrun, skipped.
note() {
    local text line
    text=$(plain "${5:--}")
    printf -v line '%s\t%s\t%s\t%d\t%d\t%s\n' "$phase" "$1" "$2" "$3" "$4" "${text:--}"
    printf '%s' "$line" >>"$steps"
    printf '%s' "$line" >>"$results/steps.tsv"
    printf '{ "phase": "%s", "step": "%s", "verdict": "%s", "seconds": %d, "limit_s": %d, "text": "%s", "figures": [%s] }\n' \
        "$phase" "$1" "$2" "$3" "$4" "$text" "$(documents_of "$1")" >>"$results/results.jsonl"
    [[ -s $logs/$1.log ]] && log_of "$1" >>"$results/logs.txt"
    verdict_of[$1]=$2
    [[ $2 == passed || $2 == skipped ]] || bad=$((bad + 1))
}

# skip NAME TEXT: notes a step that cannot run here, with the reason.
skip() { ((is_plan)) || note "$1" skipped 0 0 "$2"; }

# Steps that passed, also in an earlier call, are not repeated.
is_known() { [[ ${verdict_of[$1]:-} == passed ]]; }
# repeat_for NAME STEP...: step NAME reads the documents of these; those that another machine kept are
# made again, unless NAME has passed.
repeat_for() {
    local name
    is_known "$1" && return
    for name in "${@:2}"; do [[ -s $logs/$name.json ]] || unset "verdict_of[$name]"; done
}

# Why a step failed: the first line of the end of its log that looks like a reason, else the last
# line.
reason_in() {
    local line last="" lines=()
    mapfile -t lines < <(tail -n 200 "$1")
    for line in "${lines[@]}"; do
        [[ -n $line ]] && last=$line
        if [[ $line == *FAILED* || $line == *rror* || $line == *': '*' is not '* || $line == ferry:* ]]; then
            echo "$line"
            return
        fi
    done
    echo "$last"
}

# enqueue NAME SECONDS COMMAND...: for the next `together`. Output goes to NAME.log.
enqueue() {
    local words
    ((is_plan)) || is_known "$1" && return
    printf -v words ' %q' "${@:3}"
    queued+=("$1"$'\t'"$2"$'\t'"$words")
}
# As enqueue, for a command that prints JSON documents: they go to NAME.json.
enqueue_json() {
    # shellcheck disable=SC2016 # the inner shell expands them
    enqueue "$1" "$2" bash -c 'json=$1; shift; exec "$@" >"$json"' _ "$logs/$1.json" "${@:3}"
}

# finish NAME STATUS SECONDS LIMIT: exit 77 is a skip.
finish() {
    local outside
    case $2 in
    0) note "$1" passed "$3" "$4" "$(text_of "$1")" ;;
    77) note "$1" skipped "$3" "$4" "$(tail -n 1 "$logs/$1.log")" ;;
    124 | 137) note "$1" timeout "$3" "$4" "not done after $4 s" ;;
    *)
        outside=$(number "$logs/$1.json" outside)
        note "$1" failed "$3" "$4" "exit $2: ${outside:+$outside numbers differ by more }$(reason_in "$logs/$1.log")"
        echo "-- $1 failed: exit $2"
        tail -n 15 "$logs/$1.log"
        ;;
    esac
}

# together WHAT SECONDS: runs the queued steps, at_once at a time, all within so many seconds and
# the rest of the call. A step that runs longer is killed.
together() {
    local next=0 end left limit name words
    local -A began=() limit_of=()
    if ((is_plan)); then
        printf '%-8s %-28s %4d s\n' "$phase" "$1" "$2"
        planned=$((planned + $2))
        return
    fi
    ((${#queued[@]})) && echo "== $phase: $1, ${#queued[@]} steps (at most $2 s), at $SECONDS s"
    end=$((SECONDS + $2))
    # 4 s of the call for a step that ignores the signal of timeout, and for its result
    ((end > call_seconds[$phase] - reserve - 4)) && end=$((call_seconds[$phase] - reserve - 4))
    while ((next < ${#queued[@]} || ${#began[@]})); do
        if ((next < ${#queued[@]} && ${#began[@]} < at_once)); then
            IFS=$'\t' read -r name limit words <<<"${queued[next++]}"
            left=$((end - SECONDS))
            rm -f "$logs/$name".{json,log,status}
            if ((left < 1)); then
                note "$name" notrun 0 "$limit" "no time left"
                continue
            fi
            ((limit > left)) && limit=$left
            began[$name]=$SECONDS limit_of[$name]=$limit
            {
                eval "timeout --kill-after=3 $limit$words"
                echo $? >"$logs/$name.status"
            } >"$logs/$name.log" 2>&1 </dev/null &
            continue
        fi
        # A child that was noticed in between ends no wait.
        wait -n 2>/dev/null || sleep 0.1
        for name in "${!began[@]}"; do
            [[ -s $logs/$name.status ]] || continue
            finish "$name" "$(<"$logs/$name.status")" $((SECONDS - began[$name])) "${limit_of[$name]}"
            unset "began[$name]"
        done
    done
    queued=()
}

# step NAME SECONDS COMMAND...: one step, now. Its status: did it pass, also in an earlier call?
step() {
    enqueue "$@"
    together "$1" "$2"
    ((is_plan)) || is_known "$1"
}
json_step() {
    enqueue_json "$@"
    together "$1" "$2"
    ((is_plan)) || is_known "$1"
}

# ---- values from JSON documents ----

# number FILE KEY: the first number of that key; empty if there is none.
number() {
    local text
    [[ -s $1 ]] && text=$(<"$1") && [[ $text =~ \"$2\":\ *(-?[0-9][0-9.eE+-]*) ]] && echo "${BASH_REMATCH[1]}"
}
# text FILE KEY: the first string.
text() {
    local text
    [[ -s $1 ]] && text=$(<"$1") && [[ $text =~ \"$2\":\ *\"([^\"]*)\" ]] && echo "${BASH_REMATCH[1]}"
}
# figure FILE WHAT KEY: a number of the row whose "what" is that.
figure() {
    local text
    [[ -s $1 ]] && text=$(<"$1") && [[ $text =~ \"what\":\ *\"$2\"[^}]*\"$3\":\ *(-?[0-9][0-9.eE+-]*) ]] && echo "${BASH_REMATCH[1]}"
}
# at_least NUMBER BOUND: both with at most four places.
at_least() {
    local a b
    printf -v a '%.4f' "$1" && printf -v b '%.4f' "$2" || return 1
    ((10#${a/./} >= 10#${b/./}))
}

# ---- the report ----

order_of_verdicts=(failed timeout notrun passed skipped)

write_table() {
    local verdict p name v seconds text total=0 names=() quiet=0 file=$logs/device-of-$phase.json
    local -A last=()
    while IFS= read -r text; do
        IFS=$'\t' read -r p name v _ <<<"$text"
        [[ -n ${last[$name]:-} ]] || names+=("$name")
        last[$name]=$text
    done <"$steps"
    printf '%s, driver %s, compute capability %s%s\n' "$(text "$file" model || echo no card)" "$(text "$file" driver)" \
        "$(text "$file" compute_capability)" "$( ((is_fake)) && echo ' (the fake driver: nothing here is of a card)')"
    for name in cublaslt cudnn nccl; do printf '%s: %s\n' $name "$(text "$file" $name)"; done
    printf 'torch: %s\ncompute-sanitizer: %s\nncu: %s\nC library: %s\n\n' "$(text "$logs/torch.json" torch)" "$(find_tool compute-sanitizer)" \
        "$(find_tool ncu)" "$( ((${#loader[@]})) && echo staged || echo "the machine's")"
    printf '%-8s %-34s %5s  %-8s %s\n' call step s verdict ""
    for verdict in "${order_of_verdicts[@]}"; do
        for name in "${names[@]}"; do
            IFS=$'\t' read -r p name v seconds _ text <<<"${last[$name]}"
            [[ $v == "$verdict" ]] || continue
            total=$((total + seconds))
            if [[ $v == passed && $name == o[pw]*-* ]]; then
                quiet=$((quiet + 1))
                continue
            fi
            printf '%-8s %-34s %5d  %-8s %s\n' "$p" "$name" "$seconds" "$v" "${text#-}"
        done
    done
    printf '%-8s %-34s        passed\n%-8s %-34s %5d\n' "" "and $quiet ops" "" "all steps, of several at once" $total
}

report() {
    write_table >"$results/summary.txt"
    printf '\n'
    cat "$results/summary.txt"
    exit $((bad > 0))
}

# ---- calls ----

run_call() {
    local before=$here/before
    results=${OUT:-gpu-check-results} phase=""
    while (($#)); do
        case $1 in
        --results | --before)
            [[ -n ${2:-} ]] || usage "$1 needs a folder"
            if [[ $1 == --results ]]; then results=$2; else before=$2; fi
            shift
            ;;
        -*) usage "run has no option '$1'" ;;
        *)
            [[ -z $phase ]] || usage "run does one call at a time; '$phase' and '$1' were given"
            phase=$1
            ;;
        esac
        shift
    done
    [[ -n $phase ]] || usage "run needs a call: ${all_phases[*]}"
    [[ -n ${call_seconds[$phase]:-} ]] || usage "there is no call '$phase'; calls are ${all_phases[*]}"
    mkdir -p "$results" || die "$results cannot be made"
    results=$(readlink -f "$results")
    make_ready "$before"
    require_device && "phase_$phase"
    echo "-- $phase took $SECONDS s of ${call_seconds[$phase]}"
    report
}

plan_calls() {
    local total=0
    (($# == 0)) || usage "plan takes no arguments"
    is_plan=1 logs=/nonexistent device=cuda:0 is_fake=0 unpacked='' loader=() work=''
    for phase in "${all_phases[@]}"; do
        planned=$unpack_seconds
        printf '%-8s %-28s %4d s\n' "$phase" unpack "$planned"
        require_device
        "phase_$phase"
        printf '%-8s %-28s %4d s\n\n' "$phase" "ends within" "${call_seconds[$phase]}"
        ((planned <= call_seconds[$phase])) || die "the steps of $phase may take $planned s, more than its ${call_seconds[$phase]}"
        total=$((total + call_seconds[$phase]))
    done
    echo "all calls end within $total s"
}
