/* Trust ratios of LARS and LAMB, before the parameter changes: each part is cut into the runs that
 * `trust` has columns for; a thread sums the squares of a run; the runs are added in their order.
 * The bits depend on the runs, not on threads.
 * Not here: the update of the parameter (step.c). */
#include "backends/kernels/step.h"

typedef struct trust {
    const fy__host_step_t *step;
    const fy_launch_t *launch;
    int64_t nruns;
} trust_t;

/* [first, first + n) of a dense step, or one element: adds the squares of the parameter and of the
 * gradient (LARS) or the update (LAMB). */
static void add_squares(const trust_t *trust, const fy__rates_t *rates, int64_t first, int64_t n,
                        fy__sum_t sums[2])
{
    const fy__host_step_t *step = trust->step;
    const int32_t dtype = step->is_half ? FY_DTYPE_F32 : step->param->dtype;
    const fy__sum_row_fn add = step->loops->square_row[dtype];
    double update[FY__STEP_CHUNK]; /* or floats */
    float wide[2][FY__STEP_CHUNK];
    void *param = fy__host_step_load(step, step->param, n,
                                     fy__host_step_element(step, step->param, first), wide[0]),
         *grad = fy__host_step_load(step, step->grad, n,
                                    fy__host_step_element(step, step->grad, first), wide[1]);
    char *mean = fy__host_step_element(step, step->state[0], first),
         *square = fy__host_step_element(step, step->state[1], first);
    add(n, param, &sums[0]);
    if (trust->launch->op == FY_OP_LARS_STEP) {
        add(n, grad, &sums[1]); /* not unscaled */
        return;
    }
    step->loops->step[FY__STEP_LAMB_STATE][dtype](n, rates, NULL, mean, square, grad);
    step->loops->step[FY__STEP_LAMB_UPDATE][dtype](n, rates, update, mean, square, param);
    add(n, update, &sums[1]);
}

static void sum_run(const void *context, int64_t i)
{
    const trust_t *trust = (const trust_t *)context;
    const fy__host_step_t *step = trust->step;
    const int64_t part = i / trust->nruns, run = i % trust->nruns;
    const int64_t most = step->is_dense ? FY__STEP_CHUNK : 1;
    const fy__rates_t rates =
        fy__rates_of_part(&step->rates, 1, fy__part_factor(&step->parts, part, 2));
    fy__sum_t sums[2] = { { .f = 0 }, { .f = 0 } };
    int64_t first, end;
    fy__part_run(&step->parts, part, trust->nruns, run, &first, &end);
    for (; first < end; first += most)
        add_squares(trust, &rates, first, end - first < most ? end - first : most, sums);
    if (trust->launch->op == FY_OP_LARS_STEP) sums[1].f *= rates.unscale * rates.unscale;
    *fy__host_step_trust_at(step, part, 1 + 2 * run) = sums[0].f;
    *fy__host_step_trust_at(step, part, 2 + 2 * run) = sums[1].f;
}

static double ratio_of(const trust_t *trust, int64_t part)
{
    const fy__host_step_t *step = trust->step;
    const double decay = fy__part_factor(&step->parts, part, 2);
    double param = 0, update = 0;
    for (int64_t run = 0; run < trust->nruns; run++) {
        param += *fy__host_step_trust_at(step, part, 1 + 2 * run);
        update += *fy__host_step_trust_at(step, part, 2 + 2 * run);
    }
    if (decay == 0) return 1;
    if (trust->launch->op == FY_OP_LAMB_STEP) return fy__lamb_trust(param, update);
    const fy_lars_attrs_t *a = (const fy_lars_attrs_t *)trust->launch->attrs;
    return fy__lars_trust(a->trust_coefficient, a->eps, a->weight_decay * decay, param, update);
}

void fy__host_step_trust(const fy__host_step_t *step, const fy_launch_t *launch, int threads)
{
    const trust_t trust = { step, launch, (step->trust->dims[1] - 1) / 2 };
    fy__for_each(step->parts.nparts * trust.nruns, threads, sum_run, &trust);
    for (int64_t part = 0; part < step->parts.nparts; part++)
        *fy__host_step_trust_at(step, part, 0) = ratio_of(&trust, part);
}
