#!/usr/bin/env bash
# examples/cuda_application over the fake driver: Ferry computes on the application's buffers, in the
# order of its events, with device memory from its pool only. Usage: BUILD-FOLDER
# shellcheck source=tests/support/test.inc.sh
. "$(dirname "$0")/../../support/test.inc.sh" "$1"
set -e
needs bin/cuda_application lib/tests/libfake_cuda.so lib/ferry/libferry_cuda.so
program=$build/bin/cuda_application fake=$build/lib/tests/libfake_cuda.so log=$work/log
export FERRY_PLUGIN_PATH=$build/lib/ferry FERRY_CUDA_DRIVER=$fake FERRY_CUBLASLT=$fake FERRY_CUDNN=none
"$program" cuda:0 >"$log" 2>&1 || { cat "$log" && exit 1; }
has() { grep -qE "$1" "$log" || { echo "not there: $1" && cat "$log" && exit 1; }; }
has '^8 batches of 32 rows: all scores are right$'
has '^progress word: 8$'
has '^pool: [1-9][0-9]* bytes at most, 0 now$'
# the two weights; the application moved everything else, and the host waited once, at the end
has '^traffic: requests=[0-9]+ uploads=2 upload_bytes=640 downloads=0 download_bytes=0 syncs=1$'
FAKE_CUDA_NO_MEM_OPS=1 "$program" cuda:0 >"$log" 2>&1 || { cat "$log" && exit 1; }
has '^progress word: this device has no stream memory operations$'
if "$program" cuda:7 >"$log" 2>&1; then echo "cuda:7 exists" && exit 1; fi
