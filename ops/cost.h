/* Cost rules: how many floating-point operations a launch does, and how many bytes it must touch at
 * least. The sim's clock and the MAC counts come from them. They run when the descriptors, nelem
 * and accumulate are final; they saturate, never overflow.
 * Which op has which rule: opset/ops.def. Not here: time (backends/sim). */
#ifndef FERRY_OPS_COST_H_
#define FERRY_OPS_COST_H_

#include <ferry/op.h>

/* An exp, log, tanh or pow counts as so many: about what a vector maths library spends on one. */
#define FY__FLOPS_TRANSCENDENTAL 4
/* A random number: its share of a Philox4x32-10 block, integer arithmetic counted as if it were
 * floating point. */
#define FY__FLOPS_RANDOM 32

/* Bytes of the elements that are really there: an axis with stride 0 repeats the same ones. */
uint64_t fy__cost_unique_nbytes(const fy_desc_t *desc);
/* 1 flop an element of dst[0]; each operand's bytes once */
void fy__cost_elementwise(fy_launch_t *launch);
void fy__cost_elementwise2(fy_launch_t *launch); /* 2 flops: a multiplication and an addition */
void fy__cost_transcendental(fy_launch_t *launch);
void fy__cost_random(fy_launch_t *launch);
void fy__cost_move(fy_launch_t *launch);          /* no flop */
void fy__cost_axpy(fy_launch_t *launch);          /* 2 flops; dst is read and written */
void fy__cost_reduce(fy_launch_t *launch);        /* 1 flop an element of src[0] */
void fy__cost_matmul(fy_launch_t *launch);        /* 2 * M * N * K a matrix */
void fy__cost_softmax(fy_launch_t *launch);       /* max, subtract, exp, add, divide */
void fy__cost_mse_loss(fy_launch_t *launch);      /* subtract, square, add */
void fy__cost_nll_loss(fy_launch_t *launch);      /* 1 flop a row, of which one element is read */
void fy__cost_cross_entropy(fy_launch_t *launch); /* as softmax, of the logits */
/* two flops an element of src0; its rows of dst are read and written */
void fy__cost_index_add(fy_launch_t *launch);
void fy__cost_gather(fy_launch_t *launch); /* the rows it reads, not the whole table */
void fy__cost_conv2d(
    /* 2 flops for each weight behind each element of y, padding not taken off; its gradients
     * alike */
    fy_launch_t *launch);
/* a flop for each place of the window of each element of y */
void fy__cost_pool2d(fy_launch_t *launch);
void fy__cost_pool2d_backward(fy_launch_t *launch); /* the same */
/* resize2d: four pixels for each pixel of the result, or of dy; pooling: each pixel once */
void fy__cost_resample2d(fy_launch_t *launch);
/* two products forward, five back, and a softmax; a causal mask halves them */
void fy__cost_attention(fy_launch_t *launch);
/* 2 * M * N * K, and one flop an element for each of bias and activation */
void fy__cost_linear(fy_launch_t *launch);
void fy__cost_linear_backward_params(fy_launch_t *launch); /* 2 * N * O * I, and the sum of dy */
/* normalisation: 8 flops an element; statistics that are updated are read and written */
void fy__cost_norm(fy_launch_t *launch);
/* 4 to 14 flops an element; what is updated is read and written */
void fy__cost_step(fy_launch_t *launch);

#endif
