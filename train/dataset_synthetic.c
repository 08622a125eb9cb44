/* Synthetic images: each digit is a few strokes, moved, scaled, slanted and distorted, drawn with a
 * soft round pen.
 * Integers only, in 1/256 of a pixel: the same seed gives the same bytes on every machine and with
 * every compiler.
 * Not here: synthetic tables (table_synthetic.c). */
#include "dataset.h"

#include <stdlib.h>

#define UNIT         256 /* a pixel */
#define GLYPH_POINTS 15
#define STROKE_END   0xff /* x of a pair that lifts the pen */

/* Strokes of each digit in a box 100 wide and 140 high, y downwards; a first point {0, 0} never
 * occurs, so it ends the list. */
static const unsigned char glyphs[10][GLYPH_POINTS][2] = {
    { { 50, 2 },
      { 22, 14 },
      { 6, 45 },
      { 6, 95 },
      { 22, 126 },
      { 50, 138 },
      { 78, 126 },
      { 94, 95 },
      { 94, 45 },
      { 78, 14 },
      { 50, 2 } },
    { { 26, 32 }, { 54, 2 }, { 54, 138 } },
    { { 8, 34 },
      { 22, 10 },
      { 50, 2 },
      { 80, 12 },
      { 90, 38 },
      { 76, 66 },
      { 40, 104 },
      { 8, 138 },
      { 94, 138 } },
    { { 8, 14 },
      { 48, 2 },
      { 84, 16 },
      { 88, 44 },
      { 70, 64 },
      { 40, 68 },
      { 74, 74 },
      { 94, 100 },
      { 80, 128 },
      { 46, 138 },
      { 6, 126 } },
    { { 66, 2 }, { 38, 52 }, { 6, 96 }, { 96, 96 }, { STROKE_END, 0 }, { 70, 50 }, { 70, 138 } },
    { { 88, 2 },
      { 20, 2 },
      { 14, 62 },
      { 50, 54 },
      { 84, 68 },
      { 94, 96 },
      { 80, 126 },
      { 46, 138 },
      { 6, 126 } },
    { { 78, 4 },
      { 44, 20 },
      { 16, 58 },
      { 6, 98 },
      { 20, 128 },
      { 50, 138 },
      { 80, 128 },
      { 94, 100 },
      { 80, 76 },
      { 50, 66 },
      { 20, 78 },
      { 8, 98 } },
    { { 4, 4 }, { 96, 4 }, { 62, 66 }, { 42, 138 } },
    { { 50, 66 },
      { 20, 50 },
      { 14, 26 },
      { 50, 2 },
      { 86, 26 },
      { 80, 50 },
      { 50, 66 },
      { 14, 90 },
      { 8, 116 },
      { 50, 138 },
      { 92, 116 },
      { 86, 90 },
      { 50, 66 } },
    { { 92, 40 },
      { 78, 64 },
      { 50, 72 },
      { 20, 62 },
      { 8, 38 },
      { 20, 12 },
      { 50, 2 },
      { 80, 12 },
      { 92, 40 },
      { 86, 90 },
      { 62, 138 } },
};

/* low .. high, both included. */
static int64_t draw_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(fyt_draw(state) % (uint64_t)(high - low + 1));
}

typedef struct point {
    int64_t x, y; /* in UNITs */
} point_t;

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static int64_t distance_squared(point_t p, point_t a, point_t b)
{
    const int64_t abx = b.x - a.x, aby = b.y - a.y, length2 = abx * abx + aby * aby;
    const int64_t t = length2 ? clamp((p.x - a.x) * abx + (p.y - a.y) * aby, 0, length2) : 0;
    const int64_t dx = p.x - a.x - (length2 ? abx * t / length2 : 0),
                  dy = p.y - a.y - (length2 ? aby * t / length2 : 0);
    return dx * dx + dy * dy;
}

/* Ink of a pen of this radius from a to b, 255 inside and falling to 0 within one pixel outside;
 * the darkest stroke counts. */
static void draw_segment(unsigned char *ink, int side, point_t a, point_t b, int64_t radius)
{
    const int64_t outer = radius + UNIT, inner2 = radius * radius, outer2 = outer * outer;
    const int64_t x0 = clamp(((a.x < b.x ? a.x : b.x) - outer) / UNIT, 0, side),
                  x1 = clamp(((a.x > b.x ? a.x : b.x) + outer) / UNIT + 1, 0, side);
    const int64_t y0 = clamp(((a.y < b.y ? a.y : b.y) - outer) / UNIT, 0, side),
                  y1 = clamp(((a.y > b.y ? a.y : b.y) + outer) / UNIT + 1, 0, side);
    for (int64_t y = y0; y < y1; y++)
        for (int64_t x = x0; x < x1; x++) {
            const int64_t d2 =
                distance_squared((point_t){ x * UNIT + UNIT / 2, y * UNIT + UNIT / 2 }, a, b);
            const int64_t value = d2 <= inner2   ? 255
                                  : d2 >= outer2 ? 0
                                                 : 255 * (outer2 - d2) / (outer2 - inner2);
            unsigned char *pixel = &ink[y * side + x];
            if (value > *pixel) *pixel = (unsigned char)value;
        }
}

/* Draws `digit` in the middle of side x side pixels, with random slant, size and stroke. */
static void draw_digit(unsigned char *ink, int side, int digit, uint64_t *state)
{
    /* UNITs for each unit of the glyph's box */
    const int64_t width = draw_between(state, 30, 44), height = draw_between(state, 30, 40);
    const int64_t slant = draw_between(state, -12, 12), radius = draw_between(state, 140, 380);
    const int64_t cx = side * UNIT / 2 + draw_between(state, -2 * UNIT, 2 * UNIT),
                  cy = side * UNIT / 2 + draw_between(state, -2 * UNIT, 2 * UNIT);
    point_t before = { 0, 0 };
    int is_down = 0;
    for (int i = 0; i < GLYPH_POINTS && (glyphs[digit][i][0] || glyphs[digit][i][1]); i++) {
        const int64_t gx = glyphs[digit][i][0] - 50 + draw_between(state, -5, 5),
                      gy = glyphs[digit][i][1] - 70 + draw_between(state, -5, 5);
        const point_t point = { cx + gx * width - gy * slant, cy + gy * height };
        if (glyphs[digit][i][0] == STROKE_END) {
            is_down = 0;
            continue;
        }
        if (is_down) draw_segment(ink, side, before, point, radius);
        before = point;
        is_down = 1;
    }
}

static void draw_grey(unsigned char *pixels, const unsigned char *ink, int count, uint64_t *state)
{
    const int64_t strength = draw_between(state, 180, 255);
    for (int i = 0; i < count; i++)
        pixels[i] =
            (unsigned char)clamp(ink[i] * strength / 255 + draw_between(state, -16, 16), 0, 255);
}

static void draw_colours(unsigned char *pixels, const unsigned char *ink, int count,
                         uint64_t *state)
{
    int64_t ground[3], colour[3];
    for (int c = 0; c < 3; c++) {
        ground[c] = draw_between(state, 0, 255);
        /* never so near that the digit cannot be seen */
        colour[c] = (ground[c] + draw_between(state, 96, 160)) % 256;
    }
    for (int i = 0; i < count; i++)
        for (int c = 0; c < 3; c++)
            pixels[3 * i + c] = (unsigned char)clamp(
                ground[c] + (colour[c] - ground[c]) * ink[i] / 255 + draw_between(state, -12, 12),
                0, 255);
}

static fy_status_t make(uint64_t samples, uint64_t seed, int side, int channels, const char *what,
                        fy_dataset_t **out_dataset)
{
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    size_t sample_nbytes, label_nbytes;
    info.samples = samples;
    info.rank = 3;
    info.dims[0] = info.dims[1] = side;
    info.dims[2] = channels;
    info.dtype = FY_DTYPE_U8;
    info.classes = 10;
    if (!samples) return FYT_FAIL(INVALID_ARGUMENT, "%s: 0 samples; at least 1", what);
    FY_TRY(fyt_dataset_sizes(what, &info, &sample_nbytes, &label_nbytes));
    unsigned char *data = malloc(samples * sample_nbytes),
                  *ink = malloc((size_t)side * (size_t)side);
    int32_t *labels = malloc(samples * label_nbytes);
    fy_status_t status = FY_STATUS_OK;
    if (!data || !ink || !labels)
        status = FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %llu samples of %zu bytes", what,
                          (unsigned long long)samples, sample_nbytes);
    for (uint64_t i = 0; status == FY_STATUS_OK && i < samples; i++) {
        uint64_t state = seed; /* of this sample alone: more samples do not change the first ones */
        state = fyt_draw(&state) ^ (i * 0xd1342543de82ef95u);
        for (int p = 0; p < side * side; p++) ink[p] = 0;
        labels[i] = (int32_t)(i % 10);
        draw_digit(ink, side, labels[i], &state);
        (channels == 1 ? draw_grey : draw_colours)(data + i * sample_nbytes, ink, side * side,
                                                   &state);
    }
    free(ink);
    return fyt_dataset_new(status, &info, data, labels, out_dataset);
}

fy_status_t fy_dataset_synthetic_digits(uint64_t samples, uint64_t seed, fy_dataset_t **out_dataset)
{
    FY_TRY(FYT_CLEAR_OUT("dataset_synthetic_digits", out_dataset));
    return make(samples, seed, 28, 1, "dataset_synthetic_digits", out_dataset);
}

fy_status_t fy_dataset_synthetic_images(uint64_t samples, uint64_t seed, fy_dataset_t **out_dataset)
{
    FY_TRY(FYT_CLEAR_OUT("dataset_synthetic_images", out_dataset));
    return make(samples, seed, FYT_CIFAR10_SIDE, 3, "dataset_synthetic_images", out_dataset);
}
