/* The set of noted shapes: open addressing over hashes, filled by compare-and-swap, emptied by
 * tests only. Two shapes with the same 64-bit hash would share one line of the log, which is
 * harmless. */
#include "backends/kernels/slow_path.h"

enum { SLOTS = 2 * FY__SLOW_PATH_MOST };

static uint64_t noted[SLOTS]; /* atomic accesses only; 0: free */
static uint64_t nnoted;       /* atomic accesses only */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t nbytes)
{
    const unsigned char *byte = (const unsigned char *)bytes;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ byte[i]) * 0x100000001b3u; /* FNV-1a */
    return hash;
}

/* 1: `hash` is new and was added. A full table adds nothing. */
static int add(uint64_t hash)
{
    for (uint64_t i = 0; i < SLOTS; i++) {
        uint64_t *slot = &noted[(hash + i) % SLOTS], seen = 0;
        if (__atomic_compare_exchange_n(slot, &seen, hash, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return 1;
        if (seen == hash) return 0;
    }
    return 0;
}

int fy__slow_path_is_new(const fy_host_api_t *host, const fy__conv_shape_t *shape)
{
    const uint64_t hash = hash_bytes(0xcbf29ce484222325u, shape, sizeof *shape) | 1u;
    if (__atomic_load_n(&nnoted, __ATOMIC_RELAXED) > FY__SLOW_PATH_MOST || !add(hash)) return 0;
    const uint64_t n = __atomic_fetch_add(&nnoted, 1, __ATOMIC_RELAXED);
    if (n == FY__SLOW_PATH_MOST)
        host->log(FY_LOG_WARNING,
                  "more shapes of conv2d run in plain loops; no further one is reported");
    return n < FY__SLOW_PATH_MOST;
}

void fy__slow_path_log(const fy_host_api_t *host, const fy__conv_shape_t *s, const char *reason)
{
    const char *name = s->op == FY_OP_CONV2D                  ? "conv2d"
                       : s->op == FY_OP_CONV2D_BACKWARD_INPUT ? "conv2d_backward_input"
                                                              : "conv2d_backward_weight";
    host->log(FY_LOG_WARNING,
              "%s %lldx%lld, %lld x [%lldx%lldx%lld] to [%lldx%lldx%lld], %lld groups, runs in "
              "plain loops, in measured trainings 6 to 12 times slower: %s",
              name, (long long)s->kh, (long long)s->kw, (long long)s->n, (long long)s->h,
              (long long)s->w, (long long)s->c, (long long)s->oh, (long long)s->ow, (long long)s->o,
              (long long)s->groups, reason);
}

void fy__slow_path_forget(void)
{
    for (int i = 0; i < SLOTS; i++) __atomic_store_n(&noted[i], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&nnoted, 0, __ATOMIC_RELAXED);
}
