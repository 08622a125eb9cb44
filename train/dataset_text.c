/* Text as a data set: a sample is a piece of a byte sequence, its labels are the bytes that follow
 * each of its bytes. And generated text, for use without data.
 * Not here: opening and inflating files (inflate.c). */
#include "dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/abi.h"

enum { BYTES = 256, FIRST_ROOM = 1 << 16 };

/* From `nbytes` bytes of text. `most` samples; 0: all. */
static fy_status_t cut(const unsigned char *text, uint64_t nbytes, int64_t context, uint64_t most,
                       const char *name, fy_dataset_t **out_dataset)
{
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    size_t sample_nbytes, label_nbytes;
    const uint64_t length = (uint64_t)context;
    if (nbytes < length + 1)
        return FYT_FAIL(CORRUPT_DATA,
                        "%s: %llu bytes of text; a sample of %lld bytes and the byte after it need "
                        "%llu",
                        name, (unsigned long long)nbytes, (long long)context,
                        (unsigned long long)length + 1);
    info.samples = (nbytes - 1) / length;
    if (most && info.samples > most) info.samples = most;
    info.rank = 1;
    info.dims[0] = info.labels = context;
    info.dtype = FY_DTYPE_I32;
    info.classes = BYTES;
    FY_TRY(fyt_dataset_sizes(name, &info, &sample_nbytes, &label_nbytes));
    int32_t *data = malloc(info.samples * sample_nbytes),
            *labels = malloc(info.samples * label_nbytes);
    fy_status_t status = FY_STATUS_OK;
    if (!data || !labels)
        status = FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %llu samples of %zu bytes", name,
                          (unsigned long long)info.samples, sample_nbytes + label_nbytes);
    for (uint64_t i = 0; status == FY_STATUS_OK && i < info.samples * length; i++) {
        data[i] = text[i];
        labels[i] = text[i + 1];
    }
    return fyt_dataset_new(status, &info, data, labels, out_dataset);
}

fy_status_t fyt_dataset_parse_text(fyt_source_t *source, int64_t context, uint64_t max_samples,
                                   fy_dataset_t **out_dataset)
{
    unsigned char *text = NULL;
    uint64_t used = 0, room = 0, got = 0;
    fy_status_t status = FY_STATUS_OK;
    do {
        if (used == room) {
            room = room ? 2 * room : FIRST_ROOM;
            unsigned char *more = realloc(text, room);
            if (!more) {
                status = FYT_FAIL(OUT_OF_MEMORY, "%s: no host memory for %llu bytes", source->name,
                                  (unsigned long long)room);
                break;
            }
            text = more;
        }
        status = fyt_source_read(source, text + used, room - used, &got);
        used += got;
    } while (status == FY_STATUS_OK && used == room);
    if (status == FY_STATUS_OK)
        status = cut(text, used, context, max_samples, source->name, out_dataset);
    free(text);
    return status;
}

static fy_status_t check_context(const char *what, int64_t context)
{
    if (context >= 1 && context <= 1 << 24) return FY_STATUS_OK;
    return FYT_FAIL(INVALID_ARGUMENT, "%s: context is %lld bytes; legal are 1 to %d", what,
                    (long long)context, 1 << 24);
}

fy_status_t fy_dataset_read_text(const char *path, int64_t context,
                                 const fy_dataset_options_t *options, fy_dataset_t **out_dataset)
{
    fy_dataset_options_t checked;
    fyt_source_t source = { 0 };
    FY_TRY(FYT_CLEAR_OUT("dataset_read_text", out_dataset));
    if (!path) return FYT_FAIL(INVALID_ARGUMENT, "dataset_read_text: path is NULL");
    FY_TRY(check_context("dataset_read_text", context));
    FY_TRY(FY__READ(dataset_options, "dataset", options, &checked));
    fy_status_t status = fyt_source_open_file(path, checked.max_nbytes, &source);
    if (status == FY_STATUS_OK)
        status = fyt_dataset_parse_text(&source, context, checked.max_samples, out_dataset);
    fyt_source_close(&source);
    return status;
}

/* ---- generated text ---- */

static const char *pick(uint64_t *state, const char *const *words, size_t count)
{
    return words[fyt_draw(state) % count];
}

/* "the small ferry carries a heavy crate. " */
static size_t write_sentence(uint64_t *state, char *text, size_t size)
{
    static const char *const articles[] = { "the", "a", "one", "every" };
    static const char *const adjectives[] = { "small", "heavy", "old", "bright", "quiet", "fast" };
    static const char *const nouns[] = { "ferry",  "crate", "harbour", "island",
                                         "sailor", "lamp",  "river",   "bridge" };
    static const char *const verbs[] = { "carries", "meets", "follows", "finds", "leaves" };
#define PICK(words) pick(state, words, sizeof(words) / sizeof *(words))
    const int length = snprintf(text, size, "%s %s %s %s %s %s. ", PICK(articles), PICK(adjectives),
                                PICK(nouns), PICK(verbs), PICK(articles), PICK(nouns));
#undef PICK
    return (size_t)length;
}

fy_status_t fy_dataset_synthetic_text(uint64_t nbytes, int64_t context, uint64_t seed,
                                      fy_dataset_t **out_dataset)
{
    char sentence[128];
    FY_TRY(FYT_CLEAR_OUT("dataset_synthetic_text", out_dataset));
    FY_TRY(check_context("dataset_synthetic_text", context));
    if (nbytes < (uint64_t)context + 1 || nbytes > PTRDIFF_MAX)
        return FYT_FAIL(
            INVALID_ARGUMENT,
            "dataset_synthetic_text: %llu bytes; legal are %lld, one more than a sample, to "
            "%llu",
            (unsigned long long)nbytes, (long long)context + 1, (unsigned long long)PTRDIFF_MAX);
    unsigned char *text = malloc(nbytes);
    if (!text)
        return FYT_FAIL(OUT_OF_MEMORY, "dataset_synthetic_text: no host memory for %llu bytes",
                        (unsigned long long)nbytes);
    for (uint64_t used = 0; used < nbytes;) {
        const size_t length = write_sentence(&seed, sentence, sizeof sentence);
        const uint64_t left = nbytes - used, n = length < left ? length : left;
        memcpy(text + used, sentence, n);
        used += n;
    }
    const fy_status_t status = cut(text, nbytes, context, 0, "dataset_synthetic_text", out_dataset);
    free(text);
    return status;
}
