/* The synthetic airfoil table: it has the real one's columns, ranges and units, for machines
 * without the data set.
 * Columns: frequency f [Hz], a third-octave band from 200 to 20000 · angle of attack a [degrees], 0
 * to 22.2 · chord c [m], six from 0.0254 to 0.3048 · speed u [m/s], one of 31.7, 39.6, 55.5, 71.3 ·
 * boundary layer t [m] · sound pressure level [dB].
 *   t = 0.055 c (1 + a / 8) (71.3 / u)^0.2 e, with e uniform in [0.7, 1.3)
 *   level = 131 + 15 log10(u / 71.3) - 5 log10(f / 1000)^2 - 3.5 log10(f / 1000) - 0.35 a - 15 c -
 *   40 t + n, n near-normal, std 3
 * Not here: reading files (table_text.c). */
#include "table.h"

#include <math.h>

/* [0, 1) */
static double next_unit(uint64_t *state) { return (double)(fyt_draw(state) >> 11) * 0x1p-53; }

static double pick(uint64_t *state, const double *choices, uint64_t count)
{
    return choices[fyt_draw(state) % count];
}

/* Twelve uniforms summed (Irwin-Hall): mean 0, variance 1, and the same on every machine. */
static double next_normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += next_unit(state);
    return sum;
}

static void make_row(uint64_t *state, double *row)
{
    static const double bands[] = { 200,  250,  315,  400,   500,   630,   800,
                                    1000, 1250, 1600, 2000,  2500,  3150,  4000,
                                    5000, 6300, 8000, 10000, 12500, 16000, 20000 };
    static const double chords[] = { 0.0254, 0.0508, 0.1016, 0.1524, 0.2286, 0.3048 };
    static const double speeds[] = { 31.7, 39.6, 55.5, 71.3 };

    double f = pick(state, bands, sizeof bands / sizeof *bands);
    double a = floor(next_unit(state) * 223) / 10;
    double c = pick(state, chords, sizeof chords / sizeof *chords);
    double u = pick(state, speeds, sizeof speeds / sizeof *speeds);
    double t = 0.055 * c * (1 + a / 8) * exp2(0.2 * log2(71.3 / u)) *
               (0.7 + 0.6 * next_unit(state));
    double decades = log2(f / 1000) / log2(10);
    double level = 131 + 15 * log2(u / 71.3) / log2(10) - 5 * decades * decades - 3.5 * decades -
                   0.35 * a - 15 * c - 40 * t + 3 * next_normal(state);
    row[0] = f, row[1] = a, row[2] = c, row[3] = u, row[4] = t, row[5] = level;
}

fy_status_t fy_table_synthetic(uint64_t rows, uint64_t seed, fy_table_t **out_table)
{
    FY_TRY(FYT_CLEAR_OUT("table_synthetic", out_table));
    if (!rows)
        return FYT_FAIL(INVALID_ARGUMENT, "table_synthetic: a table of 0 rows was asked for");
    FY_TRY(fy_table_create(rows, 6, NULL, out_table));
    for (uint64_t r = 0; r < rows; r++) make_row(&seed, &(*out_table)->values[r * 6]);
    return FY_STATUS_OK;
}
