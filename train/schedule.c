/* Schedules: the learning rate, and the momentum that mirrors it, as functions of the step. No
 * state is kept between steps.
 * Formulas: torch.optim.lr_scheduler of PyTorch 1.13 (StepLR, CosineAnnealingLR in closed form,
 * CyclicLR, OneCycleLR, LinearLR for the warm-up); the header names the papers. Not here: setting
 * the values (fy_optimizer_set_lr, fy_optimizer_set_momentum). */
#include <ferry/train/schedule.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "runtime/base/c_locale.h"
#include "train/fail.h"
#include "train/abi.h"

static const double k_pi = 3.14159265358979323846;

const char *fy_schedule_name(fy_schedule_kind_t kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        FY_SCHEDULE_LIST(X)
#undef X
    };
    return (unsigned)kind < FY_SCHEDULE_COUNT ? names[kind] : "?";
}

void fy_schedule_defaults(fy_schedule_kind_t kind, double lr, int64_t total_steps,
                          fy_schedule_t *out_schedule, size_t nbytes)
{
    const fy_schedule_t defaults = { .struct_size = sizeof defaults,
                                     .kind = kind,
                                     .lr = lr,
                                     .warmup_factor = 1.0 / 3,
                                     .step_size = kind == FY_SCHEDULE_CYCLIC ? 2000 : 1,
                                     .gamma = kind == FY_SCHEDULE_CYCLIC ? 1 : 0.1,
                                     .total_steps = total_steps,
                                     .min_lr = kind == FY_SCHEDULE_CYCLIC  ? lr / 10
                                               : kind == FY_SCHEDULE_RANGE ? lr / 1e6
                                                                           : 0,
                                     .pct_start = 0.3,
                                     .div_factor = 25,
                                     .final_div_factor = 1e4,
                                     .base_momentum = kind == FY_SCHEDULE_CYCLIC ? 0.8 : 0.85,
                                     .max_momentum = kind == FY_SCHEDULE_CYCLIC ? 0.9 : 0.95 };
    fy__abi_init(&defaults, sizeof defaults, out_schedule, nbytes);
}

/* ---- valid schedules ---- */

static bool has_warmup(fy_schedule_kind_t kind)
{
    return kind == FY_SCHEDULE_CONSTANT || kind == FY_SCHEDULE_STEP || kind == FY_SCHEDULE_COSINE;
}
static bool mirrors_momentum(const fy_schedule_t *s)
{
    return (s->kind == FY_SCHEDULE_CYCLIC || s->kind == FY_SCHEDULE_ONE_CYCLE) &&
           (s->base_momentum != 0 || s->max_momentum != 0);
}
static bool is_positive(double x) { return x > 0 && isfinite(x); }
static bool is_nonnegative(double x) { return x >= 0 && isfinite(x); }

typedef struct rule {
    bool holds;
    const char *field, *wanted;
    double value;
} rule_t;

/* The first rule that does not hold; its field is NULL if all do. */
static rule_t find_broken(const fy_schedule_t *s)
{
    const fy_schedule_kind_t kind = s->kind;
    const bool is_cycle = kind == FY_SCHEDULE_ONE_CYCLE, is_range = kind == FY_SCHEDULE_RANGE;
    const bool has_low = kind == FY_SCHEDULE_COSINE || kind == FY_SCHEDULE_CYCLIC || is_range;
    const bool has_total = kind == FY_SCHEDULE_COSINE || is_cycle || is_range;
    const bool has_size = kind == FY_SCHEDULE_STEP || kind == FY_SCHEDULE_CYCLIC;
    const bool warms_up = has_warmup(kind) && s->warmup_steps != 0;
    const rule_t rules[] = {
        { (unsigned)kind < FY_SCHEDULE_COUNT, "kind", "one of fy_schedule_kind_t", kind },
        { is_nonnegative(s->lr), "lr", "finite, 0 or more", s->lr },
        { !has_low || (is_nonnegative(s->min_lr) && s->min_lr <= s->lr), "min_lr",
          "0 or more, and not above lr", s->min_lr },
        { !is_range || s->min_lr > 0, "min_lr", "above 0: lr grows from it by a factor",
          s->min_lr },
        { !has_total || s->total_steps > 0, "total_steps", "1 or more", (double)s->total_steps },
        { !has_size || s->step_size > 0, "step_size", "1 or more", (double)s->step_size },
        { !has_size || is_positive(s->gamma), "gamma", "finite, above 0", s->gamma },
        { !has_warmup(kind) || s->warmup_steps >= 0, "warmup_steps", "0 or more",
          (double)s->warmup_steps },
        { !warms_up || is_nonnegative(s->warmup_factor), "warmup_factor", "finite, 0 or more",
          s->warmup_factor },
        { !is_cycle || (s->pct_start >= 0 && s->pct_start <= (s->three_phase ? 0.5 : 1)),
          "pct_start",
          s->three_phase ? "0 to 0.5: there is a phase down of the same length" : "0 to 1",
          s->pct_start },
        { !is_cycle || is_positive(s->div_factor), "div_factor", "finite, above 0", s->div_factor },
        { !is_cycle || is_positive(s->final_div_factor), "final_div_factor", "finite, above 0",
          s->final_div_factor },
        { !mirrors_momentum(s) || (s->base_momentum >= 0 && s->base_momentum <= s->max_momentum),
          "base_momentum", "0 or more, and not above max_momentum", s->base_momentum },
        { !mirrors_momentum(s) || s->max_momentum < 1, "max_momentum", "below 1", s->max_momentum },
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (!rules[i].holds) return rules[i];
    return (rule_t){ .holds = true };
}

fy_status_t fy_schedule_check(const fy_schedule_t *schedule)
{
    fy_schedule_t own;
    FY_TRY(FY__READ_GIVEN(schedule, "schedule_check", schedule, &own));
    schedule = &own;
    const rule_t broken = find_broken(schedule);
    if (broken.holds) return FY_STATUS_OK;
    const bool is_whole = broken.value == trunc(broken.value) && fabs(broken.value) < 0x1p64;
    char value[32]; /* counts of steps are whole */
    fy__snprintf(value, sizeof value, is_whole ? "%.0f" : "%g", broken.value);
    return FYT_FAIL(INVALID_ARGUMENT, "schedule %s: %s is %s; it must be %s",
                    fy_schedule_name(schedule->kind), broken.field, value, broken.wanted);
}

/* Copies the caller's schedule; false if it is invalid. */
static bool read_possible(const fy_schedule_t *schedule, int64_t step, fy_schedule_t *out_own)
{
    return FY__READ_GIVEN(schedule, "schedule", schedule, out_own) == FY_STATUS_OK && step >= 0 &&
           find_broken(out_own).holds;
}

/* ---- cycles: how far from the low end (0) to the high one (1) ---- */

static double triangle(const fy_schedule_t *s, int64_t step)
{
    const double at = (double)(step % (2 * s->step_size)) / (double)s->step_size;
    return (at <= 1 ? at : 2 - at) * pow(s->gamma, (double)step);
}

static double between(const fy_schedule_t *s, double from, double to, double share)
{
    if (s->linear) return from + (to - from) * share;
    return to + (from - to) / 2 * (1 + cos(k_pi * share));
}

/* ONE_CYCLE: from values[0] to values[1], ... in two phases or three. The phases end at steps that
 * need not be whole, as in PyTorch. */
static double in_phases(const fy_schedule_t *s, int64_t step, const double *values)
{
    const double total = (double)s->total_steps, up = s->pct_start * total - 1;
    const double ends[3] = { up, s->three_phase ? 2 * s->pct_start * total - 2 : total - 1,
                             total - 1 };
    const int nphases = s->three_phase ? 3 : 2;
    const double at = step < s->total_steps ? (double)step : total - 1;
    double begin = 0;
    for (int i = 0; i < nphases; i++) {
        if (at > ends[i] && i < nphases - 1) {
            begin = ends[i];
            continue;
        }
        return between(s, values[i], values[i + 1],
                       ends[i] > begin ? (at - begin) / (ends[i] - begin) : 1);
    }
    return values[nphases];
}

/* ---- the two functions ---- */

/* After the warm-up. */
static double plain_lr(const fy_schedule_t *s, int64_t step)
{
    const double start = s->lr / s->div_factor, last = start / s->final_div_factor;
    const int64_t within = step < s->total_steps ? step : s->total_steps,
                  drops = s->kind == FY_SCHEDULE_STEP ? step / s->step_size : 0;
    switch (s->kind) {
    case FY_SCHEDULE_STEP: return s->lr * pow(s->gamma, (double)drops);
    case FY_SCHEDULE_COSINE:
        return s->min_lr +
               (s->lr - s->min_lr) * (1 + cos(k_pi * (double)within / (double)s->total_steps)) / 2;
    case FY_SCHEDULE_CYCLIC: return s->min_lr + (s->lr - s->min_lr) * triangle(s, step);
    case FY_SCHEDULE_ONE_CYCLE:
        return in_phases(s, step,
                         (const double[]){ start, s->lr, s->three_phase ? start : last, last });
    case FY_SCHEDULE_RANGE:
        if (step >= s->total_steps - 1) return s->lr;
        return s->min_lr * pow(s->lr / s->min_lr, (double)step / (double)(s->total_steps - 1));
    default: return s->lr;
    }
}

double fy_schedule_lr(const fy_schedule_t *schedule, int64_t step)
{
    fy_schedule_t own;
    if (!read_possible(schedule, step, &own)) return NAN;
    const fy_schedule_t *s = &own;
    if (!has_warmup(s->kind) || step >= s->warmup_steps)
        return plain_lr(s, has_warmup(s->kind) ? step - s->warmup_steps : step);
    return s->lr *
           (s->warmup_factor + (1 - s->warmup_factor) * (double)step / (double)s->warmup_steps);
}

double fy_schedule_momentum(const fy_schedule_t *schedule, int64_t step)
{
    fy_schedule_t own;
    if (!read_possible(schedule, step, &own) || !mirrors_momentum(&own)) return NAN;
    schedule = &own;
    const double low = schedule->base_momentum, high = schedule->max_momentum;
    if (schedule->kind == FY_SCHEDULE_CYCLIC) return high - (high - low) * triangle(schedule, step);
    return in_phases(schedule, step, (const double[]){ high, low, high, high });
}

fy_status_t fy_schedule_scale(fy_schedule_t *schedule, int64_t batch, int64_t base_batch,
                              int64_t warmup_steps)
{
    fy_schedule_t own;
    FY_TRY(fy_schedule_check(schedule));
    FY_TRY(FY__READ_GIVEN(schedule, "schedule_scale", schedule, &own));
    if (batch < 1 || base_batch < 1)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "schedule_scale: batch %lld, base_batch %lld: both must be 1 or more",
                        (long long)batch, (long long)base_batch);
    if (warmup_steps != 0 && !has_warmup(own.kind))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "schedule_scale: warmup_steps is %lld; a schedule %s has no warm-up: 0",
                        (long long)warmup_steps, fy_schedule_name(own.kind));
    const double factor = (double)batch / (double)base_batch;
    own.lr *= factor;
    own.min_lr *= factor;
    if (has_warmup(own.kind)) {
        own.warmup_steps = warmup_steps;
        own.warmup_factor = factor > 1 ? 1 / factor : 1;
    }
    FY_TRY(fy_schedule_check(&own));
    FY__WRITE(schedule, &own);
    return FY_STATUS_OK;
}
