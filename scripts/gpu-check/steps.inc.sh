# shellcheck shell=bash disable=SC2154,SC2034  # set by machine.inc.sh, used by the other parts
# Steps and their limits: runs a command, decides what its end means, keeps a line about it in
# steps.tsv. Also: numbers and texts out of JSON documents, without any tool. Not here: which steps
# there are (phases.inc.sh), the table (report.inc.sh).

# Seconds of a phase. Below 480 each, 1500 together.
declare -A phase_seconds=([right]=320 [order]=400 [figures]=450 [learn]=320)
all_phases=(right order figures learn)
is_plan=0

# One line, letters that no table or JSON document minds, at most 160.
plain() {
    local text=${1//[^[:alnum:] .:,_()=+\/%<>-]/ }
    while [[ $text == *'  '* ]]; do text=${text//  / }; done
    text=${text# }
    echo "${text:0:160}"
}

# note NAME VERDICT SECONDS LIMIT TEXT: verdicts are passed, failed, timeout, notrun, skipped.
note() {
    local text
    text=$(plain "${5:--}")
    printf '%s\t%s\t%s\t%d\t%d\t%s\n' "$phase" "$1" "$2" "$3" "$4" "${text:--}" >>"$steps"
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

# step NAME SECONDS COMMAND...: runs it within its limit and the time left in the phase; output goes
# to NAME.log. Exit 77 is a skip.
step() {
    local name=$1 limit=$2 left started=$SECONDS status
    shift 2
    if ((is_plan)); then
        printf '%-8s %-28s %4d s\n' "$phase" "$name" "$limit"
        return 0
    fi
    left=$((phase_seconds[$phase] - (SECONDS - phase_began)))
    rm -f "$logs/$name.json"
    if ((left < 3)); then
        note "$name" notrun 0 "$limit" "no time left in the phase"
        return 1
    fi
    ((limit > left)) && limit=$left
    echo "== $phase: $name (at most $limit s)"
    timeout --kill-after=5 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null
    status=$?
    case $status in
    0) note "$name" passed $((SECONDS - started)) "$limit" - ;;
    77) note "$name" skipped $((SECONDS - started)) "$limit" "$(tail -n 1 "$logs/$name.log")" ;;
    124 | 137) note "$name" timeout $((SECONDS - started)) "$limit" "not done after $limit s" ;;
    *) note "$name" failed $((SECONDS - started)) "$limit" "exit $status: $(reason_in "$logs/$name.log")" ;;
    esac
    case $status in 0 | 77) ;; *) tail -n 15 "$logs/$name.log" ;; esac
    return $status
}

# As step, for a command that prints one JSON document: it goes to NAME.json.
json_step() {
    local name=$1 limit=$2
    shift 2
    # shellcheck disable=SC2016 # the inner shell expands them
    step "$name" "$limit" bash -c 'json=$1; shift; exec "$@" >"$json"' _ "$logs/$name.json" "$@"
}

# skip NAME TEXT: notes a step that cannot run here, with the reason.
skip() {
    if ((is_plan)); then return; fi
    note "$1" skipped 0 0 "$2"
}

# tell NAME TEXT: sets the text of a step that has run. An empty text changes nothing.
tell() {
    local p n rest lines=()
    [[ -n $2 ]] || return 0
    ((is_plan)) && return 0
    mapfile -t lines <"$steps"
    : >"$steps"
    for rest in "${lines[@]}"; do
        IFS=$'\t' read -r p n _ <<<"$rest"
        [[ $p == "$phase" && $n == "$1" ]] && rest=${rest%$'\t'*}$'\t'$(plain "$2")
        printf '%s\n' "$rest" >>"$steps"
    done
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

# ---- phases ----

# Starts a phase: forgets what an earlier run noted of it.
begin_phase() {
    local line lines=()
    phase=$1 phase_began=$SECONDS
    ((is_plan)) && return
    mapfile -t lines <"$steps"
    : >"$steps"
    for line in "${lines[@]}"; do [[ $line == "$phase"$'\t'* ]] || printf '%s\n' "$line" >>"$steps"; done
}

check_phases() {
    local asked
    [[ " $* " != *' all '* || $# == 1 ]] || usage "'all' is given together with other phases; give it alone"
    for asked in "$@"; do
        [[ $asked == all || -n ${phase_seconds[$asked]:-} ]] || usage "there is no phase '$asked'; phases are ${all_phases[*]} and all"
    done
}

run_phases() {
    local asked=() results=${OUT:-gpu-check-results}
    while (($#)); do
        case $1 in
        --results)
            [[ -n ${2:-} ]] || usage "--results needs a folder"
            results=$2
            shift
            ;;
        -*) usage "run has no option '$1'" ;;
        *) asked+=("$1") ;;
        esac
        shift
    done
    ((${#asked[@]})) || usage "run needs a phase: ${all_phases[*]} or all"
    check_phases "${asked[@]}"
    [[ ${asked[*]} == all ]] && asked=("${all_phases[@]}")
    mkdir -p "$results" || die "$results cannot be made"
    results=$(readlink -f "$results")
    make_ready
    for phase in "${asked[@]}"; do
        begin_phase "$phase"
        require_device && "phase_$phase"
        echo "-- $phase took $((SECONDS - phase_began)) s of ${phase_seconds[$phase]}"
    done
    report "$results" "${asked[@]}"
}

plan_phases() {
    local each total=0
    (($# == 0)) || usage "plan takes no arguments"
    is_plan=1 logs=/nonexistent steps=/dev/null device=cuda:0 quick='' is_fake=0 unpacked='' loader=() work=''
    for each in "${all_phases[@]}"; do
        begin_phase "$each"
        require_device
        "phase_$each"
        printf '%-8s %-28s %4d s\n\n' "$each" "ends within" "${phase_seconds[$each]}"
        total=$((total + phase_seconds[$each]))
    done
    echo "all phases end within $total s"
}
