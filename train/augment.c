/* A pixel of the result is found in the padded image, then in the resized one, and computed from
 * pixels of the sample: there is no image in between, so nothing is allocated.
 * Not here: which sample is where in a batch (loader_stream.c). */
#include "loader.h"

#include <string.h>

#include "opset/formulas/random.h"
#include "opset/formulas/resample.h"

#include "fail.h"

enum { MOST_PIXELS = 1 << 16 }; /* of a side */

static fy_status_t check(const fy_loader_options_t *options, const fy_dataset_info_t *info)
{
    const int64_t sizes[] = { options->resize, options->pad, options->crop };
    static const char *const names[] = { "resize", "pad", "crop" };
    for (int i = 0; i < 3; i++)
        if (sizes[i] < 0 || sizes[i] > MOST_PIXELS)
            return FYT_FAIL(INVALID_ARGUMENT, "loader_create: %s is %lld; it may be 0 to %d pixels",
                            names[i], (long long)sizes[i], MOST_PIXELS);
    if (info->rank != 3 || (info->dtype != FY_DTYPE_U8 && info->dtype != FY_DTYPE_F32))
        return FYT_FAIL(INVALID_ARGUMENT,
                        "loader_create: resize, pad, crop and flip change images [height, width, "
                        "channels], u8 or f32; these samples are %s of rank %d",
                        fy_dtype_name(info->dtype), info->rank);
    if (options->resident)
        return FYT_FAIL(INVALID_ARGUMENT,
                        "loader_create: resize, pad, crop and flip need resident 0: a resident "
                        "set is uploaded unchanged");
    return FY_STATUS_OK;
}

fy_status_t fyt_augment_make(const fy_loader_options_t *options, const fy_dataset_info_t *info,
                             fyt_augment_t *out)
{
    fyt_augment_t own = { .flips = options->flip != 0,
                          .is_random = options->augment != 0,
                          .is_u8 = info->dtype == FY_DTYPE_U8,
                          .seed = options->seed,
                          .pad = options->pad };
    own.is_on = options->resize || options->pad || options->crop || options->flip;
    if (!own.is_on) {
        *out = own;
        return FY_STATUS_OK;
    }
    FY_TRY(check(options, info));
    own.channels = info->dims[2];
    for (int i = 0; i < 2; i++) {
        own.in[i] = info->dims[i];
        own.resized[i] = options->resize ? options->resize : own.in[i];
        const int64_t padded = own.resized[i] + 2 * own.pad;
        own.out[i] = options->crop ? options->crop : padded;
        if (own.out[i] > padded)
            return FYT_FAIL(
                INVALID_ARGUMENT,
                "loader_create: crop is %lld; images have a %s of %lld, with resize and "
                "padding %lld: a smaller crop, or a larger resize",
                (long long)options->crop, i ? "width" : "height", (long long)own.in[i],
                (long long)padded);
    }
    *out = own;
    return FY_STATUS_OK;
}

/* "augm": no block of fy_rand or fy_randperm has it. */
#define AUGMENT_TAG ((uint64_t)0x6175676Du << 32)

static int64_t below(uint32_t lane, int64_t n)
{
    return (int64_t)((uint64_t)lane * (uint64_t)n >> 32);
}

/* Pixel (y, x) of the resized image. */
static void put_pixel(const fyt_augment_t *a, const fy__taps_t *rows, const fy__taps_t *columns,
                      int64_t y, int64_t x, const void *sample, void *dst)
{
    const fy__span_t vertical = fy__taps_span(rows, y), across = fy__taps_span(columns, x);
    for (int64_t c = 0; c < a->channels; c++) {
        double sum = 0;
        for (int64_t i = vertical.first; i < vertical.end; i++)
            for (int64_t j = across.first; j < across.end; j++) {
                const int64_t at = (i * a->in[1] + j) * a->channels + c;
                const double weight = fy__taps_weight(rows, y, i) * fy__taps_weight(columns, x, j);
                if (weight == 0) continue; /* the pixel may be infinite */
                sum += weight * (a->is_u8 ? (double)((const uint8_t *)sample)[at]
                                          : (double)((const float *)sample)[at]);
            }
        if (a->is_u8)
            ((uint8_t *)dst)[c] = (uint8_t)(sum + 0.5);
        else
            ((float *)dst)[c] = (float)sum;
    }
}

void fyt_augment_run(const fyt_augment_t *a, int64_t epoch, uint64_t index, const void *sample,
                     void *dst)
{
    const fy__philox_t draw =
        fy__philox4x32((uint64_t)a->seed, index, AUGMENT_TAG | (uint32_t)epoch);
    const fy__taps_t rows = { a->in[0], a->resized[0], 0, 0 },
                     columns = { a->in[1], a->resized[1], 0, 0 };
    const size_t pixel = (size_t)a->channels * (a->is_u8 ? 1 : sizeof(float));
    const int is_mirrored = a->flips && a->is_random && draw.lane[2] >> 31;
    int64_t begin[2];
    for (int i = 0; i < 2; i++) {
        const int64_t room = a->resized[i] + 2 * a->pad - a->out[i];
        begin[i] = (a->is_random ? below(draw.lane[i], room + 1) : room / 2) - a->pad;
    }
    for (int64_t h = 0; h < a->out[0]; h++)
        for (int64_t w = 0; w < a->out[1]; w++) {
            const int64_t y = begin[0] + h, x = begin[1] + (is_mirrored ? a->out[1] - 1 - w : w);
            unsigned char *to = (unsigned char *)dst + (size_t)(h * a->out[1] + w) * pixel;
            if (y < 0 || y >= a->resized[0] || x < 0 || x >= a->resized[1])
                memset(to, 0, pixel);
            else if (a->resized[0] == a->in[0] && a->resized[1] == a->in[1])
                memcpy(to, (const unsigned char *)sample + (size_t)(y * a->in[1] + x) * pixel,
                       pixel);
            else
                put_pixel(a, &rows, &columns, y, x, sample, to);
        }
}
