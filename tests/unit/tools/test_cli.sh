#!/usr/bin/env bash
# The command as a user sees it: exit statuses, the stream of each output, and the figures that are
# the same on every device (bytes, requests, losses).
# Usage: test_cli.sh BUILD_DIR. No times are asserted.
# shellcheck disable=SC2086  # options are words
# shellcheck source=tests/unit/tools/lib.inc.sh
. "$(dirname "$0")/lib.inc.sh" "$1"

count() { # prints the number of lines of the output that contain the text
    local found
    found=$(grep -cF -- "$2" "$work/out")
    [ "$found" -eq "$1" ] || fail "'$2' stands $found times in the output, not $1"
}

# ---- usage ----
prints "ferry " --version
prints "experiment" --help
expect 2
silent out
refuses 2 "did you mean 'experiment'?" expirement
expect 2 experiment
silent out
for command in info "experiment roundtrip" "experiment vectorize" "experiment minibatch" "experiment link" "experiment parallel" "experiment batchsize" "experiment speedups" "bench dispatch" "bench gemm" "bench chain" "bench copy" "bench alloc" "bench step" "bench train"; do
    prints "usage: ferry $command" $command --help
    says out --json --csv --plot --device --budget --record
    refuses 2 "did you mean --json?" $command --jsom
    silent out
    expect 1 $command --device nowhere:0 --json # well-formed specs, but the device or plugin does not exist
    silent out
    for spec in Foo:0 sim:x 'sim:0?x=1' ''; do
        expect 2 $command --device "$spec" --json
        silent out
    done
done

prints "usage: ferry info" help info
prints "usage: ferry experiment minibatch" help experiment minibatch
expect 2 help nothing

# ---- budgets ----
refuses 1 "REFUSED_BY_GUARD" experiment roundtrip --device sim:0 --size 16 --iters 2 --budget upload=0
says err "'upload=0'" "needs 1024"
expect 1 experiment roundtrip --device sim:0 --size 16 --iters 2 --json --budget upload=0
silent out
refuses 1 "sync=1" experiment roundtrip --device sim:0 --size 16 --iters 2 --budget sync=1,download=2KiB/loop
expect 1 experiment roundtrip --device sim:0 --size 16 --iters 3 --budget download=2KiB/loop
says err "each such scope 2048 download bytes, of which 2048 are used" "roundtrip/copies/loop"
expect 0 experiment roundtrip --device sim:0 --size 16 --iters 2 --budget upload=1MiB,download=2KiB/loop,upload=0/roundtrip2
silent err
expect 1 experiment roundtrip --device sim:0 --size 16 --iters 2 --budget upload=0/roundtrip # the session's scope counts too
for command in info "experiment vectorize" "bench gemm"; do
    refuses 2 "there are upload, download" $command --budget uplaod=0
    silent out
done
FERRY_BUDGET=upload=0 refuses 1 "'upload=0'" experiment roundtrip --device sim:0 --size 16 --iters 2
FERRY_BUDGET=upload=0 expect 0 experiment roundtrip --device sim:0 --size 16 --iters 2 --budget upload=1MiB
FERRY_BUDGET=uplaod=0 refuses 2 "FERRY_BUDGET is not in force" experiment roundtrip --device sim:0 --size 16 --iters 2
says err "FERRY_STRICT=0"
FERRY_STRICT=0 FERRY_BUDGET=uplaod=0 expect 0 experiment roundtrip --device sim:0 --size 16 --iters 2
says err "FERRY_BUDGET is not in force"
# An incomplete event file is reported: a full disk, written to through a device.
if [ -c /dev/full ]; then
    FERRY_RECORD=/dev/full refuses 1 "FERRY_RECORD=/dev/full" experiment roundtrip --device sim:0 --size 16 --iters 2
    says err "is incomplete"
    "$ferry" train linear --device sim:0 --max-steps 1 --record "$work/full.jsonl" >/dev/null || fail "a recorded training"
    "$ferry" experiment roundtrip --device sim:0 --size 16 --iters 1 --json >"$work/full.json" || fail "an experiment"
    for command in --version --help info watch "plan lenet" "plan lenet --json" "train linear --device host --max-steps 1" \
        "experiment roundtrip --device sim:0 --size 16 --iters 1 --json" "compare @/full.json @/full.json" \
        "ledger @/full.jsonl" "advise @/full.jsonl" "predict @/full.jsonl" "replay @/full.jsonl --policy ferry" \
        "timeline @/full.jsonl --out @/full.trace" "report @/full.jsonl --out @/full.html"; do
        split "$command"
        "$ferry" "${words[@]}" >/dev/full 2>"$work/err"
        status=$?
        if ! { [ $status -eq 1 ] && grep -q 'IO: cannot write to standard output: No space left' "$work/err"; }; then
            fail "$command >/dev/full: exit status $status: $(cat "$work/err")"
        fi
    done
else
    echo "skipped: there is no /dev/full"
fi

# ---- info ----
expect 0 info --help
if grep -q '^options:' "$work/out"; then fail "info --help has an empty list of options"; fi
prints "memory [GiB]" info
prints '"clock": "wall"' info --device null:0 --json
says out '"devices_reason": null'
expect 0 info --json
silent err
says out '"host_allocator"' '"spec": "host"' '"name": "cuda"'

# ---- threads: the choice, what replaces it, and spinning beside other work ----
says out '"idle_threads": "sleep"' # the command sets OMP_WAIT_POLICY=passive
if grep -q 'idle kernel threads spin' "$work/out"; then fail "a warning of spinning threads that sleep"; fi
prints '"threads": "3, set by threads=, FERRY_THREADS or fy_host_set_threads"' info --device host?threads=3 --json
FERRY_THREADS=5 expect 0 info --device host
matches out '^  threads +5, set by'
FERRY_THREADS=5 expect 0 info --device 'host?threads=auto'
matches out '^  threads +auto'
FERRY_STRICT=0 FERRY_THREADS=none expect 0 info --device host
says err "FERRY_THREADS=none is ignored; it may be auto, or a number from 1 to 1024"
matches out '^  threads +auto'
refuses 2 "host: threads=0: threads may be auto, or a number from 1 to 1024" info --device 'host?threads=0'
refuses 2 "sim:0: threads=none" bench dispatch --device 'sim:0?threads=none'
others=()
for _ in $(seq "$(nproc)"); do
    while :; do :; done &
    others+=($!)
done
OMP_WAIT_POLICY=active OMP_NUM_THREADS=$(nproc) expect 0 info --json
mv "$work/out" "$work/busy"
OMP_WAIT_POLICY=active OMP_NUM_THREADS=$(nproc) expect 0 info
mv "$work/out" "$work/busy.text"
OMP_WAIT_POLICY=passive expect 0 info --json
kill "${others[@]}"
wait "${others[@]}" 2>/dev/null
says out '"warnings": []'
if [ "$(nproc)" -gt 1 ]; then
    mv "$work/busy" "$work/out"
    matches out '"idle_threads": "spin, 30000000000 times"' '"idle kernel threads spin while other threads use'
    mv "$work/busy.text" "$work/out"
    matches out '^warning: host: idle kernel threads spin'
fi

# ---- roundtrip ----
expect 0 experiment roundtrip --device sim:0 --iters 3 --json
silent err
count 4 '"max_abs_diff": 0'
expect 4 experiment roundtrip --device 'sim:0?capacity=64KiB' --json
silent out
says err OUT_OF_MEMORY
prints '"faster_than_host": "from_crossover_size"' experiment roundtrip --sweep --iters 1 --device sim:0 --json
sed '/"machine"/,/}/d' "$work/out" >"$work/first" # its load is not the same
expect 0 experiment roundtrip --sweep --iters 1 --device sim:0 --json
sed '/"machine"/,/}/d' "$work/out" | cmp -s "$work/first" - || fail "the sweep on the model clock differs from run to run"

expect 0 experiment roundtrip --device 'sim:0?numerics=off' --iters 1 --json
says err "numerics=off"
count 3 '"max_abs_diff": null'

# ---- files ----
expect 0 experiment roundtrip --device sim:0 --iters 1 --csv "$work/r.csv"
[ "$(wc -l <"$work/r.csv")" -eq 4 ] || fail "the CSV has not four lines"
expect 1 experiment roundtrip --device sim:0 --iters 1 --csv "$work/no/folder.csv" --json
silent out
says err "cannot write $work/no/folder.csv"
expect 1 experiment roundtrip --device sim:0 --iters 1000000000 --plot "$work/no/folder.svg" # detected before the work starts
says err "cannot write $work/no/folder.svg"
expect 1 experiment roundtrip --device sim:0 --iters 1000000000 --csv "$work"
ln -s "$work/no/folder.svg" "$work/dangling.svg"
ln -s loop.svg "$work/loop.svg"
for option in --csv --plot --snapshot; do
    for place in dangling.svg loop.svg r.csv/x.svg; do
        refuses 1 "IO: cannot write $work/$place: " experiment roundtrip --device sim:0 --iters 1000000000 $option "$work/$place"
    done
done
expect 2 experiment roundtrip --device sim:0 --plot "$work/z.png"
for experiment in speedups "parallel lenet"; do
    refuses 2 "--plot: this table has no figure" experiment $experiment --device sim:0 --plot "$work/none.svg"
    silent out
done
FERRY_PLUGIN_PATH=relative refuses 1 "FERRY_PLUGIN_PATH=relative was skipped: no folder in it is absolute" experiment roundtrip --device cuda:0 --iters 1
# The folders' plugins are listed by name, whether a spec names them or not; other files are not
# listed.
mkdir "$work/plugins"
for name in libferry_zeta.so libferry_alpha.so libferry_alpha.so.1 libferry_longer_than_a_name_is.so libalpha.so; do echo none >"$work/plugins/$name"; done
FERRY_PLUGIN_PATH=$work/plugins expect 0 info --device host
matches out '^  alpha +no +.*libferry_alpha.so: '
[ "$(sed -n '/^  plugin/,/^$/ s/^  \([a-z_0-9]*\) .*/\1/p' "$work/out" | tr '\n' ' ')" = "plugin cuda alpha zeta " ] || fail "info lists other plugins: $(cat "$work/out")"
mkfifo "$work/plugins/libferry_pipe.so" # opening it would wait for its writer
FERRY_PLUGIN_PATH=$work/plugins timeout 600 "$ferry" info --device host >"$work/out" 2>"$work/err" || fail "info with a pipe for a plugin: exit status $?"
says out "libferry_pipe.so is no regular file"
expect 0 experiment minibatch --device 'sim:0?numerics=off' --plot "$work/nothing.svg"
says err "no figure: there are no values to draw"
if grep -qi gnuplot "$work/err" || [ -e "$work/nothing.svg" ]; then fail "a figure of nothing was drawn"; fi
PATH="$work" "$ferry" experiment roundtrip --device sim:0 --iters 1 --plot "$work/p.svg" >"$work/out" 2>"$work/err" ||
    fail "without gnuplot the experiment failed"
says err "gnuplot is not installed"
[ -s "$work/p.csv" ] || fail "without gnuplot the numbers are nowhere"
# gnuplot exits with 0 when the disk is full: the missing figure is reported.
mkdir "$work/half"
printf '#!/bin/sh\nexec >"%s"\necho "<svg>"\n' "$work/half.svg" >"$work/half/gnuplot"
chmod +x "$work/half/gnuplot"
PATH=$work/half:$PATH expect 1 experiment roundtrip --device sim:0 --iters 1 --plot "$work/half.svg"
says err "IO: gnuplot did not write all of $work/half.svg"
if command -v gnuplot >/dev/null; then
    expect 0 experiment roundtrip --device sim:0 --iters 1 --plot "$work/quote's.svg"
    grep -q '<svg' "$work/quote's.svg" || fail "the figure is no SVG"
    grep -q 'sim:0 (h200 profile), ferry ' "$work/quote's.svg" || fail "the figure does not name device, profile and version"
    # Ten modes are two panels of at most six colours, with powers of ten on both axes.
    expect 0 experiment link --device sim:0 --sizes 4,64KiB --pieces 4 --plot "$work/link.svg"
    for text in 'pinned up' 'coalesced down' 'sim:0 (h200 profile), ferry '; do
        grep -q "$text" "$work/link.svg" || fail "the figure of link has no '$text'"
    done
fi
# The script that gnuplot gets: error bars where there is an interval, and none where there is not.
mkdir "$work/told"
printf '#!/bin/sh\ncat >"%s"\necho "<svg></svg>" >"%s"\n' "$work/script" "$work/told.svg" >"$work/told/gnuplot"
chmod +x "$work/told/gnuplot"
for rounds in 1 5; do
    PATH=$work/told:$PATH expect 0 experiment roundtrip --device host --size 8 --iters 1 --rounds $rounds --plot "$work/told.svg"
    [ "$(grep -c "with vectors" "$work/script")" -eq $((rounds / 5)) ] || fail "error bars of $rounds rounds: $(cat "$work/script")"
done
PATH=$work/told:$PATH expect 0 experiment link --device sim:0 --sizes 4 --pieces 4 --plot "$work/told.svg"
for text in 'set multiplot layout 1,2' "rgb '#0072B2'" "set format x '10^{%L}'" "set format y '10^{%L}'"; do
    grep -qF -- "$text" "$work/script" || fail "gnuplot is not told: $text"
done
if [ "$(grep -c '^plot' "$work/script")" -ne 2 ]; then fail "the figure of link is not two panels"; fi

# ---- vectorize ----
expect 0 experiment vectorize --device sim:0 --size 32 --rounds 1 --json
count 4 '"via": "dispatcher"'
says out '"requests": 1024,'
if grep '"max_abs_err"' "$work/out" | grep -vE ': (0|0\.000[0-9]*|[0-9.]+e-[0-9]+),?$'; then fail "vectorize is off by more than 1e-3"; fi
expect 2 experiment vectorize --size 30

# ---- link ----
expect 0 experiment link --device sim:0 --sizes 4KiB --pieces 256 --rounds 1 --json
silent err
says out '"nbytes": 1048576,'
prints '"pipelined_ns_per_step"' experiment link --overlap --steps 4 --compute 1 --device 'sim:0?numerics=off' --json
prints "lives on sim:1" experiment parallel lenet --devices 2 --batch 16 --steps 2 --device sim:0
prints "lives on sim:1" experiment parallel resnet18 --devices 2 --batch 16 --steps 1 --device 'sim:0?numerics=off'
expect 0 experiment batchsize --device 'sim:0?profile=a100&numerics=off' --json
steps=$(sed -n 's/.*"steps_per_epoch": \([0-9]*\).*/\1/p' "$work/out" | tr '\n' ' ')
[ "$steps" = "450 354 351 348 288 88 87 87 " ] || fail "steps of an epoch: $steps"
grep -q '"verdict": "sim:' "$work/out" || fail "no verdict on one image more"
expect 0 experiment batchsize --sizes 255,256,257 --devices 4 --json
steps=$(sed -n 's/.*"steps_per_epoch": \([0-9]*\).*/\1/p' "$work/out" | tr '\n' ' ')
[ "$steps" = "44 43 43 " ] || fail "steps of an epoch on 4 devices: $steps"
expect 0 experiment batchsize --sizes 3,4,5 --model resnet18:size=8 --samples 50 --steps 1 --device host
for sizes in 0 3,x '' 70000 '1,2,'; do expect 2 experiment batchsize --sizes "$sizes"; done
refuses 2 "no model for images" experiment batchsize --model linear
expect 0 experiment parallel lenet --ranks 4 --per-node 2 --batch 8 --total-batch 2 --json
[ "$(sed -n 's/.*"scaling": "\(.*\)",/\1/p' "$work/out" | tr '\n' ' ')" = "weak weak weak strong strong " ] || fail "scaling: $(head -c 400 "$work/out")"
says out '"net": "ib400"'
prints "assumptions: equal ranks" experiment parallel lenet --ranks 2 --batch 8 --plot "$work/scaling.svg"
expect 4 experiment parallel lenet --ranks 1 --device 'sim:0?limit=1MiB'
refuses 2 "--per-node takes a power of two, not 3" experiment parallel lenet --ranks 8 --per-node 3
expect 2 experiment parallel lenet --ranks 2 --device host
refuses 2 "options of networks and nodes need --ranks" experiment parallel lenet --net eth25
expect 2 experiment parallel lenet --per-node 4
refuses 2 "there are lenet, resnet18" experiment parallel resnet1
expect 2 experiment parallel --lr -1
refuses 1 "several devices are taken from :0 on" experiment parallel --device host --batch 16 --steps 1
prints "no gradient in validation" experiment speedups --only 12,16 --device sim:0
prints "buckets or one call: the same bits; replicas equal; no_sync moves 1/4 of the bytes" experiment speedups --only 10
refuses 2 "there are 1 2 3" experiment speedups --only 20
expect 2 experiment speedups --only 3,
expect 1 experiment speedups --device 'sim:0?numerics=off'
refuses 2 "'none' is not a size" experiment link --sizes 4KiB,none
expect 2 experiment link --pieces 0
fake=$build/lib/tests/libfake_cuda.so
if [ -e "$fake" ]; then # beside the ring, the driver's copy is measured if a driver exists
    export FERRY_CUDA_DRIVER=$fake FERRY_CUBLASLT=$fake
    expect 0 experiment link --device cuda:0 --sizes 4KiB,1MiB --rounds 1 --json
    unset FERRY_CUDA_DRIVER FERRY_CUBLASLT
    count 4 '"mode": "pageable"'
fi

# ---- minibatch: synthetic data, then the real ones if present ----
mkdir "$work/empty"
expect 1 experiment minibatch --data "$work/empty" --json
silent out
printf '1\t2\r\n3\t4\r\n' >"$work/empty/airfoil_self_noise.dat"
refuses 1 "has 2 columns, not 6" experiment minibatch --data "$work/empty"
(cd "$work/empty" && rm airfoil_self_noise.dat && env -u FERRY_DATA "$ferry" experiment minibatch --device sim:0 --json >"$work/out" 2>"$work/err") ||
    fail "minibatch on made-up data failed: $(cat "$work/err")"
says err "made-up data"
says out '"data": "synthetic"' '"data_uploads": 1,' '"data_bytes_up": 36000,'
count 4 '"bytes_up": 0,'
says out '"uploads": 1,'
expect 2 experiment minibatch --runs gd,nothing
if [ -e "$real_data/airfoil/airfoil_self_noise.dat" ]; then
    expect 0 experiment minibatch --data "$real_data" --init zero --device sim:0
    silent err
    says out "gd: 0.2757 0.2503 0.2465 0.2455 0.2451 0.2451 0.2453 0.2456 0.2462 0.2470"
    awk '/^  (gd|sgd|mini100|mini10) / { n++; if ($5 < 0.2416 || $5 > 0.260) exit 1 } END { exit n < 4 }' "$work/out" ||
        fail "a run does not end in [.2416, .260]"
fi

# ---- rounds and intervals: the same keys in every experiment ----
for experiment in "roundtrip --iters 1 --size 8" "roundtrip --sweep --iters 1" "vectorize --size 8" "minibatch --runs gd" "link --sizes 4" "link --overlap --steps 1 --compute 1" "batchsize --sizes 2 --steps 1" "parallel --devices 1 --steps 1 --batch 8" "speedups --only 7"; do
    device='sim:0?numerics=off'
    if [[ $experiment = speedups* ]]; then device=sim:0; fi # it compares results
    expect 0 experiment $experiment --device "$device" --rounds 5 --json
    says out '"statistics": {' '"warm_up": ' '"resamples": 2000,' '"seed": 1' '"machine": {' '"load_1min": '
    says out '_q1": ' '_q3": ' '_low": ' '_high": ' '_half_percent": ' '"rounds": 5'
done
prints '"until_percent": 99,' experiment roundtrip --device host --size 8 --iters 1 --until 99% --rounds 2 --json
matches out '"ns_per_iter_low": [0-9]'
prints "4 rounds after 3 products of each variant" experiment roundtrip --device host --size 8 --iters 1 --rounds 4
for until in 0 0% 101% x 1%% -1; do expect 2 experiment roundtrip --until "$until"; done
expect 2 experiment roundtrip --rounds 202

# ---- several devices side by side, paired by the same clock ----
expect 0 experiment roundtrip --device host --device 'sim:0?numerics=off' --device=sim:0?profile=a100 --size 16 --iters 2 --json --csv "$work/beside.csv"
says out '"devices": [' '"what": "variants/copies/ns_per_iter"'
matches out '"device1_ratio": [0-9]' '"device2_low": [0-9]'
awk '/"what": "variants\/copies\/model_ns/ { seen = 1 } seen && /"device0":/ { exit !/null/ }' "$work/out" || fail "the host has a model time"
grep -q '^what,clock,device0,device0_low' "$work/beside.csv" || fail "no table of devices"
expect 0 experiment link --sizes 4 --device host --device 'sim:0?numerics=off'
matches out 'what +clock +host +\+-% +sim:0' 'rows/pinned up 4 1/ns +model +-'
refuses 1 "--device nowhere:0: exit status 1" experiment link --device sim:0 --device nowhere:0
silent out
refuses 2 "--plot is of one device" experiment link --device sim:0 --device host --plot "$work/x.svg"
expect 2 experiment link --device sim:0 --device host --nothing

# ---- traffic is the same in every run, and on the host ----
for experiment in "roundtrip --iters 2" "vectorize --size 16 --rounds 1" minibatch "link --sizes 4,64KiB" "link --overlap --steps 2 --compute 1 --rounds 1"; do
    for device in sim:0 host; do
        expect 0 experiment $experiment --device $device --traffic
        tail -n 1 "$work/out" >"$work/first"
        grep -qE '^traffic: requests=[0-9]+ uploads=[0-9]+ upload_bytes=[0-9]+ downloads=[0-9]+ download_bytes=[0-9]+ syncs=[0-9]+$' "$work/first" ||
            fail "$experiment on $device: no traffic line"
        expect 0 experiment $experiment --device $device --traffic
        tail -n 1 "$work/out" | cmp -s - "$work/first" || fail "$experiment on $device: traffic differs from run to run"
    done
done

# ---- benches run and fill every row ----
for suite in dispatch "gemm --max-size 32" "copy --max-bytes 4KiB" "step --elements 1000" "train --case mlp"; do
    expect 0 bench $suite --device sim:0 --rounds 1 --round-ms 1 --json
    silent err
    says out '"rows": ['
done
says out '"mode": "graph"'
expect 0 bench step --elements 1000 --rounds 1 --round-ms 1 --json
matches out '"bandwidth_ratio": [0-9]'
for suite in dispatch "gemm --max-size 16"; do # one thread, all threads, and the choice, where there is one
    if grep -q '^FERRY_SANITIZE:.*thread' "$1/CMakeCache.txt" 2>/dev/null; then
        echo "skipped: bench $suite with two OpenMP threads is not tested under ThreadSanitizer"
        continue
    fi
    OMP_NUM_THREADS=2 expect 0 bench $suite --device host --rounds 1 --round-ms 1 --json
    matches out '"one_thread_ns_per_op": [0-9]' '"all_threads_ns_per_op": [0-9]' '"threads_ratio": [0-9]'
    FERRY_THREADS=2 prints '"threads_ratio": null' bench $suite --device host --rounds 1 --round-ms 1 --json
    if grep -q '"threads_ratio": [0-9]' "$work/out"; then fail "bench $suite: a ratio of the choice, where there is none"; fi
done
refuses 2 "no step is called 'nothing...'" bench train --case nothing
expect 2 bench train --layers --case chain # a step without layers
prints 'GFLOP/s' bench train --layers --case lenet --device host --rounds 1 --round-ms 1
for layer in 'conv1  *forward' 'conv1  *backward params' 'conv2  *forward' 'conv2  *backward input' 'fc1  *backward input'; do
    grep -qE "^ *lenet +$layer .* 256 " "$work/out" || fail "bench train --layers has no row '$layer'"
done
says out 'avg_pool2d'
if grep -qE 'conv1 +backward input|plain loops' "$work/out"; then fail "bench train --layers: a row too many, or plain loops"; fi
expect 0 bench train --layers --case gpt --device host --rounds 1 --round-ms 1 # layers in residuals, equal ones counted
for layer in 'transformer\.wte  *forward  *1 ' 'transformer\.h\.0\.attn\.c_attn  *backward params  *4 ' 'transformer\.h\.0\.attn  *backward  *4 ' 'transformer\.h\.0  *forward  *8 ' 'lm_head  *backward input  *1 '; do
    grep -qE "^ *gpt +$layer" "$work/out" || fail "bench train --layers has no row '$layer'"
done
if grep -q 'transformer\.h\.1\|nan' "$work/out"; then fail "bench train --layers: an equal layer twice, or no figure"; fi
expect 0 bench alloc --device sim:0 --quick --rounds 1 --round-ms 1 --max-live 1MiB --json
for field in '"allocator": "ferry"' '"allocator": "ferry-device"' '"allocator": "ferry-pinned"' '"pattern": "random"' '"nbytes": 67108864' '"threads": 4' '"live_blocks": 10,'; do
    says out "$field"
done
prints "/ malloc 4 KiB" bench alloc --device host --quick --max-live 1MiB
refuses 2 "1048576 is more than --max-bytes 64" bench alloc --min-bytes 1MiB --max-bytes 64 # no measurement would remain
