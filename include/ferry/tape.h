/* The tape: gradients by replaying a thread's calls backwards. Reverse-mode differentiation as in
 * Griewank and Walther, "Evaluating Derivatives" (2008), chapter 3: each recorded call has a rule
 * that turns the gradient of its results into the gradients of its sources.
 * Next: docs/gradients.md. */
#ifndef FERRY_TAPE_H_
#define FERRY_TAPE_H_

#include <ferry/op.h>
#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tape belongs to the innermost scope, or to you; it is used by one thread at a time. */
FY_API_STATUS fy_tape_create(fy_tape_t **out_tape);
/* Frees the record and the tensors it saved. Results of fy_tape_grad, and the `grad` tensors of
 * fy_tape_watch, stay. NULL is ignored. */
FY_API void fy_tape_destroy(fy_tape_t *tape);
/* Takes the handle out of its scope: it is yours to destroy. */
FY_API void fy_tape_keep(fy_tape_t *tape);

/* Requests d loss / d tensor. If the tape does not record now, this holds for all its later records
 * (parameters); if it records, for the current record only.
 * `grad` receives the gradient: dense, with tensor's device, dtype and shape, such as a view of one
 * large block, and for this tensor alone in a record. NULL: backward makes a tensor. Do not zero
 * it: a backward assigns, then adds.
 * Several tapes may watch a tensor, in one thread at a time while no other uses it. Both tensors'
 * bytes live as long as the watch.
 * A view counts as part of `tensor` only if it is made later, while the tape records.
 * Fails: INVALID_ARGUMENT (grad shares bytes with tensor), DTYPE_MISMATCH (not float),
 * SHAPE_MISMATCH (also a grad that is not dense), DEVICE_MISMATCH, OUT_OF_MEMORY. */
FY_API_STATUS fy_tape_watch(fy_tape_t *tape, fy_tensor_t *tensor, fy_tensor_t *grad);

/* Drops the tape's record and starts a new one: this thread's calls that depend on a watched tensor
 * are recorded until fy_tape_backward or the end of the innermost scope. The tensors that the
 * gradient rules need are kept until backward, the next begin, or destroy.
 * tape NULL: nothing is recorded until the innermost scope ends (validation, metrics).
 * If another tape records, it pauses until the innermost scope ends.
 * While recording, a call without a gradient rule that depends on a watched tensor is UNSUPPORTED,
 * and one that writes to a watched tensor is BUSY. So are uses of a tensor to which an upload or
 * another handle has written since its first use in the record. So are reads of bytes that a
 * recorded call wrote, through a handle that is neither the call's result nor a view made of that
 * since.
 * Results that depend on it only through integers or comparisons are constants. */
FY_API_STATUS fy_tape_begin(fy_tape_t *tape);

typedef struct fy_backward_options {
    size_t struct_size;
    /* d result / d loss, of loss's shape, for instance a loss scale; not in bytes of a gradient
     * that the backward writes. NULL: 1, and loss must have one element */
    const fy_tensor_t *seed;
    /* 1: adds to the gradients that watched tensors have from an earlier backward of this tape,
     * since they were watched last; 0: assigns */
    int accumulate;
    /* Called when the gradient of a parameter is complete, in the order in which the backward
     * completes them: no later request of the backward changes it. NULL: nothing. Parameters are
     * tensors that were watched while the tape did not record. Those used inside fy_tape_recompute
     * follow the first of its functions. The function makes light requests, and calls no tape; if
     * it fails, the backward does. Both tensors are valid during the call */
    fy_status_t (*on_grad)(void *user, const fy_tensor_t *tensor, fy_tensor_t *grad);
    void *user;
    /* Zeroed behind all refusals, before the first gradient is written. fy_model_backward sets it
     * itself. NULL: none */
    fy_tensor_t *clear;
} fy_backward_options_t;
#define FY_BACKWARD_OPTIONS_INIT FY_ZEROED_(backward_options)
FY_API void fy_backward_options_init(fy_backward_options_t *options, size_t nbytes);

/* Ends the recording and runs it backwards. Frees the saved tensors and intermediate gradients on
 * the way. Light requests only; waits for nothing. The record is then empty. options may be NULL.
 * Refused, and the tape records on: INVALID_ARGUMENT (no recorded call leads to `loss`),
 * SHAPE_MISMATCH (loss is not one element and there is no seed, or the seed is unlike it),
 * DEVICE_MISMATCH (of the seed), as fy_fill (of `clear`).
 * Fails, and the record is dropped and gradients are incomplete: BUSY (bytes that the record needs
 * were written since: names them), OUT_OF_MEMORY and others as the calls. */
FY_API_STATUS fy_tape_backward(fy_tape_t *tape, const fy_tensor_t *loss,
                               const fy_backward_options_t *options);
/* The gradient of a watched tensor after backward: a new handle, in the current scope, on the same
 * bytes. *out_grad is NULL if the loss did not depend on `tensor`. Fails: INVALID_ARGUMENT (not
 * watched by this tape). */
FY_API_STATUS fy_tape_grad(const fy_tape_t *tape, const fy_tensor_t *tensor,
                           fy_tensor_t **out_grad);

typedef struct fy_tape_info {
    size_t struct_size;
    uint64_t calls;   /* recorded and not yet run backwards */
    uint64_t saved;   /* tensors kept for the backward */
    uint64_t watched; /* tensors */
    int is_recording; /* on the calling thread */
} fy_tape_info_t;
#define FY_TAPE_INFO_INIT FY_ZEROED_(tape_info)
FY_API_STATUS fy_tape_query(const fy_tape_t *tape, fy_tape_info_t *out_info);

/* ---- results that the tape has not recorded ---- */

typedef struct fy_attach_options {
    size_t struct_size;
    const char *name; /* of the call, in texts of failures; copied; NULL: "attached" */
    /* Bit i: the tape saves input i until `backward` has run; bit 31: inputs 31 and later. Bit 0 of
     * saved_dsts: the result. A saved tensor must not be written in between (BUSY) */
    uint32_t saved_srcs, saved_dsts;
    /* called once, when `backward` will not be called again; NULL: nothing */
    void (*destroy)(void *user);
} fy_attach_options_t;
#define FY_ATTACH_OPTIONS_INIT FY_ZEROED_(attach_options)
FY_API void fy_attach_options_init(fy_attach_options_t *options, size_t nbytes);

/* Records `result` (float) as one call on the `count` tensors in `inputs`, with the gradient rule
 * `backward` (op.h; call->attrs is NULL). For results that a tape cannot record, such as those of
 * another library: compute them in an inner scope, after fy_tape_begin(NULL), and call this after
 * that scope has ended with the result.
 * Without a tape that records, or if no input depends on a watched tensor, nothing is recorded.
 * options->destroy frees `user`: at once if nothing is recorded or the call fails; not if options
 * are invalid (struct_size). options may be NULL.
 * Fails: INVALID_ARGUMENT (the tape has recorded `result`), DTYPE_MISMATCH (it is not float), BUSY
 * (it is watched; an input was written since the tape saw it), OUT_OF_MEMORY. */
FY_API_STATUS fy_tape_attach(fy_backward_fn backward, void *user, size_t count,
                             fy_tensor_t *const *inputs, fy_tensor_t *result,
                             const fy_attach_options_t *options);

/* ---- less memory for a second forward ---- */

/* Computes *out_result, a new tensor, from the `count` tensors in `inputs`, by ops and views. It
 * must do the same each time, and write to nothing but tensors that it makes and options->states.
 */
typedef fy_status_t (*fy_recompute_fn)(void *user, size_t count, fy_tensor_t *const *inputs,
                                       fy_tensor_t **out_result);

typedef struct fy_recompute_options {
    size_t struct_size;
    /* what fn updates: random generators, running statistics; the list is copied */
    size_t nstates;
    fy_tensor_t *const *states;
    /* called once, when fn will not be called again; NULL: nothing */
    void (*destroy)(void *user);
} fy_recompute_options_t;
#define FY_RECOMPUTE_OPTIONS_INIT FY_ZEROED_(recompute_options)
FY_API void fy_recompute_options_init(fy_recompute_options_t *options, size_t nbytes);

/* Activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016):
 * calls fn, and keeps its inputs and result, but nothing of what its gradients need. The backward
 * calls fn again, with `states` as they were before the first call, records that, and goes back
 * through it; then `states` are again as after the first call. So gradients have the same bits.
 * Calls can be nested. Without a tape that records, or if fn uses no watched tensor, only fn runs.
 * Each call copies every state, the backward twice more: light requests. fn does not watch, begin
 * or go back. inputs, states, and what else fn reads by ops, views and transfers keep their bytes
 * until the backward.
 * Takes over `user`, even when it fails. options may be NULL.
 * Fails: INVALID_ARGUMENT, UNSUPPORTED (a generator or a statistic that fn updates is not among
 * the states), OUT_OF_MEMORY, as fn; the backward: BUSY (an input or what else fn read was written
 * since), INVALID_ARGUMENT (the second result has another dtype or shape), as fn. */
FY_API_STATUS fy_tape_recompute(fy_recompute_fn fn, void *user, size_t count,
                                fy_tensor_t *const *inputs, const fy_recompute_options_t *options,
                                fy_tensor_t **out_result);

/* From the next call on, `is_on` 1: results of elementwise ops and norms are not kept for the
 * backward where the tape keeps their sources anyway; the backward makes them again, each once,
 * with the same bits. It costs these light requests, a second pass over about as many bytes as it
 * saves. 0, as in a new tape: they are kept. No op runs more than twice, but inside
 * fy_tape_recompute. A source of such an op must keep its bytes until the backward, as a saved one.
 * Fails: INVALID_ARGUMENT; the backward: OUT_OF_MEMORY, as the ops. */
FY_API_STATUS fy_tape_recompute_cheap(fy_tape_t *tape, int is_on);

/* Offloading: downloads to page-locked memory the tensors that the calls recorded since the last
 * offload keep, and frees them on the device. Not: small ones (under 4 KiB), watched tensors,
 * constants, inputs of fy_tape_recompute. The backward uploads them again, one segment ahead: same
 * bits. Heavy, in ledger scopes "offload": the backward waits for each download. Bytes that you
 * hold, too, stay. Nothing happens without a tape that records on this thread, inside
 * fy_tape_recompute, and on the host.
 * Fails, and nothing has changed: UNSUPPORTED (a graph is recorded), REFUSED_BY_GUARD,
 * PINNED_LIMIT, OUT_OF_MEMORY; the backward, too: its record is dropped. */
FY_API_STATUS fy_tape_offload(void);

/* ---- checking gradients ---- */

/* Computes *out_result from the `count` tensors in `inputs`, by calls with gradients. It must do
 * the same each time. */
typedef fy_status_t (*fy_gradcheck_fn)(void *user, size_t count, fy_tensor_t *const *inputs,
                                       fy_tensor_t **out_result);

typedef struct fy_gradcheck_options {
    size_t struct_size;
    double step;       /* each element is changed by this much, up and down */
    double atol, rtol; /* |tape - numeric| <= atol + rtol |numeric| */
    int64_t seed;      /* of the direction onto which a result with several elements is projected */
} fy_gradcheck_options_t;
#define FY_GRADCHECK_OPTIONS_INIT \
    FY_DEFAULTS_(gradcheck_options, .step = 1e-6, .atol = 1e-5, .rtol = 1e-4, .seed = 1)
FY_API void fy_gradcheck_options_init(fy_gradcheck_options_t *options, size_t nbytes);

typedef struct fy_gradcheck_result {
    size_t struct_size;
    uint64_t checked; /* elements */
    double worst;     /* largest |tape - numeric| - rtol |numeric| */
    size_t input;     /* the input of that element */
    uint64_t element; /* row-major */
    double tape, numeric;
} fy_gradcheck_result_t;
#define FY_GRADCHECK_RESULT_INIT FY_ZEROED_(gradcheck_result)

/* Compares the tape's gradients of `fn` with central differences, element by element. Inputs are
 * f64, in any writable layout, and are restored afterwards. For tests: it blocks, and downloads
 * twice for each element. options may be NULL.
 * Fails: BAD_VALUE (they differ: names the element and the difference; *out_result is filled),
 * INVALID_ARGUMENT, as fn. */
FY_API_STATUS fy_gradcheck(fy_gradcheck_fn fn, void *user, size_t count, fy_tensor_t *const *inputs,
                           const fy_gradcheck_options_t *options,
                           fy_gradcheck_result_t *out_result);

#ifdef __cplusplus
}
#endif
#endif
