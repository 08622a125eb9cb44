/* The signatures of this process: a table of chains. A chain only grows, at its head, so readers
 * take no lock. */
#include "runtime/record/signature.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1 << 12, WORDS_MOST = FY__SIGNATURE_OPERANDS * (1 + 2 * FY_MAX_RANK) };

static fy__signature_t *_Atomic buckets[BUCKETS];
pthread_mutex_t fy__signature_lock = PTHREAD_MUTEX_INITIALIZER; /* guards additions; a leaf lock */
static uint32_t last_id;

/* The first word of an operand: its dtype, its rank, and whether strides follow its dims. */
static int64_t first_word(int dtype, int rank, bool strided)
{
    return dtype | rank << 8 | strided << 16;
}

static bool is_dense(const fy_desc_t *desc)
{
    int64_t stride = 1;
    for (int i = desc->rank - 1; i >= 0; i--) {
        if (desc->dims[i] != 1 && desc->strides[i] != stride) return false;
        stride *= desc->dims[i];
    }
    return true;
}

static int64_t *put_operands(int64_t *words, const fy_desc_t *descs, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const fy_desc_t *desc = &descs[i];
        const bool strided = !is_dense(desc);
        *words++ = first_word(desc->dtype, desc->rank, strided);
        for (int axis = 0; axis < desc->rank; axis++) *words++ = desc->dims[axis];
        for (int axis = 0; strided && axis < desc->rank; axis++) *words++ = desc->strides[axis];
    }
    return words;
}

const int64_t *fy__signature_next(const int64_t *words, fy__signature_operand_t *out_operand)
{
    const int rank = (int)(*words >> 8 & 0xff);
    const bool strided = *words >> 16 & 1;
    *out_operand = (fy__signature_operand_t){ (fy_dtype_t)(*words & 0xff), rank, words + 1,
                                              strided ? words + 1 + rank : NULL };
    return words + 1 + rank + (strided ? rank : 0);
}

static const fy__signature_t *find(const fy__signature_t *from, const fy__signature_t *wanted,
                                   const int64_t *words)
{
    for (; from; from = from->next)
        if (from->hash == wanted->hash && from->info == wanted->info &&
            from->nsrc == wanted->nsrc && from->count == wanted->count &&
            memcmp(from->words, words, wanted->count * sizeof *words) == 0)
            return from;
    return NULL;
}

/* Makes one unless another thread has just made the same. */
static const fy__signature_t *add(const fy__signature_t *wanted, const int64_t *words)
{
    fy__signature_t *_Atomic *bucket = &buckets[wanted->hash % BUCKETS];
    pthread_mutex_lock(&fy__signature_lock);
    const fy__signature_t *found =
        find(atomic_load_explicit(bucket, memory_order_relaxed), wanted, words);
    fy__signature_t *made = NULL;
    if (!found && last_id < FY__SIGNATURES - 1)
        made = malloc(sizeof *made + wanted->count * sizeof *words);
    if (made) {
        *made = *wanted;
        memcpy(made->words, words, wanted->count * sizeof *words);
        made->id = ++last_id;
        made->next = atomic_load_explicit(bucket, memory_order_relaxed);
        atomic_store_explicit(bucket, made, memory_order_release);
        found = made;
    }
    pthread_mutex_unlock(&fy__signature_lock);
    return found;
}

const fy__signature_t *fy__signature_of(const fy_op_info_t *info, const fy_launch_t *launch)
{
    int64_t words[WORDS_MOST];
    if (launch->nsrc + launch->ndst > FY__SIGNATURE_OPERANDS) return NULL;
    const int64_t *end = put_operands(words, launch->src, launch->nsrc);
    end = put_operands(words + (end - words), launch->dst, launch->ndst);
    fy__signature_t wanted = { .info = info,
                               .hash = launch->op,
                               .nsrc = launch->nsrc,
                               .ndst = launch->ndst,
                               .count = (uint32_t)(end - words) };
    for (const int64_t *word = words; word < end; word++) {
        wanted.hash = (wanted.hash ^ (uint64_t)*word) * UINT64_C(0x9E3779B97F4A7C15);
        wanted.hash ^= wanted.hash >> 29;
    }
    const fy__signature_t *found =
        find(atomic_load_explicit(&buckets[wanted.hash % BUCKETS], memory_order_acquire), &wanted,
             words);
    return found ? found : add(&wanted, words);
}
