/* Signatures: dtypes, shapes and strides of an op's operands, kept once for all calls that have the
 * same. An op event refers to one; the writer gives each a line. Not here: the line
 * (event_names.c). */
#ifndef FERRY_RUNTIME_SIGNATURE_H_
#define FERRY_RUNTIME_SIGNATURE_H_

#include <pthread.h>
#include <stdint.h>

#include <ferry/op.h>

/* Calls with more operands have no signature; after so many signatures no new one is made. */
enum { FY__SIGNATURE_OPERANDS = 16, FY__SIGNATURES = 1 << 16 };

typedef struct fy__signature {
    struct fy__signature *next; /* of the same bucket */
    const fy_op_info_t *info;
    uint64_t hash;
    uint32_t id; /* 1 .. FY__SIGNATURES - 1 */
    uint16_t nsrc, ndst;
    uint32_t count;
    int64_t words[]; /* `count`: see fy__signature_next */
} fy__signature_t;

/* The signature of a call. It is never freed. NULL: too many operands or signatures, or no memory.
 * Any thread, without a lock unless it is new. */
const fy__signature_t *fy__signature_of(const fy_op_info_t *info, const fy_launch_t *launch);

/* An operand of a signature; `strides` NULL: row-major without gaps. */
typedef struct fy__signature_operand {
    fy_dtype_t dtype;
    int rank;
    const int64_t *dims, *strides;
} fy__signature_operand_t;
/* Reads the operand that begins at `words`, sources first; returns where the next one begins. */
const int64_t *fy__signature_next(const int64_t *words, fy__signature_operand_t *out_operand);

/* Held over a fork. */
extern pthread_mutex_t fy__signature_lock;

#endif
