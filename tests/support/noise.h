/* The byte at position i of a stream of noise. For tests that move bytes and do not depend on their
 * values. */
#ifndef FERRY_TESTS_SUPPORT_NOISE_H_
#define FERRY_TESTS_SUPPORT_NOISE_H_

#include "tests/support/harness.h"

static inline unsigned char ts_noise(uint64_t i)
{
    return (unsigned char)((i * 2654435761u + 12345) >> 13);
}

/* A host tensor of n bytes, noise from `seed` on. */
static inline fy_tensor_t *ts_noise_up(int64_t n, uint64_t seed)
{
    fy_tensor_t *host;
    void *data;
    ts_ok(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, FY_DIMS(n), &host));
    ts_ok(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (int64_t i = 0; i < n; i++) ((unsigned char *)data)[i] = ts_noise(seed + (uint64_t)i);
    return host;
}

static inline void ts_expect_noise(const fy_tensor_t *tensor, uint64_t seed)
{
    const uint64_t n = ts_info(tensor).nbytes;
    unsigned char *got = malloc(n + 1);
    assert_non_null(got);
    ts_read(tensor, got, n);
    for (uint64_t i = 0; i < n; i++)
        if (got[i] != ts_noise(seed + i)) {
            print_error("byte %llu of %llu is %d, want %d\n", (unsigned long long)i,
                        (unsigned long long)n, got[i], ts_noise(seed + i));
            fail();
        }
    free(got);
}

#endif
