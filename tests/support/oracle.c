/* Selects the oracle of an op and compares results with it.
 * Not here: the arithmetic (oracle_elementwise.c, oracle_reduce.c, oracle_loss.c, oracle_image.c),
 * the tolerance of an op (tests/ops/cases.def). */
#include "tests/support/oracle.h"

#include <math.h>

#include "tests/support/harness.h"

void ts_expected_make(ts_expected_t *expected, fy_dtype_t dtype, int rank, const int64_t *dims)
{
    ts_array_make(&expected->value, dtype, rank, dims);
    expected->scale = calloc(expected->value.nelem + 1, sizeof(double));
    assert_non_null(expected->scale);
}

void ts_expected_free(ts_expected_t *expected)
{
    ts_array_free(&expected->value);
    free(expected->scale);
    expected->scale = NULL;
}

void ts_unravel(uint64_t k, int rank, const int64_t *dims, int64_t *coords)
{
    for (int axis = rank - 1; axis >= 0; axis--) {
        coords[axis] = (int64_t)(k % (uint64_t)dims[axis]);
        k /= (uint64_t)dims[axis];
    }
}

uint64_t ts_broadcast_index(const ts_array_t *array, int rank, const int64_t *coords)
{
    uint64_t index = 0;
    for (int axis = 0; axis < array->rank; axis++) {
        int64_t c = array->dims[axis] == 1 ? 0 : coords[axis + rank - array->rank];
        index = index * (uint64_t)array->dims[axis] + (uint64_t)c;
    }
    return index;
}

bool ts_oracle(fy_op_t op, size_t nsrc, const ts_array_t *src, const void *attrs,
               const ts_array_t *before, ts_expected_t *out)
{
    return ts_oracle_elementwise(op, nsrc, src, attrs, before, out) ||
           ts_oracle_reduce(op, nsrc, src, attrs, out) ||
           ts_oracle_index(op, src, attrs, before, out) ||
           ts_oracle_loss(op, nsrc, src, attrs, out) || ts_oracle_image(op, nsrc, src, attrs, out);
}

/* Returns the allowed error of element k; 0: none. */
static double bound_of(const ts_expected_t *expected, uint64_t k, double slack)
{
    fy_dtype_t dtype = expected->value.dtype;
    double compute = slack * ts_unit_compute(dtype) * expected->scale[k];
    if (compute == 0.0) return 0.0;
    return 1.0001 * (compute + ts_unit(dtype) * fabs(expected->value.f[k])) + ts_tiny(dtype);
}

static bool element_is_right(const ts_expected_t *expected, const ts_array_t *got, uint64_t k,
                             double bound)
{
    if (!expected->value.f) return got->i[k] == expected->value.i[k];
    double want = ts_round(expected->value.dtype, expected->value.f[k]), value = got->f[k];
    if (isnan(want) || isnan(value)) return isnan(want) && isnan(value);
    if (want == value) return true;
    /* overflow on the last step: the largest finite value is accepted too */
    if (isinf(want) && bound > 0) {
        return ts_round(expected->value.dtype,
                        value + copysign(bound + fabs(value) * 4 * ts_unit(got->dtype), want)) ==
               want;
    }
    return bound > 0 && fabs(value - expected->value.f[k]) <= bound;
}

bool ts_compare(const ts_expected_t *expected, const ts_array_t *got, double slack,
                const char *what)
{
    const ts_array_t *want = &expected->value;
    bool same_shape = want->dtype == got->dtype && want->rank == got->rank &&
                      want->nelem == got->nelem;
    for (int axis = 0; same_shape && axis < want->rank; axis++)
        same_shape = want->dims[axis] == got->dims[axis];
    if (!same_shape) {
        print_error(
            "%s: got %s rank %d, %llu elements; want %s rank %d, %llu elements, or other dims\n",
            what, fy_dtype_name(got->dtype), got->rank, (unsigned long long)got->nelem,
            fy_dtype_name(want->dtype), want->rank, (unsigned long long)want->nelem);
        return false;
    }
    uint64_t nwrong = 0;
    for (uint64_t k = 0; k < want->nelem; k++) {
        double bound = want->f ? bound_of(expected, k, slack) : 0.0;
        if (element_is_right(expected, got, k, bound)) continue;
        if (nwrong++ == 0) {
            int64_t coords[FY_MAX_RANK];
            ts_unravel(k, want->rank, want->dims, coords);
            print_error("%s: element %llu [", what, (unsigned long long)k);
            for (int axis = 0; axis < want->rank; axis++)
                print_error("%s%lld", axis ? "," : "", (long long)coords[axis]);
            print_error("] %s: got %.17g, want %.17g, bound %.3g\n", fy_dtype_name(want->dtype),
                        ts_array_get(got, k),
                        want->f ? ts_round(want->dtype, want->f[k]) : (double)want->i[k], bound);
        }
    }
    if (nwrong)
        print_error("%s: %llu of %llu elements are wrong\n", what, (unsigned long long)nwrong,
                    (unsigned long long)want->nelem);
    return nwrong == 0;
}

bool ts_same(const ts_array_t *a, const ts_array_t *b, const char *what)
{
    if (a->dtype != b->dtype || a->nelem != b->nelem) {
        print_error("%s: %s x %llu against %s x %llu\n", what, fy_dtype_name(a->dtype),
                    (unsigned long long)a->nelem, fy_dtype_name(b->dtype),
                    (unsigned long long)b->nelem);
        return false;
    }
    for (uint64_t k = 0; k < a->nelem; k++) {
        bool same = a->f ? (isnan(a->f[k]) && isnan(b->f[k])) ||
                               memcmp(&a->f[k], &b->f[k], sizeof(double)) == 0
                         : a->i[k] == b->i[k];
        if (!same) {
            print_error("%s: element %llu of %llu: %.17g against %.17g\n", what,
                        (unsigned long long)k, (unsigned long long)a->nelem, ts_array_get(a, k),
                        ts_array_get(b, k));
            return false;
        }
    }
    return true;
}
