# What the tests of the command share: sourced with the build folder as its argument. Leaves with 77
# if the command is not built.
# `expect` runs the command; its streams are then in $work/out and $work/err, which the others look
# at.
# shellcheck shell=bash disable=SC2034  # variables: read by who sources it
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../support/test.inc.sh" "$1"
needs bin/ferry
ferry=$build/bin/ferry
# Real data sets, for the tests that have more to check with them.
real_data=${FERRY_DATA:-$root/data}

# expect STATUS ARGUMENT...: runs, compares the exit status.
expect() {
    local expected=$1
    shift
    "$ferry" "$@" >"$work/out" 2>"$work/err"
    local status=$?
    [ $status -eq "$expected" ] || fail "ferry $*: exit status $status, not $expected: $(head -c 400 "$work/err")"
}
# wait_until COMMAND...: polls, for at most 4 minutes.
wait_until() {
    local i
    for ((i = 0; i < 4800; i++)); do
        if "$@"; then return 0; fi
        sleep 0.05
    done
    fail "waited for nothing: $*"
    return 1
}
# says out|err TEXT...; matches out|err REGEX...; silent out|err
says() {
    local text
    for text in "${@:2}"; do
        grep -qF -- "$text" "$work/$1" || fail "'$text' is not in $1 of the last command: $(head -c 300 "$work/$1")"
    done
}
matches() {
    local regex
    for regex in "${@:2}"; do
        grep -qE -- "$regex" "$work/$1" || fail "nothing like '$regex' is in $1 of the last command"
    done
}
silent() { [ ! -s "$work/$1" ] || fail "$1 of the last command is not empty: $(head -c 200 "$work/$1")"; }
# prints TEXT ARGUMENT...: exit status 0, and the output has the text.
prints() { expect 0 "${@:2}" && says out "$1"; }
# refuses STATUS TEXT ARGUMENT...: that exit status, and the error output has the text.
refuses() { expect "$1" "${@:3}" && says err "$2"; }
