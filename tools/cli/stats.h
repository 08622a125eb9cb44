/* Statistics of repeated measurements: how many rounds, their median, quartiles and the interval of
 * the median, with the same names in every table and document.
 * Not here: clocks (measure.c), the state of the machine (machine.c). Next: stats.c. */
#ifndef FERRY_TOOLS_STATS_H_
#define FERRY_TOOLS_STATS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/cli/sheet.h"

enum {
    ROUNDS_MOST = 201,
    ROUNDS_FOR_INTERVAL = 5, /* the interval of fewer is NaN: it would cover less than 90 % */
    RESAMPLES = 2000,
    CONFIDENCE_PERCENT = 95,
    RESAMPLE_SEED = 1
};

/* How much is measured. */
typedef struct effort {
    int64_t rounds;   /* with `until`: at least so many */
    int64_t round_ms; /* benches: time of one case in one round */
    double until;     /* share of the median, as a fraction; 0: none was requested */
} effort_t;

/* clang-format off */
#define EFFORT_OPTIONS(e)                                                                          \
    { "rounds", OPTION_INT, "N", &(e)->rounds, "rounds; the median counts", 1, ROUNDS_MOST },      \
    { "until", OPTION_SHARE, "1%", &(e)->until, "more rounds, at most 201, until half of the median's interval is at most this share of it", 0, 1 }
/* clang-format on */

/* One value a round. */
typedef struct sample {
    size_t count;
    double values[ROUNDS_MOST];
} sample_t;

/* `low` to `high` is the 95 % interval of the median. NaN: not known. */
typedef struct spread {
    double median, q1, q3, low, high, best, worst;
    size_t rounds;
} spread_t;

/* For qsort, of doubles. */
int compare_reals(const void *a, const void *b);
/* Values beyond ROUNDS_MOST are dropped. */
void sample_add(sample_t *sample, double value);
/* The quartiles interpolate between neighbours (Hyndman and Fan 1996, definition 7). The interval
 * is the percentile bootstrap's (Efron and Tibshirani 1993, chapter 13), by RESAMPLES resamples
 * with RESAMPLE_SEED: the same values in any order have the same interval. A value that is not
 * finite makes all figures NaN. */
spread_t sample_spread(const sample_t *sample);
/* Half of the interval over the median, in percent. */
double spread_half_percent(const spread_t *spread);
/* `scale` / each figure: of times, the spread of rates; low and high change places. */
spread_t spread_rate(double scale, const spread_t *spread);
/* Each figure times `factor`, which is positive. */
spread_t spread_scale(double factor, const spread_t *spread);
/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t random_bits(uint64_t *state);
/* Has `sample` enough rounds for `effort`? */
bool effort_is_met(const effort_t *effort, const sample_t *sample);

/* Columns for sheet_spread: the median as `key`, quartiles, bounds and half the interval, which
 * SPREAD_HIDDEN does not show to people. */
/* clang-format off */
#define SPREAD_HEADED(key, heading, decimals, percent)                                             \
    { key, heading, decimals }, { key "_q1", NULL, 0 }, { key "_q3", NULL, 0 },                    \
    { key "_low", NULL, 0 }, { key "_high", NULL, 0 }, { key "_half_percent", percent, 1 }
#define SPREAD_COLUMNS(key, heading, decimals) SPREAD_HEADED(key, heading, decimals, "+-%")
#define SPREAD_HIDDEN(key, heading, decimals) SPREAD_HEADED(key, heading, decimals, NULL)
/* clang-format on */
/* The column with the number of rounds of a row. */
#define ROUNDS_COLUMN     \
    {                     \
        "rounds", NULL, 0 \
    }
void sheet_spread(sheet_t *sheet, const spread_t *spread);
/* The median as `key`, and the keys of SPREAD_COLUMNS. */
void json_spread(json_t *json, const char *key, const spread_t *spread);

#endif
