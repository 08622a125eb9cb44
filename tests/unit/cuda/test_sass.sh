#!/usr/bin/env bash
# The machine code that nvcc makes of the kernels, checked without a card. Kernels that promise
# 16-byte accesses have them (LDG.E.128, STG.E.128). No kernel uses generic addresses. The
# elementwise and moving kernels keep everything in registers. Kernels of tensor cores read shared
# memory by LDSM. Reads the fatbins of this build.
# Usage: test_sass.sh BUILD_DIR. Skipped without cuobjdump and nvdisasm (CUDA toolkit, or
# scripts/cuda-tools.sh, which CI runs).
set -euo pipefail
fatbins=$(realpath -m "$1")/fatbin
if [ ! -d "$fatbins" ]; then
    echo "skipped: the CUDA plugin was not built, no $fatbins"
    exit 77
fi
tools=
for folder in "$(dirname "$(command -v cuobjdump || echo /nowhere/x)")" "${CUDA_HOME:-/usr/local/cuda}/bin" \
    "${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}"/ferry/cuda-tools/lib/python3*/site-packages/nvidia/*/bin; do
    if [ -z "$tools" ] && [ -x "$folder/cuobjdump" ] && [ -x "$folder/nvdisasm" ]; then tools=$folder; fi
done
if [ -z "$tools" ]; then
    echo "skipped: no cuobjdump and nvdisasm on PATH, in ${CUDA_HOME:-/usr/local/cuda}/bin, or where scripts/cuda-tools.sh puts them"
    exit 77
fi
export PATH=$tools:$PATH
cuobjdump=$tools/cuobjdump

# module, kernel, least loads and stores of 16 bytes, bytes of stack at most (exp, log and division
# of f64 spill a register around their call, and the f64 product of sm_80 its index arithmetic, none
# of it between the barriers where it multiplies; sin, cos and tan of large arguments keep an array
# of the reduced argument there);
# least LDSM and HMMA of tensor cores; registers at most, and least loads of 16 bytes among 48
# instructions in a row, which is what a thread has in flight (-: no claim)
expected='elementwise fy_elementwise_wide_f32 3 1 32
elementwise fy_elementwise_wide_f64 3 1 40
elementwise fy_elementwise_wide_half 3 2 32
elementwise fy_elementwise_wide_int 9 3 0 0 0 64 -
elementwise fy_elementwise_flat_f32 3 1 32
elementwise fy_elementwise_flat_f64 3 1 48
elementwise fy_elementwise_flat_half 3 2 32
elementwise fy_elementwise_flat_int 9 3 0 0 0 64 -
chain fy_chain_f32 4 1 40 0 0 64 -
conv_depthwise fy_conv2d_depthwise_f32 42 6 0 0 0 128 -
conv_depthwise fy_conv2d_depthwise_f64 14 2 0 0 0 128 -
conv_tensor fy_conv2d_tensor_f16 12 3 0 18 24
conv_tensor fy_conv2d_tensor_bf16 12 3 0 18 24
attention_tensor fy_attention_tensor64_f16 16 0 0 32 96 255 -
attention_tensor fy_attention_tensor64_bf16 16 0 0 32 96 255 -
attention_tensor fy_attention_tensor128_f16 16 0 0 32 96 255 -
attention_tensor fy_attention_tensor128_bf16 16 0 0 32 96 255 -
attention_gradient fy_attention_tensor_gradient64_f16 32 0 0 28 80 255 -
attention_gradient fy_attention_tensor_gradient64_bf16 32 0 0 28 80 255 -
attention_gradient fy_attention_tensor_gradient128_f16 48 0 0 64 176 255 -
attention_gradient fy_attention_tensor_gradient128_bf16 48 0 0 64 176 255 -
matmul fy_linear_finish_f32 2 1 16
matmul fy_linear_finish_f64 2 1 16
matmul fy_matmul_f32 0 0 0
matmul fy_matmul_f64 0 0 88
move fy_cast 4 4 0
move fy_copy 4 4 0
move fy_cast_flat 4 4 0
move fy_copy_flat 4 4 0
move fy_generate_flat 0 4 0
move fy_gather 4 4 0
move fy_generate 0 4 0
step fy_step_f32 9 6 0
step fy_step_f64 9 6 0
step fy_step_flat_f32 9 6 8
step fy_step_flat_f64 9 6 0
step fy_check_finite_f32 3 0 0
step fy_check_finite_f64 1 0 0
softmax fy_softmax_f32 6 3 32 0 0 128 4
softmax fy_softmax_f64 3 1 48 0 0 80 4
softmax fy_softmax_backward_f32 8 3 16
softmax fy_softmax_backward_f64 4 1 16
reduce fy_reduce_float 16 0 24 0 0 64 4
columns fy_reduce_columns_float 32 0 16 0 0 80 8
columns fy_reduce_columns_int 20 0 0 0 0 128 8
argmax fy_argmax 28 0 0 0 0 64 4
argmax fy_argmax_join 0 0 0 0 0 64 -
transpose fy_transpose 0 0 0 0 0 80 -
softmax_long fy_softmax_parts_f32 12 0 48 0 0 80 4
softmax_long fy_softmax_parts_f64 4 0 48 0 0 80 4
softmax_long fy_softmax_join_f32 8 3 96 0 0 64 2
softmax_long fy_softmax_join_f64 4 1 64 0 0 64 2
reduce fy_reduce_int 3 0 0
random fy_dropout 3 3 32 0 0 80 -
loss fy_class_loss_f32 4 0 16 0 0 128 4
loss fy_class_loss_backward_f32 4 2 16
loss fy_mse_loss_backward_f32 4 2 0
loss fy_mse_loss_backward_f64 2 1 0
norm fy_batch_norm_parts_f32 24 0 64 0 0 128 4
norm fy_batch_norm_parts_f64 8 0 0 0 0 80 4
norm fy_batch_norm_apply_f32 24 9 0 0 0 128 3
norm fy_batch_norm_apply_f64 8 3 40 0 0 80 3
row_norm fy_row_norm_f32 72 24 64 0 0 128 4
row_norm fy_row_norm_f64 24 8 0 0 0 128 4
row_norm fy_row_norm_parts_f32 12 0 0 0 0 128 4
row_norm fy_row_norm_parts_f64 4 0 40 0 0 80 4
pool fy_pool2d_f32 4 2 32 0 0 80 -
pool fy_pool2d_f64 2 1 0 0 0 80 -
pool fy_pool2d_tiles_f32 12 3 0 0 0 80 -
pool fy_pool2d_tiles_f64 4 1 0 0 0 80 -'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nfailed=0
finding() {
    echo "FAIL $*"
    nfailed=$((nfailed + 1))
}
while read -r module; do
    "$cuobjdump" -sass "$fatbins/$module.fatbin" >"$work/sass"
    "$cuobjdump" -res-usage "$fatbins/$module.fatbin" >"$work/usage" 2>&1
    grep -q 'Function : ' "$work/sass" || { echo "no machine code in $module.fatbin"; exit 1; }
    # The least over all architectures of the build. A file begins each with its own list of
    # functions.
    awk '
        /Function : /   { kernel = $3; seen[kernel] = 1; n = ++copies[kernel]; loads[kernel, n] = stores[kernel, n] = generic[kernel, n] = matrices[kernel, n] = products[kernel, n] = 0
                          line = head = tail = flight[kernel, n] = 0 }
        /^ +\/\*[0-9a-f]+\*\/ / { line++ }
        /LDG(STS)?\.E(\.BYPASS)?\.128/     { loads[kernel, n]++; at[head++] = line
                          while (line - at[tail] >= 48) tail++
                          if (head - tail > flight[kernel, n]) flight[kernel, n] = head - tail }
        /STG\.E\.128/     { stores[kernel, n]++ }
        / (LD|ST)\.E/     { generic[kernel, n]++ }
        / LDSM\./         { matrices[kernel, n]++ }
        / HMMA\./         { products[kernel, n]++ }
        END {
            for (kernel in seen)
                for (n = 1; n <= copies[kernel]; n++) print kernel, loads[kernel, n], stores[kernel, n], generic[kernel, n], matrices[kernel, n], products[kernel, n], flight[kernel, n]
        }' "$work/sass" >"$work/counts"
    awk '/Function /  { kernel = $2; sub(":", "", kernel) }
         /REG:/       { match($0, /STACK:[0-9]+/); stack = substr($0, RSTART + 6, RLENGTH - 6)
                        match($0, /REG:[0-9]+/); print kernel, stack, substr($0, RSTART + 4, RLENGTH - 4) }' "$work/usage" >"$work/stacks"
    while read -r of kernel loads stores stack matrices products registers flight; do
        registers=${registers:--} flight=${flight:--}
        [ "$of" = "$module" ] || continue
        if ! grep -q "^$kernel " "$work/counts" || ! grep -q "^$kernel " "$work/stacks"; then
            finding "$kernel: not in $module.fatbin"
            continue
        fi
        while read -r _ has_loads has_stores has_generic has_matrices has_products has_flight; do
            if [ "$has_loads" -lt "$loads" ] || [ "$has_stores" -lt "$stores" ] || [ "$has_generic" -gt 0 ]; then
                finding "$kernel: $has_loads loads and $has_stores stores of 16 bytes, $has_generic generic accesses; expected at least $loads and $stores, and none"
            fi
            if [ "$has_matrices" -lt "${matrices:-0}" ] || [ "$has_products" -lt "${products:-0}" ]; then
                finding "$kernel: $has_matrices LDSM and $has_products HMMA; expected at least $matrices and $products"
            fi
            if [ "$flight" != - ] && [ "$has_flight" -lt "$flight" ]; then
                finding "$kernel: $has_flight loads of 16 bytes among 48 instructions, at least $flight expected"
            fi
        done < <(grep "^$kernel " "$work/counts")
        while read -r _ has_stack has_registers; do
            if [ "$has_stack" -gt "$stack" ]; then
                finding "$kernel: $has_stack bytes of stack, at most $stack expected"
            fi
            if [ "$registers" != - ] && [ "$has_registers" -gt "$registers" ]; then
                finding "$kernel: $has_registers registers, at most $registers expected"
            fi
        done < <(grep "^$kernel " "$work/stacks")
    done <<<"$expected"
done < <(cut -d' ' -f1 <<<"$expected" | sort -u)
# Every kernel that is made for f16 or bf16 alone, of products and convolutions, is on the list with
# HMMA. Other products of these dtypes are cuBLASLt's, with CUBLAS_COMPUTE_32F: fake_lt.c takes
# nothing else.
nhalves=0
for fatbin in "$fatbins"/{conv,matmul,attention}*.fatbin; do
    while read -r kernel; do
        nhalves=$((nhalves + 1))
        awk -v kernel="$kernel" '$2 == kernel && $7 > 0 { found = 1 } END { exit !found }' <<<"$expected" && continue
        finding "$kernel: a kernel of half precision that is not on the list, with HMMA"
    done < <("$cuobjdump" -sass "$fatbin" | sed -n 's/.*Function : \(fy_[a-z0-9_]*_b\?f16\)$/\1/p' | sort -u)
done
if [ $nhalves -lt 2 ]; then finding "$nhalves kernels of half precision were found"; fi
echo "$(wc -l <<<"$expected") kernels looked at, $nfailed findings"
[ "$nfailed" -eq 0 ]
