# shellcheck shell=bash disable=SC2154  # set by machine.inc.sh and steps.inc.sh
# The report: one table, one JSON document, the logs in one file, the card's profile. Failures come
# first.

order_of_verdicts=(failed timeout notrun passed skipped)

# The JSON document of a step, if it left one that looks whole; else null.
document_of() {
    local text
    if [[ -s $logs/$1.json ]]; then
        text=$(<"$logs/$1.json")
        if [[ $text == '{'*'}' ]]; then
            echo "$text"
            return
        fi
    fi
    echo null
}

# The facts of the card, from the first `ferry info` that found it.
find_card() {
    local each file
    card="" driver="" capability="" cublaslt="" cudnn="" nccl=""
    for each in "${all_phases[@]}"; do
        file=$logs/device-of-$each.json
        [[ -z $card && -s $file ]] || continue
        card=$(plain "$(text "$file" model)")
        driver=$(plain "$(text "$file" driver)")
        capability=$(plain "$(text "$file" compute_capability)")
        cublaslt=$(plain "$(text "$file" cublaslt)")
        cudnn=$(plain "$(text "$file" cudnn)")
        nccl=$(plain "$(text "$file" nccl)")
    done
}

write_json() {
    local verdict p name v seconds limit text comma=""
    printf '{\n"tool": "gpu-check", "format": 1, "device": "%s", "card": "%s", "driver": "%s", "compute_capability": "%s", "fake_driver": %s,\n' \
        "$device" "$card" "$driver" "$capability" "$( ((is_fake)) && echo true || echo false)"
    printf '"staged": { "id": "%s", "commit": "%s", "arch": "%s", "tests": %d, "made": "%s" },\n' "$(staged id)" "$(staged commit)" \
        "$(staged arch)" "$(staged tests)" "$(staged made)"
    printf '"versions": { "cublaslt": "%s", "cudnn": "%s", "nccl": "%s", "torch": "%s", "compute_sanitizer": "%s", "ncu": "%s", "staged_c_library": %s },\n' \
        "$cublaslt" "$cudnn" "$nccl" "$(plain "$(text "$logs/torch.json" torch)")" "$(plain "$(find_tool compute-sanitizer)")" \
        "$(plain "$(find_tool ncu)")" "$( ((${#loader[@]})) && echo true || echo false)"
    printf '"steps": ['
    for verdict in "${order_of_verdicts[@]}"; do
        while IFS=$'\t' read -r p name v seconds limit text; do
            [[ $v == "$verdict" ]] || continue
            printf '%s\n{ "phase": "%s", "step": "%s", "verdict": "%s", "seconds": %d, "limit_s": %d, "text": "%s", "figures": %s }' \
                "$comma" "$p" "$name" "$v" "$seconds" "$limit" "$text" "$(document_of "$name")"
            comma=,
        done <"$steps"
    done
    printf '\n]\n}\n'
}

write_table() {
    local verdict p name v seconds limit text total=0
    printf '%s, driver %s, compute capability %s%s\n' "${card:-no card}" "${driver:-unknown}" "${capability:-unknown}" \
        "$( ((is_fake)) && echo ' (the fake driver: nothing here is of a card)')"
    printf 'cuBLASLt %s\ncuDNN %s\nNCCL %s\n\n' "${cublaslt:-unknown}" "${cudnn:-unknown}" "${nccl:-unknown}"
    printf '%-8s %-28s %5s  %-8s %s\n' phase step s verdict ""
    for verdict in "${order_of_verdicts[@]}"; do
        while IFS=$'\t' read -r p name v seconds limit text; do
            [[ $v == "$verdict" ]] || continue
            [[ $text == - ]] && text=""
            printf '%-8s %-28s %5d  %-8s %s\n' "$p" "$name" "$seconds" "$v" "$text"
            total=$((total + seconds))
        done <"$steps"
    done
    printf '%-8s %-28s %5d\n' "" "all steps" $total
}

# The logs in one file; a long one gives its first and last 60,000 bytes.
write_logs() {
    local file
    for file in "$logs"/*.log; do
        [[ -e $file ]] || continue
        printf '\n======== %s\n' "${file##*/}"
        if (($(wc -c <"$file") > 120000)); then
            head -c 60000 "$file"
            printf '\n[...]\n'
            tail -c 60000 "$file"
        else
            cat "$file"
        fi
    done
}

# report RESULTS PHASE...: exit 1 if a step of these phases did not pass.
report() {
    local results=$1 p name v rest bad=0
    shift
    find_card
    write_json >"$results/summary.json"
    write_table >"$results/summary.txt"
    write_logs >"$results/logs.txt"
    [[ -s $logs/card.profile.json ]] && cp "$logs/card.profile.json" "$results/"
    printf '\n'
    cat "$results/summary.txt"
    while IFS=$'\t' read -r p name v rest; do
        [[ " $* " != *" $p "* || $v == passed || $v == skipped ]] || bad=1
    done <"$steps"
    exit $bad
}
