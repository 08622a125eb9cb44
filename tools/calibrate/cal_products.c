/* How fast a device multiplies matrices, by dtype: the best of several sizes, each the median of
 * rounds.
 * Not here: everything else of a device (cal_device.c). */
#include <math.h>

#include "tools/calibrate/cal.h"

enum { NSIZES = 6, SMALLEST_GEMM = 256 /* each next size is twice that */ };
#define GEMM_MOST_NS  4e8 /* a product that takes longer than this is not tried */
#define MODEL_WALL_NS 3e8 /* on a model clock: what one product may cost this machine */

typedef struct product {
    fy_dtype_t dtype;
    const char *key;
    double per_s, spread; /* flops, of the best size */
    int64_t size;
} product_t;

static fy_status_t products(fy_tensor_t *a, fy_tensor_t *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        fy_tensor_t *c;
        FY_TRY(fy_matmul(a, b, &c));
        fy_tensor_destroy(c);
    }
    return FY_STATUS_OK;
}

static fy_status_t time_products(cal_t *cal, fy_tensor_t *a, fy_tensor_t *b, int64_t count,
                                 double *out_ns)
{
    double at[3];
    for (int i = 0; i < 2; i++) {
        FY_TRY(fy_device_wait(cal->device, FY_FOREVER));
        at[i] = cal_now_ns(cal);
        FY_TRY(products(a, b, count << i));
        FY_TRY(fy_device_wait(cal->device, FY_FOREVER));
        at[i] = cal_now_ns(cal) - at[i];
    }
    *out_ns = (at[1] - at[0]) / (double)count;
    return FY_STATUS_OK;
}

/* One size; *out_goes_on: a size twice as large would be bearable, too. */
static fy_status_t measure_product(cal_t *cal, product_t *p, int64_t n, double kernel_ns,
                                   bool *out_goes_on)
{
    double per[CAL_MAX_ROUNDS], ns, least = INFINITY, most = 0;
    fy_tensor_t *rng, *a, *b; /* random: of constants a card draws less power, and clocks higher */
    const double flops = 2.0 * (double)n * (double)n * (double)n;
    FY_TRY(fy_rng_create(cal->device, 1, &rng));
    FY_TRY(fy_rand(rng, p->dtype, FY_DIMS(n, n), -1, 1, &a));
    FY_TRY(fy_rand(rng, p->dtype, FY_DIMS(n, n), -1, 1, &b));
    const double wall = wall_ns();
    FY_TRY(time_products(cal, a, b, 1, &ns)); /* the library makes its plan */
    const double once_wall_ns = (wall_ns() - wall) / 3;
    for (int64_t r = 0; r < cal->rounds; r++) {
        FY_TRY(time_products(cal, a, b, ns < 1e6 ? 8 : 2, &per[r]));
        least = fmin(least, per[r]);
        most = fmax(most, per[r]);
    }
    const double middle = cal_less(median(per, (size_t)cal->rounds), kernel_ns);
    if (middle > 0 && flops / middle * 1e9 > p->per_s) {
        p->per_s = flops / middle * 1e9;
        p->spread = most / least - 1;
        p->size = n;
    }
    fy_tensor_destroy(rng);
    fy_tensor_destroy(a);
    fy_tensor_destroy(b);
    *out_goes_on = 8 * middle < GEMM_MOST_NS &&
                   (!cal->is_model || 8 * once_wall_ns < MODEL_WALL_NS);
    return FY_STATUS_OK;
}

fy_status_t cal_products(cal_t *cal, double kernel_ns)
{
    product_t all[] = { { .dtype = FY_DTYPE_F32, .key = "f32_flops_per_s" },
                        { .dtype = FY_DTYPE_F64, .key = "f64_flops_per_s" },
                        { .dtype = FY_DTYPE_F16, .key = "f16_flops_per_s" },
                        { .dtype = FY_DTYPE_BF16, .key = "bf16_flops_per_s" } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool goes_on = true;
        int64_t n = SMALLEST_GEMM;
        for (int size = 0; size < NSIZES && goes_on && (size == 0 || 8 * n * n <= cal->most_nbytes);
             size++, n *= 2) {
            progress("calibrate: products", (int64_t)i * NSIZES + size, NSIZES * 4);
            FY_TRY(measure_product(cal, &all[i], n, kernel_ns, &goes_on));
        }
        cal_note(
            cal, all[i].key, "flop/s", all[i].per_s, 1, all[i].spread,
            "products of n x n from n = %d on, best size %lld; one more of many, less kernel_ns",
            SMALLEST_GEMM, (long long)all[i].size);
    }
    progress("calibrate: products", NSIZES * 4, NSIZES * 4);
    return FY_STATUS_OK;
}
