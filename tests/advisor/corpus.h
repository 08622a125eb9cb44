/* Programs for the tests of `ferry advise`: three clean ones, each in three sizes, and kinds of
 * waste that can be planted in each. All run on a simulated device that computes nothing.
 * Not here: what the advisor must say of them (test_advise.sh). Next: waste.h. */
#ifndef FERRY_TESTS_ADVISOR_CORPUS_H_
#define FERRY_TESTS_ADVISOR_CORPUS_H_

#include <ferry/ferry.h>

#include "tests/advisor/waste.h"

enum { STEPS = 12, LATE = 4, WIDTH = 1024, VARIANTS = 3 };

/* Results that are read some steps after their request, oldest first. */
typedef struct late_reads {
    fy_download_t *replies[LATE];
    int asked, read;
} late_reads_t;

typedef struct corpus {
    fy_device_t *device;
    waste_t waste;
    waste_t also; /* a second plant; none if it is clean. One that waste_in_step has */
    int variant;  /* 0, 1, 2: larger */
    late_reads_t results;
} corpus_t;

/* The programs: gradient descent on resident data; batches that stream through two buffers;
 * answers to requests by resident weights. */
fy_status_t corpus_train(corpus_t *corpus);
fy_status_t corpus_stream(corpus_t *corpus);
fy_status_t corpus_infer(corpus_t *corpus);

/* Requests `result` and reads those of LATE - 1 steps ago. With a planted scalar or blocking read
 * it waits at once instead. */
fy_status_t corpus_read(corpus_t *corpus, fy_tensor_t *result);
/* Reads the remaining downloads, after a wait for the device. */
fy_status_t corpus_read_rest(corpus_t *corpus);
/* Uploads `count` matrices [WIDTH, WIDTH] once. */
fy_status_t corpus_weights(corpus_t *corpus, int count, fy_tensor_t **out_weights);

#endif
