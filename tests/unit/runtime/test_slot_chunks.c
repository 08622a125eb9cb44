/* Chunks of slots from inside: their number is bounded and they are freed, a missing chunk is
 * reported, slots that other threads release are reused, a forked child finds them intact. Not
 * here: one slot (test_slot.c). */
#include "runtime/tensor/slot.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "runtime/base/asan.h"
#include "runtime/tensor/thread_cache.h"
#include "tests/support/harness.h"

static _Atomic bool refuse;
fy_status_t __real_fy__host_segment_alloc(uint64_t nbytes, void **out_address);
fy_status_t __wrap_fy__host_segment_alloc(uint64_t nbytes, void **out_address);
fy_status_t __wrap_fy__host_segment_alloc(uint64_t nbytes, void **out_address)
{
    if (!atomic_load(&refuse)) {
        const fy_status_t status = __real_fy__host_segment_alloc(nbytes, out_address);
        if (status == FY_STATUS_OK)
            memset(*out_address, 0xA5, nbytes); /* it can have old contents */
        return status;
    }
    *out_address = NULL;
    return FY_FAIL(OUT_OF_MEMORY, "a test gives no segment of %llu bytes",
                   (unsigned long long)nbytes);
}

enum { PER_CHUNK = (2 << 20) / sizeof(fy__tensor_slot_t), MANY = 12 * PER_CHUNK };
static char bytes[64];

static fy_tensor_t *make(int64_t nbytes) { return ts_bytes(fy_device_host(), nbytes); }

/* The tensor has a storage and no block. */
static fy_tensor_t *wrap(void)
{
    fy_tensor_t *tensor;
    ts_ok(fy_tensor_wrap(fy_device_host(), FY_DTYPE_U8, FY_DIMS(64), bytes, NULL, NULL, &tensor));
    return tensor;
}

static void trim(void) { ts_ok(fy_memory_trim(fy_device_host(), 0, NULL)); }

TS_TEST(chunks_come_and_go)
{
    if (FY__HAS_ASAN) skip();
    static fy_tensor_t *tensors[MANY];
    trim();
    const uint32_t before = fy__tensor_slot_chunks();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) tensors[i] = wrap();
        assert_in_range(fy__tensor_slot_chunks(), 12, before + 13);
        for (int i = 0; i < MANY; i++) fy_tensor_destroy(tensors[i]);
        /* The thread keeps fewer slots than a chunk has, possibly of several chunks. One idle chunk
         * stays. */
        assert_in_range(fy__tensor_slot_chunks(), 0, before + 5);
    }
    const uint64_t warm = fy__host_segments_warm();
    assert_true(warm > 0); /* freed chunks */
    trim();
    assert_int_equal(fy__host_segments_warm(), 0);
    assert_in_range(fy__tensor_slot_chunks(), 0, before);
}

TS_TEST(a_missing_chunk_is_reported_and_leaks_nothing)
{
    if (FY__HAS_ASAN) skip();
    static fy_tensor_t *tensors[MANY];
    fy_tensor_t *tensor = NULL;
    fy_status_t status = FY_STATUS_OK;
    int count = 0;
    const uint64_t live = ts_live(fy_device_host());
    atomic_store(&refuse, true);
    while (count < MANY) {
        status =
            fy_tensor_wrap(fy_device_host(), FY_DTYPE_U8, FY_DIMS(64), bytes, NULL, NULL, &tensor);
        if (status != FY_STATUS_OK) break;
        tensors[count++] = tensor;
    }
    assert_int_equal(status, FY_STATUS_OUT_OF_MEMORY);
    assert_null(tensor);
    ts_fails(fy_tensor_create(fy_device_host(), FY_DTYPE_U8, FY_DIMS(100000), &tensor),
             OUT_OF_MEMORY);
    atomic_store(&refuse, false);
    assert_int_equal(ts_live(fy_device_host()), live);
    tensor = make(100000);
    fy_tensor_destroy(tensor);
    while (count) fy_tensor_destroy(tensors[--count]);
}

/* ---- other threads ---- */

enum { PIPE = 64, PASSED = 60000 };
static fy_tensor_t *_Atomic pipe_of[PIPE];

static void *destroy_tensors(void *user)
{
    (void)user;
    for (int i = 0; i < PASSED; i++) {
        fy_tensor_t *tensor;
        while (!(tensor = atomic_exchange(&pipe_of[i % PIPE], NULL))) sched_yield();
        fy_tensor_destroy(tensor);
    }
    return NULL;
}

/* One thread creates, the other destroys: neither keeps slots that the other needs. */
TS_TEST(slots_released_by_another_thread_are_reused)
{
    trim();
    const uint32_t before = fy__tensor_slot_chunks();
    const pthread_t id = ts_thread(destroy_tensors, NULL);
    for (int i = 0; i < PASSED; i++) {
        fy_tensor_t *tensor = wrap(), *empty = NULL;
        while (!atomic_compare_exchange_weak(&pipe_of[i % PIPE], &empty, tensor)) {
            empty = NULL;
            sched_yield();
        }
    }
    pthread_join(id, NULL);
    assert_in_range(fy__tensor_slot_chunks(), 0,
                    before + 2); /* not 14, the number if each thread kept its slots */
    /* also frees the slots that the ended thread had cached */
    trim();
    assert_in_range(fy__tensor_slot_chunks(), 0, before);
}

static _Atomic bool stop;

static void *churn(void *user)
{
    fy_tensor_t **tensors = user;
    while (!atomic_load(&stop)) {
        for (int i = 0; i < PER_CHUNK; i++) tensors[i] = wrap();
        for (int i = 0; i < PER_CHUNK; i++) fy_tensor_destroy(tensors[i]);
    }
    return NULL;
}

TS_TEST(a_child_finds_the_chunks_intact)
{
    if (FY__HAS_ASAN)
        skip(); /* ASan's allocator may stay locked in the child of a process with threads */
    static fy_tensor_t *others[PER_CHUNK], *tensors[PER_CHUNK];
    atomic_store(&stop, false);
    const pthread_t id = ts_thread(churn, others);
    for (int round = 0; round < 20; round++) {
        const pid_t pid = ts_fork();
        if (pid == 0) {
            for (int i = 0; i < PER_CHUNK; i++)
                if (fy_tensor_wrap(fy_device_host(), FY_DTYPE_U8, FY_DIMS(64), bytes, NULL, NULL,
                                   &tensors[i]) != FY_STATUS_OK)
                    _exit(1);
            for (int i = 0; i < PER_CHUNK; i++) fy_tensor_destroy(tensors[i]);
            _exit(fy_memory_trim(fy_device_host(), 0, NULL) != FY_STATUS_OK);
        }
        ts_child_ends(pid);
    }
    atomic_store(&stop, true);
    pthread_join(id, NULL);
}
