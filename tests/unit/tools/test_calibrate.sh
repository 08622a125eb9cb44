#!/usr/bin/env bash
# `ferry calibrate`: measuring a simulated device gives that device's profile, so the measurements
# mean the same as the profile. The file is read by sim, plan and experiments. The fake driver's
# device is measured too. No wall times are asserted.
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

figures() { sed -n 's/^  \([a-z0-9_]*_ns\|[a-z0-9_]*_per_s\|memory_bytes\) *\([0-9]*\)$/\1 \2/p' "$work/out"; }

# ---- usage ----
prints "usage: ferry calibrate [DEVICE]" calibrate --help
refuses 2 "--host measures" calibrate host
silent out
expect 2 calibrate sim:0 --rounds 0
refuses 2 "or a file" calibrate 'sim:0?profile=b200'
expect 1 calibrate 'sim:0?numerics=off' --rounds 1 --out "$work/no/folder.json" --json
silent out
says err "cannot write $work/no/folder.json"
# Options that would be ignored, or written into a profile that no device reads, are refused before
# anything is measured.
refuses 2 "--host measures no device" calibrate sim:0 --host
expect 2 calibrate --host --peer sim:1
refuses 2 "--base goes with --host" calibrate sim:0 --base t4
for base in b200 sim.json; do
    refuses 2 "is no built-in profile" calibrate --host --base "$base"
done
for name in 'a"b' 'a\b' "$(printf 'a%.0s' {1..32})"; do
    refuses 2 "--name must have" calibrate --host --name "$name"
done
refuses 1 "nowhere" calibrate 'sim:0?numerics=off' --peer nowhere:0 --rounds 1
silent out
FERRY_PLUGIN_PATH=$work refuses 1 "--host measures" calibrate
says err "UNAVAILABLE"
silent out
prints '"calibrate": "host"' calibrate --host --rounds 1 --max-bytes 1MiB --json

# ---- the closed loop: a profile measured on the model clock is that profile ----
for profile in h100 k80 rtx4090; do
    file=$work/$profile.json
    prints '"clock": "model"' calibrate "sim:0?profile=$profile&numerics=off" --rounds 2 --out "$file" --json
    says out '"written"' '"spread": 0'
    [ -s "$file" ] || fail "there is no $file"
    prints "$profile-profile profile" info --device "sim:0?profile=$file"
    figures >"$work/got"
    expect 0 info --device "sim:0?profile=$profile"
    figures >"$work/want"
    # No transfer takes the pageable path, so it cannot be measured and gets the figures of the
    # page-locked one.
    join <(sort "$work/got") <(sort "$work/want") | awk '
        $1 == "pageable_bytes_per_s" { seen++; next }
        { seen++; off = $2 / $3 - 1; if (off < -0.04 || off > 0.04) print $1 " is " $2 ", not " $3 }
        END { if (seen != 19) print seen " figures, not 19" }' >"$work/off"
    [ -s "$work/off" ] && fail "calibrating $profile: $(cat "$work/off")"
done

# ---- uses of a profile ----
model_ns() { sed -n 's/.*"step_model_ns": \([0-9.e+]*\).*/\1/p' "$work/out" | head -n 1; }
expect 0 plan mnist2018 --batch 64 --device "sim:0?profile=$work/h100.json" --json
got=$(model_ns)
expect 0 plan mnist2018 --batch 64 --device "sim:0?profile=h100" --json
want=$(model_ns)
awk -v a="$got" -v b="$want" 'BEGIN { exit !(a > 0 && b > 0 && a / b > 0.96 && a / b < 1.04) }' || fail "a planned step takes $got ns by the measured profile, $want by the built-in one"
prints '"device_model": "k80-profile profile"' experiment roundtrip --device "sim:0?profile=$work/k80.json" --iters 1 --json
long=$work/$(printf 'a%.0s' {1..200})
mkdir -p "$long" && cp "$work/k80.json" "$long/b.json"
expect 0 info --device "sim:0?profile=$long/b.json&numerics=off"
refuses 2 "No such file" experiment roundtrip --device "sim:0?profile=$work/none.json" --iters 1

# ---- the host alone ----
prints "host_copy_bytes_per_s" calibrate --host --base t4 --name here --rounds 2 --max-bytes 4MiB --out "$work/host.json"
prints "here profile" info --device "sim:0?profile=$work/host.json"
figures >"$work/got"
grep -qx "f16_flops_per_s 65000000000000" "$work/got" || fail "--base t4 does not give the figures of a t4"
[ "$(grep -c '^host_' "$work/got")" -eq 4 ] || fail "the host has not four figures"

# ---- a card, as far as the fake driver simulates one ----
fake=$build/lib/tests/libfake_cuda.so
if [ -e "$build/lib/ferry/libferry_cuda.so" ] && [ -e "$fake" ]; then
    export FERRY_PLUGIN_PATH=$build/lib/ferry FERRY_CUDA_DRIVER=$fake FERRY_CUBLASLT=$fake FERRY_CUDNN=none
    # One more request does not take longer there: such a rate is refused, never written.
    "$ferry" calibrate cuda:0 --rounds 3 --max-bytes 4MiB --out "$work/fake.json" >"$work/out" 2>"$work/err"
    case $? in
    0)
        says out "fake-gpu-no-kernel-runs-here"
        grep -q '"driver": "13.0"' "$work/fake.json" || fail "the profile does not say which driver"
        expect 0 info --device "sim:0?profile=$work/fake.json"
        ;;
    1)
        says err "could not be measured"
        [ ! -e "$work/fake.json" ] || fail "a profile was written though a rate is missing"
        ;;
    *) fail "calibrating the fake device: $(head -c 300 "$work/err")" ;;
    esac
fi
