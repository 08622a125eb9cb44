# shellcheck shell=bash disable=SC2154  # set by machine.inc.sh and steps.inc.sh
# The report of a call: one table of every step so far, failures first. Steps have written the rest
# when they ended.

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
