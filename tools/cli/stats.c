/* Medians, quartiles and intervals; see stats.h. A resample is drawn as the number of times that
 * each rank occurs, so its median needs no sorting. */
#include "tools/cli/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/tool.h"

void sample_add(sample_t *sample, double value)
{
    if (sample->count < ROUNDS_MOST) sample->values[sample->count++] = value;
}

int compare_reals(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t count, double p)
{
    const double place = p * (double)(count - 1);
    const size_t below = (size_t)place, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The median of as many values as there are, drawn with replacement. */
static double resample_median(const double *sorted, size_t count, uint64_t *state)
{
    uint16_t times[ROUNDS_MOST] = { 0 };
    size_t seen = 0, at = 0;
    for (size_t i = 0; i < count; i++) times[(random_bits(state) >> 32) * count >> 32]++;
    while (seen + times[at] <= (count - 1) / 2) seen += times[at++];
    const double lower = sorted[at];
    while (seen + times[at] <= count / 2) seen += times[at++];
    return 0.5 * (lower + sorted[at]);
}

static void find_interval(const double *sorted, size_t count, spread_t *out)
{
    double medians[RESAMPLES];
    uint64_t state = RESAMPLE_SEED;
    const double tail = 0.005 * (100 - CONFIDENCE_PERCENT);
    for (int i = 0; i < RESAMPLES; i++) medians[i] = resample_median(sorted, count, &state);
    qsort(medians, RESAMPLES, sizeof *medians, compare_reals);
    out->low = quantile(medians, RESAMPLES, tail);
    out->high = quantile(medians, RESAMPLES, 1 - tail);
}

spread_t sample_spread(const sample_t *sample)
{
    spread_t spread = { NAN, NAN, NAN, NAN, NAN, NAN, NAN, sample->count };
    double sorted[ROUNDS_MOST];
    const size_t count = sample->count;
    for (size_t i = 0; i < count; i++)
        if (!isfinite(sample->values[i])) return spread;
    if (!count) return spread;
    memcpy(sorted, sample->values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_reals);
    spread.median = quantile(sorted, count, 0.5);
    spread.q1 = quantile(sorted, count, 0.25);
    spread.q3 = quantile(sorted, count, 0.75);
    spread.best = sorted[0];
    spread.worst = sorted[count - 1];
    if (count >= ROUNDS_FOR_INTERVAL) find_interval(sorted, count, &spread);
    return spread;
}

double spread_half_percent(const spread_t *spread)
{
    return 50 * (spread->high - spread->low) / fabs(spread->median);
}

spread_t spread_rate(double scale, const spread_t *s)
{
    return (spread_t){ scale / s->median, scale / s->q3,   scale / s->q1,    scale / s->high,
                       scale / s->low,    scale / s->best, scale / s->worst, s->rounds };
}

spread_t spread_scale(double factor, const spread_t *s)
{
    return (spread_t){ factor * s->median, factor * s->q1,   factor * s->q3,    factor * s->low,
                       factor * s->high,   factor * s->best, factor * s->worst, s->rounds };
}

bool effort_is_met(const effort_t *effort, const sample_t *sample)
{
    if (sample->count < (size_t)effort->rounds) return false;
    if (sample->count == ROUNDS_MOST || effort->until <= 0) return true;
    if (sample->count < ROUNDS_FOR_INTERVAL) return false;
    const spread_t spread = sample_spread(sample);
    return !(spread_half_percent(&spread) > 100 * effort->until); /* nor of values without one */
}

void sheet_spread(sheet_t *sheet, const spread_t *spread)
{
    sheet_real(sheet, spread->median);
    sheet_real(sheet, spread->q1);
    sheet_real(sheet, spread->q3);
    sheet_real(sheet, spread->low);
    sheet_real(sheet, spread->high);
    sheet_real(sheet, spread_half_percent(spread));
}

void json_spread(json_t *json, const char *key, const spread_t *spread)
{
    static const char *const ends[] = { "", "_q1", "_q3", "_low", "_high", "_half_percent" };
    const double values[] = { spread->median, spread->q1,   spread->q3,
                              spread->low,    spread->high, spread_half_percent(spread) };
    char name[80];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", key, ends[i]);
        json_real(json, name, values[i]);
    }
}
