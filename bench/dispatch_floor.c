/* The price of one light request at its smallest: N adds of two 4-element f32 tensors on the host, each with a new result.
 * N is the argument, so that two runs under an instruction counter give instructions per add by difference (instructions.sh).
 * Not here: comparisons (peers_torch.cpp, `ferry bench dispatch`). */
#include <ferry/ferry.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static fy_status_t add_many(fy_tensor_t *a, fy_tensor_t *b, long count)
{
    for (long i = 0; i < count; i++) {
        fy_tensor_t *sum;
        FY_TRY(fy_add(a, b, &sum));
        fy_tensor_destroy(sum);
    }
    return FY_STATUS_OK;
}

static fy_status_t run(long count, double *out_ns)
{
    fy_tensor_t *a, *b;
    struct timespec begin, end;
    FY_TRY(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 1, &a));
    FY_TRY(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(4), 2, &b));
    FY_TRY(add_many(a, b, 1000)); /* warm: free lists are filled, symbols are bound */
    clock_gettime(CLOCK_MONOTONIC, &begin);
    FY_TRY(add_many(a, b, count));
    clock_gettime(CLOCK_MONOTONIC, &end);
    *out_ns = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    return FY_STATUS_OK;
}

int main(int argc, char **argv)
{
    char *rest;
    long count = argc > 1 ? strtol(argv[1], &rest, 10) : 1000000;
    if (argc > 2 || count < 0 || (argc > 1 && *rest)) {
        fprintf(stderr, "usage: %s [ADDS]\n", argv[0]);
        return 2;
    }
    double ns = 0;
    fy_scope_t scope = fy_scope_begin("dispatch_floor");
    fy_status_t status = run(count, &ns);
    fy_scope_end(scope, 0, NULL);
    if (status != FY_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", fy_status_name(status), fy_error_get()->text);
        return 1;
    }
    if (count) printf("%ld adds of f32[4], each with a new result: %.1f ns per add\n", count, ns / (double)count);
    return 0;
}
