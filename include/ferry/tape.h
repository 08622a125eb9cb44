/* The tape: gradients by replaying backwards what a thread has called. Reverse-mode differentiation
 * as in Griewank and Walther, "Evaluating Derivatives" (2008), chapter 3: each recorded call has a
 * rule that turns the gradient of its results into those of its sources.
 * Next: docs/gradients.md. */
#ifndef FERRY_TAPE_H_
#define FERRY_TAPE_H_

#include <ferry/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tape belongs to the innermost scope, or to you; it is used by one thread at a time. */
FY_API_STATUS fy_tape_create(fy_tape_t **out_tape);
/* Gives back the record and what it has saved. Gradients that were asked for, and places that were
 * given, stay. NULL is ignored. */
FY_API void fy_tape_destroy(fy_tape_t *tape);
/* Takes the handle out of its scope: it is yours to destroy. */
FY_API void fy_tape_keep(fy_tape_t *tape);

/* Wants d loss / d tensor. Watched before fy_tape_begin, `tensor` is watched in every record of the
 * tape until the tape goes (parameters);
 * watched while the tape records, in that record only. `grad` says where the gradient goes: a dense
 * tensor of the same device, dtype and shape, a view of a flat arena for instance; NULL: a new
 * tensor. Nothing is written before backward; the first write of a backward assigns, later ones
 * add, so nothing needs to be zeroed. A tensor is watched by one tape, the last that asked;
 * watching it again changes `grad`.
 * Views made of `tensor` before the begin are other tensors: watch what you use. Both tensors'
 * bytes live at least as long as the watch.
 * Fails: INVALID_ARGUMENT, DTYPE_MISMATCH (no float), SHAPE_MISMATCH, DEVICE_MISMATCH,
 * OUT_OF_MEMORY. */
FY_API_STATUS fy_tape_watch(fy_tape_t *tape, fy_tensor_t *tensor, fy_tensor_t *grad);

/* From now on this thread's calls that depend on a watched tensor are recorded, until
 * fy_tape_backward or the end of the innermost scope; the record stays until backward, the next
 * begin or the end of the tape. What calls further back need (their sources or results, as each
 * rule says) is kept alive. tape NULL: records nothing until the end of the innermost scope
 * (validation, metrics): nothing is saved.
 * While one tape records, another begin interrupts it until the end of the scope in which it was
 * called.
 * Inside: a call without a gradient rule that depends on a watched tensor is refused (UNSUPPORTED),
 * and so is writing to a watched tensor (BUSY). Whole numbers and comparisons have no gradient:
 * what depends on them only is constant. */
FY_API_STATUS fy_tape_begin(fy_tape_t *tape);

typedef struct fy_backward_options {
    size_t struct_size;
    /* d result / d loss, of loss's shape; NULL: 1, and then loss has one element. A loss scale goes
     * here */
    const fy_tensor_t *seed;
    /* 1: gradients that watched tensors have from an earlier backward are added to, not assigned
     * anew */
    int accumulate;
} fy_backward_options_t;
#define FY_BACKWARD_OPTIONS_INIT                                 \
    {                                                            \
        sizeof(fy_backward_options_t), (const fy_tensor_t *)0, 0 \
    }

/* Ends the recording and goes through it backwards, dropping what was saved and each gradient in
 * between as it goes. Light requests only: waits for nothing. Afterwards the record is empty.
 * options may be NULL.
 * Fails: INVALID_ARGUMENT (nothing recorded leads to `loss`), SHAPE_MISMATCH (loss is not one
 * element and there is no seed), BUSY (bytes that the record needs were written since: names them),
 * OUT_OF_MEMORY and others as the calls. Gradients are then incomplete; the record is gone. */
FY_API_STATUS fy_tape_backward(fy_tape_t *tape, const fy_tensor_t *loss,
                               const fy_backward_options_t *options);
/* The gradient of a watched tensor after backward: a handle of your own, in the current scope, on
 * the same bytes. *out_grad is NULL if the loss did not depend on it. Fails: INVALID_ARGUMENT (not
 * watched by this tape). */
FY_API_STATUS fy_tape_grad(const fy_tape_t *tape, const fy_tensor_t *tensor,
                           fy_tensor_t **out_grad);

typedef struct fy_tape_info {
    size_t struct_size;
    uint64_t calls;   /* recorded and not yet gone through */
    uint64_t saved;   /* tensors that it keeps for that */
    uint64_t watched; /* tensors */
    int is_recording; /* on the thread that asks */
} fy_tape_info_t;
#define FY_TAPE_INFO_INIT                  \
    {                                      \
        sizeof(fy_tape_info_t), 0, 0, 0, 0 \
    }
FY_API_STATUS fy_tape_query(const fy_tape_t *tape, fy_tape_info_t *out_info);

/* ---- checking gradients ---- */

/* Computes *out_result from the `count` tensors in `inputs`, by calls with gradients, the same way
 * each time. */
typedef fy_status_t (*fy_gradcheck_fn)(void *user, size_t count, fy_tensor_t *const *inputs,
                                       fy_tensor_t **out_result);

typedef struct fy_gradcheck_options {
    size_t struct_size;
    double step;       /* each element is moved by this much, up and down */
    double atol, rtol; /* |tape - numeric| <= atol + rtol |numeric| */
    int64_t seed;      /* of the direction in which a result with several elements is looked at */
} fy_gradcheck_options_t;
#define FY_GRADCHECK_OPTIONS_INIT                           \
    {                                                       \
        sizeof(fy_gradcheck_options_t), 1e-6, 1e-5, 1e-4, 1 \
    }

typedef struct fy_gradcheck_result {
    size_t struct_size;
    uint64_t checked; /* elements */
    double worst;     /* largest |tape - numeric| - rtol |numeric| */
    size_t input;     /* where that is */
    uint64_t element; /* row-major */
    double tape, numeric;
} fy_gradcheck_result_t;
#define FY_GRADCHECK_RESULT_INIT                        \
    {                                                   \
        sizeof(fy_gradcheck_result_t), 0, 0, 0, 0, 0, 0 \
    }

/* Compares the tape's gradients of `fn` with central differences, element by element; inputs are
 * f64, in any layout that can be written, and are as before afterwards. For tests: it blocks, and
 * downloads twice an element. options may be NULL. Fails: BAD_VALUE (they differ: says where and by
 * how much; *out_result is filled), INVALID_ARGUMENT, as fn does. */
FY_API_STATUS fy_gradcheck(fy_gradcheck_fn fn, void *user, size_t count, fy_tensor_t *const *inputs,
                           const fy_gradcheck_options_t *options,
                           fy_gradcheck_result_t *out_result);

#ifdef __cplusplus
}
#endif
#endif
