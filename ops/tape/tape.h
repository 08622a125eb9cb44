/* The internals of a tape. `calls` has the calls in order; `values` (of this record) and `leaves`
 * (watched permanently) have a slot for each tensor with a gradient. A tensor has the number of its
 * slot, so there is no search and no lock; other tapes search by that number.
 * tape.c: handles, watching, beginning · record.c: the record of a call · written.c: writes that
 * other handles would not know of · backward.c: the backward
 * pass · recompute.c: functions that run again in it · remake.c: cheap ops that do · offload.c:
 * saved bytes on the host · attach.c: results from elsewhere · rules_*.c: one rule per op;
 * rules_registered.c: the rules of users. */
#ifndef FERRY_OPS_TAPE_TAPE_H_
#define FERRY_OPS_TAPE_TAPE_H_

#include <ferry/ops.h>
#include <ferry/tape.h>

#include "ops/tape/rules.h"
#include "runtime/base/fail.h"
#include "runtime/record/recording.h"
#include "runtime/record/tape.h"
#include "runtime/tensor/tensor.h"

/* In an operand's `value`: among the leaves, not this record's values. */
#define FY__TAPE_LEAF (1u << 31)

/* A watched tensor (leaf), or a float result of a recorded call. */
typedef struct fy__tape_slot {
    fy_device_t *device;
    const fy__storage_t *storage; /* with its bytes; only to compare */
    uint8_t dtype, rank;
    bool is_leaf;
    bool is_present; /* `grad` has a gradient of this backward */
    bool is_shared;  /* another tensor's bytes, or a view that repeats them: must not be written */
    bool is_kept;    /* a call has saved it */
    uint32_t maker;  /* 1 + the number of the call that makes it again; 0: none */
    uint32_t parcel; /* 1 + the number of the last parcel with its bytes; 0: none */
    int64_t dims[FY_MAX_RANK];
    uint64_t version;    /* of its bytes when they were first used; FY__TAPE_UNUSED before */
    fy_tensor_t *grad;   /* ours, in no scope */
    fy_tensor_t *place;  /* leaves: where it goes, or NULL */
    fy_tensor_t *tensor; /* leaves: what is watched */
    /* leaves: its cast in this record, ours, in no scope; NULL: none. Made inside `low_again` */
    fy_tensor_t *low;
    const struct fy__tape_again *low_again;
    /* a view of one of the tape's copies, and the recording that keeps that copy; NULL: none */
    bool low_is_copy;
    const struct fy__recording *low_recording;
} fy__tape_slot_t;
#define FY__TAPE_UNUSED UINT64_MAX

/* Of a recorded call. */
typedef struct fy__tape_operand {
    uint32_t value;     /* index + 1, with FY__TAPE_LEAF or without; 0: constant */
    fy_tensor_t *saved; /* ours, in no scope; NULL: the rule does not need it */
    uint32_t maker;     /* of a saved one without a storage: as the slot's, or */
    uint32_t parcel;    /* 1 + the number of the parcel that has its bytes; 0: none */
    bool is_for_maker;  /* not the rule needs it, but the call when it runs again */
    union {
        uint64_t version; /* of the saved bytes */
        int64_t extent;   /* rules that keep extents: the source's length along the axis */
    };
} fy__tape_operand_t;

typedef struct fy__tape_call {
    const fy__tape_rule_t *rule;
    const char *name;
    uint32_t first; /* of its operands: sources, then results */
    uint16_t nsrc, ndst;
    uint32_t attrs; /* where in tape->attrs */
    uint8_t depth;  /* with `row`: of the chain of calls that run again for this one, at least 1 */
    const struct fy__op_row *row; /* the op, if its result 0 is made again; else NULL */
    fy_tensor_t *made;            /* that result, once it is; ours, in no scope */
} fy__tape_call_t;

/* Bytes [begin, end) of a storage that recorded calls wrote; `version`: after the last of them. If
 * there are more ranges than these, the last one has the bytes between, too. */
enum { FY__TAPE_RANGES = 8 };
typedef struct fy__tape_range {
    const char *begin, *end;
    uint64_t version;
} fy__tape_range_t;
typedef struct fy__tape_written {
    fy__storage_t *storage; /* a reference: its bytes are no other tensor's meanwhile */
    uint32_t nranges;
    fy__tape_range_t ranges[FY__TAPE_RANGES];
} fy__tape_written_t;

/* A tensor whose `value` is another tape's: what it is on this tape, or 0. */
typedef struct fy__tape_alias {
    uint64_t shared;
    uint32_t value;
} fy__tape_alias_t;

/* Bytes on the host. */
typedef struct fy__tape_parcel fy__tape_parcel_t;

/* A recorded fy_tape_recompute; its address is the call's attributes. */
typedef struct fy__tape_again fy__tape_again_t;

struct fy_tape {
    fy__handle_t handle;
    uint32_t record, leaf_record; /* numbers: fy__tape_value */
    bool is_spent;                /* backward has gone through the record */
    bool is_running;              /* in a backward, which may call a registered op's rule */
    bool remakes;                 /* fy_tape_recompute_cheap */
    bool shares_places;           /* some watched tensors have their gradients in the same bytes */
    fy__tape_again_t *again;      /* the innermost one whose function runs; NULL: none */
    fy__tape_slot_t *leaves, *values;
    fy__tape_operand_t *operands;
    fy__tape_call_t *calls;
    unsigned char *attrs; /* structs, each at a multiple of 16 */
    fy__tape_parcel_t *parcels;
    uint32_t *segments; /* for each fy_tape_offload the number of calls before it */
    uint32_t nparcels, nsegments, parcels_room, segments_room;
    struct fy__tape_ready *ready; /* in a backward with `on_grad`; else NULL */
    uint32_t ahead;               /* segments whose bytes are to be uploaded */
    uint32_t nleaves, nvalues, noperands, ncalls, nattrs;
    uint32_t nlows;                /* slots with an autocast */
    fy__copy_t copies[FY__COPIES]; /* fy_autocast_keep */
    uint32_t ncopies;
    fy__tape_written_t *written; /* written.c */
    uint32_t nwritten, written_room;
    fy__tape_alias_t *aliases; /* by `shared` */
    uint32_t naliases, aliases_room;
    uint32_t given; /* of the next call: results that were there before, those from 31 on as one */
    uint32_t leaves_room, values_room, operands_room, calls_room, attrs_room;
};

/* BUSY if the tape runs backward: `what` was called by a registered op's rule. */
fy_status_t fy__tape_check_idle(const fy_tape_t *tape, const char *what);
/* Room for `more` elements behind the first `count`. OUT_OF_MEMORY: nothing changed. */
fy_status_t fy__tape_grow_slow(void **array, uint32_t *room, uint32_t count, uint32_t more,
                               size_t nbytes);
static inline fy_status_t fy__tape_grow(void **array, uint32_t *room, uint32_t count, uint32_t more,
                                        size_t nbytes)
{
    return FY_LIKELY(*room - count >= more) ? FY_STATUS_OK
                                            : fy__tape_grow_slow(array, room, count, more, nbytes);
}
static inline uint32_t fy__tape_find_own(const fy_tape_t *tape, const fy_tensor_t *tensor)
{
    const uint32_t record = (uint32_t)(tensor->value >> 32), index = (uint32_t)tensor->value;
    if (record == tape->record) return index;
    return index && record == tape->leaf_record ? index | FY__TAPE_LEAF : 0;
}
uint32_t fy__tape_find_shared(const fy_tape_t *tape, const fy_tensor_t *tensor);
/* What `tensor` is on `tape`, as an operand's value; 0: nothing. */
static inline uint32_t fy__tape_find(const fy_tape_t *tape, const fy_tensor_t *tensor)
{
    if (!tensor->valued) return 0;
    if (FY_UNLIKELY(tensor->valued == FY__VALUE_SHARED)) return fy__tape_find_shared(tape, tensor);
    return fy__tape_find_own(tape, tensor);
}
static inline fy_status_t fy__tape_alias_room(fy_tape_t *tape, const fy_tensor_t *tensor,
                                              uint32_t more)
{
    return tensor->valued ? fy__tape_grow((void **)&tape->aliases, &tape->aliases_room,
                                          tape->naliases, more, sizeof *tape->aliases)
                          : FY_STATUS_OK;
}
/* Makes it that, also if it has a value of another tape, which keeps it. fy__tape_alias_room went
 * well. */
void fy__tape_set(fy_tape_t *tape, fy_tensor_t *tensor, uint32_t value);
static inline fy__tape_slot_t *fy__tape_slot(const fy_tape_t *tape, uint32_t value)
{
    return value & FY__TAPE_LEAF ? &tape->leaves[(value & ~FY__TAPE_LEAF) - 1]
                                 : &tape->values[value - 1];
}
/* The i-th of all. */
static inline const fy__tape_slot_t *fy__tape_slot_at(const fy_tape_t *tape, uint32_t i)
{
    return i < tape->nleaves ? &tape->leaves[i] : &tape->values[i - tape->nleaves];
}
static inline bool fy__tape_is_float(uint8_t dtype)
{
    return FY_DTYPE_BIT(dtype) & FY__TAPE_FLOATS;
}

/* A handle on nothing yet, in no scope; NULL: no memory. Then a handle on the bytes of `tensor`. */
fy_tensor_t *fy__tape_blank(fy__thread_t *thread);
void fy__tape_point(fy_tensor_t *blank, const fy_tensor_t *tensor);
/* All of a handle but its name, and without a reference to the storage. */
void fy__tape_shape_as(fy_tensor_t *blank, const fy_tensor_t *tensor);
/* Gives either back. */
void fy__tape_free(fy__thread_t *thread, fy_tensor_t *held);
/* A new dense copy in no scope; after a failure *out_copy is unchanged. */
fy_status_t fy__tape_copy(fy__thread_t *thread, const fy_tensor_t *tensor, fy_tensor_t **out_copy);
/* A blank that points. */
fy_tensor_t *fy__tape_hold(fy__thread_t *thread, const fy_tensor_t *tensor);
/* Makes it a slot for gradients with the shape of `tensor`. */
static inline void fy__tape_slot_make(fy__tape_slot_t *slot, const fy_tensor_t *tensor)
{
    slot->device = tensor->storage->device;
    slot->storage = tensor->storage;
    slot->dtype = tensor->dtype;
    slot->rank = tensor->rank;
    slot->is_leaf = slot->is_present = slot->is_shared = slot->is_kept = false;
    slot->maker = slot->parcel = 0;
    for (int i = 0; i < tensor->rank; i++) slot->dims[i] = tensor->dims[i];
    slot->version = FY__TAPE_UNUSED;
    slot->grad = slot->place = slot->tensor = slot->low = NULL;
}
/* Frees what a call saved of an operand. */
void fy__tape_free_saved(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand);
/* Forgets the calls from `first` on, and what they saved. */
void fy__tape_forget_calls(fy__thread_t *thread, fy_tape_t *tape, uint32_t first);
/* Frees the autocasts of leaves that were made inside `again`; NULL: all. */
void fy__tape_forget_lows(fy__thread_t *thread, fy_tape_t *tape, const fy__tape_again_t *again);
/* No scope of this thread goes on recording it. */
void fy__tape_stop(fy__thread_t *thread, const fy_tape_t *tape);

/* ---- backward.c ---- */

/* Goes back through the calls from the last one to `first`, unless `status` is a failure, and
 * frees each. `frame`: where functions that run again make tensors. */
fy_status_t fy__tape_go_back(fy__thread_t *thread, fy_tape_t *tape, uint32_t first,
                             fy__frame_t *frame, fy_status_t status);

/* BUSY if an operand that the call saved was written since. */
fy_status_t fy__tape_check_saved(const fy__thread_t *thread, const fy__tape_call_t *call,
                                 const fy__tape_operand_t *operands);

/* ---- ready.c ---- */

/* Before the backward: the order in which gradients will be complete. */
fy_status_t fy__tape_ready_begin(fy_tape_t *tape, const fy_backward_options_t *options);
/* The backward has gone through the call: reports gradients. */
fy_status_t fy__tape_ready_after(fy__thread_t *thread, fy_tape_t *tape, uint32_t call,
                                 fy__frame_t *frame);
void fy__tape_ready_end(fy_tape_t *tape);

/* ---- remake.c ---- */

/* Saves a source whose value is set: its bytes, or how they are made. OUT_OF_MEMORY may leave a
 * saved handle, which fy__tape_given_up frees. */
fy_status_t fy__tape_save(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand,
                          const fy_tensor_t *tensor);
/* The same for a result for which there is a blank. */
void fy__tape_save_result(fy__tape_operand_t *result, uint32_t maker, const fy_tensor_t *tensor,
                          uint64_t version);
/* Before the next call: if it is cheap enough, sets its row and saves what running it again
 * takes. */
fy_status_t fy__tape_save_for_maker(fy__thread_t *thread, fy_tape_t *tape,
                                    const struct fy__op_row *row, size_t nsrc,
                                    const fy_tensor_t *const *src, size_t ndst,
                                    fy_tensor_t *const *dst);
/* A saved operand has a storage from now on. */
fy_status_t fy__tape_bring(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand);
void fy__tape_free_made(fy__thread_t *thread, fy__tape_call_t *call);

/* ---- offload.c ---- */

/* Before the call of number `index` goes back: uploads of the segment before its own. */
fy_status_t fy__tape_ahead(fy__thread_t *thread, fy_tape_t *tape, uint32_t index,
                           fy__frame_t *frame);
/* The storage that has the bytes of an operand in a parcel; the parcel's. */
fy_status_t fy__tape_unpack(fy__thread_t *thread, fy_tape_t *tape,
                            const fy__tape_operand_t *operand, fy__storage_t **out_storage);
/* The operand does not need its parcel any more. */
void fy__tape_leave_parcel(fy__thread_t *thread, fy_tape_t *tape, fy__tape_operand_t *operand);

/* ---- recompute.c ---- */

/* The rule of its calls, which only says what they are: fy__tape_run_again goes back through
 * them. */
extern const fy__tape_rule_t fy__tape_again_rule;
fy_status_t fy__tape_run_again(fy__thread_t *thread, fy_tape_t *tape, uint32_t index,
                               fy__frame_t *frame);
/* How many tensors the call keeps, and freeing them, if it is one of those. */
uint64_t fy__tape_again_saved(const fy_tape_t *tape, const fy__tape_call_t *call);
void fy__tape_again_free(fy__thread_t *thread, fy_tape_t *tape, const fy__tape_call_t *call);
/* UNSUPPORTED if a function that will run again updates `dst`, which is neither one of its states
 * nor made by it. */
fy_status_t fy__tape_check_state(const fy__thread_t *thread, const fy_tape_t *tape,
                                 const char *what, const fy_tensor_t *dst);
/* The functions that run now and will run again read `tensor`, a constant: unless they made it,
 * its bytes must be the same then. OUT_OF_MEMORY. */
fy_status_t fy__tape_read_again(const fy_tape_t *tape, const fy_tensor_t *tensor);

/* ---- written.c ---- */

/* BUSY if `tensor`, which has no value on the tape, has bytes that a recorded call wrote through
 * another handle; `what` reads them. */
fy_status_t fy__tape_check_other_slow(const fy_tape_t *tape, const char *what,
                                      const fy_tensor_t *tensor);
static inline fy_status_t fy__tape_check_other(const fy_tape_t *tape, const char *what,
                                               const fy_tensor_t *tensor)
{
    return FY_LIKELY(!tape->nwritten) ? FY_STATUS_OK
                                      : fy__tape_check_other_slow(tape, what, tensor);
}
/* Whether recorded calls wrote to bytes of `tensor`. */
bool fy__tape_is_written(const fy_tape_t *tape, const fy_tensor_t *tensor);
/* Room for `more` calls of fy__tape_wrote: a recorded call has written to `dst`. */
fy_status_t fy__tape_written_room(fy__thread_t *thread, fy_tape_t *tape, uint32_t more);
void fy__tape_wrote(fy_tape_t *tape, const fy_tensor_t *dst, uint64_t version);
/* A call that has no gradient has written to `dst`. */
void fy__tape_wrote_constant(fy__thread_t *thread, fy_tape_t *tape, const fy_tensor_t *dst);
void fy__tape_forget_written(fy__thread_t *thread, fy_tape_t *tape);

/* ---- attach.c ---- */

/* Frees the rule of the call, if fy_tape_attach made it. */
void fy__tape_attached_free(fy__tape_call_t *call);

/* ---- record.c ---- */

/* Room for one more call. */
fy_status_t fy__tape_make_room(fy_tape_t *tape, uint32_t noperands, uint32_t nvalues,
                               size_t attrs_nbytes);
/* The next call, whose attributes are copied; not counted yet. */
fy__tape_call_t *fy__tape_next_call(fy_tape_t *tape, const fy__tape_rule_t *rule, const char *name,
                                    const void *attrs, size_t attrs_nbytes);

/* BUSY if a source on the tape has other bytes than when the tape saw it first. */
fy_status_t fy__tape_check_unwritten(const fy__thread_t *thread, fy_tape_t *tape, const char *what,
                                     const fy_tensor_t *src, uint32_t value);

struct fy__op_row;
/* Before a call: checks that it may be recorded, makes room, and saves what it is going to write
 * over. *out_is_recorded: its results have gradients. Then one of: fy__tape_kept once it went well,
 * fy__tape_given_up. In between nothing else may be recorded. */
fy_status_t fy__tape_before(fy__thread_t *thread, fy_tape_t *tape, const struct fy__op_row *row,
                            size_t nsrc, const fy_tensor_t *const *src, const void *attrs,
                            size_t ndst, fy_tensor_t *const *dst, bool *out_is_recorded);
void fy__tape_kept(fy__thread_t *thread, fy_tape_t *tape, fy_tensor_t *const *dst);
void fy__tape_given_up(fy__thread_t *thread, fy_tape_t *tape);

#endif
