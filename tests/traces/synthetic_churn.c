/* Churn and loaders: requests whose sizes and order are random, by fixed seeds. */
#include <string.h>

#include "tests/traces/synthetic.h"

enum { MOST = 20000 };
static const uint64_t kib = 1024, mib = 1024 * 1024;

/* Live blocks, and the sum of their sizes. */
typedef struct crowd {
    trace_t *trace;
    uint32_t scope, blocks[MOST];
    uint64_t sizes[MOST], live;
    int count;
} crowd_t;

static void take(crowd_t *crowd, uint64_t nbytes)
{
    crowd->blocks[crowd->count] = trace_take(crowd->trace, nbytes, crowd->scope);
    crowd->sizes[crowd->count++] = nbytes;
    crowd->live += nbytes;
}

/* `keep_order`: the others stay in the order in which they were allocated. */
static void give(crowd_t *crowd, int at, int keep_order)
{
    trace_give(crowd->trace, crowd->blocks[at], crowd->scope);
    crowd->live -= crowd->sizes[at];
    crowd->count--;
    if (!keep_order) {
        crowd->blocks[at] = crowd->blocks[crowd->count];
        crowd->sizes[at] = crowd->sizes[crowd->count];
    } else {
        const size_t behind = (size_t)(crowd->count - at);
        memmove(&crowd->blocks[at], &crowd->blocks[at + 1], behind * sizeof *crowd->blocks);
        memmove(&crowd->sizes[at], &crowd->sizes[at + 1], behind * sizeof *crowd->sizes);
    }
}

static void churn(trace_t *trace, uint64_t seed, int steps, uint64_t most,
                  uint64_t (*size)(dice_t *dice))
{
    static crowd_t crowd;
    dice_t dice = { seed };
    crowd = (crowd_t){ .trace = trace, .scope = trace_scope(trace, "churn") };
    for (int i = 0; i < steps; i++) {
        const uint64_t nbytes = size(&dice);
        while (crowd.live + nbytes > most)
            give(&crowd, (int)dice_roll(&dice, 0, (uint64_t)crowd.count - 1), 0);
        take(&crowd, nbytes);
    }
}

static uint64_t uniform(dice_t *dice) { return dice_roll(dice, 4 * kib, 4 * mib); }
static uint64_t power_plus_one(dice_t *dice)
{
    return (UINT64_C(1) << dice_roll(dice, 12, 22)) + 1;
}

void fill_churn_uniform(trace_t *trace) { churn(trace, 1, 4000, 256 * mib, uniform); }
void fill_churn_power(trace_t *trace) { churn(trace, 2, 4000, 256 * mib, power_plus_one); }

/* Batches that a loader has prepared: the oldest is freed when the device has it, and a new one is
 * filled. */
typedef struct loader {
    uint32_t scope;
    uint64_t rows, row_nbytes, label_nbytes, samples, left;
    uint32_t ring[4][2];
    int count;
} loader_t;

static void load(trace_t *trace, loader_t *loader, int depth)
{
    if (loader->count == depth) {
        trace_give(trace, loader->ring[0][0], loader->scope);
        trace_give(trace, loader->ring[0][1], loader->scope);
        loader->count--;
        memmove(loader->ring, loader->ring + 1, (size_t)loader->count * sizeof *loader->ring);
    }
    if (!loader->left) loader->left = loader->samples;
    const uint64_t rows = loader->left < loader->rows ? loader->left : loader->rows;
    loader->left -= rows;
    loader->ring[loader->count][0] = trace_take(trace, rows * loader->row_nbytes, loader->scope);
    loader->ring[loader->count++][1] =
        trace_take(trace, rows * loader->label_nbytes, loader->scope);
}

void fill_loaders(trace_t *trace)
{
    dice_t dice = { 3 };
    loader_t loaders[3] = {
        { trace_scope(trace, "train/load"), 64, 4 * 3 * 96 * 96, 8, 1000 },
        { trace_scope(trace, "validate/load"), 100, 3 * 224 * 224, 4, 900 },
        { trace_scope(trace, "pretrain/load"), 300, 4 * 28 * 28, 8, 4000 },
    };
    for (int i = 0; i < 1500; i++) {
        const uint64_t roll = dice_roll(&dice, 0, 9);
        load(trace, &loaders[roll < 6 ? 0 : roll < 8 ? 1 : 2], 4);
    }
}

void fill_tokens(trace_t *trace)
{
    static crowd_t crowd;
    dice_t dice = { 4 };
    crowd = (crowd_t){ .trace = trace, .scope = trace_scope(trace, "train/load") };
    for (int i = 0; i < 1200; i++) {
        const uint64_t length = dice_roll(&dice, 64, 4096), rows = dice_roll(&dice, 8, 64);
        while (crowd.count >= 3 * 32) {
            /* Workers finish nearly in order. */
            const int at = 3 * (int)dice_roll(&dice, 0, 3);
            for (int k = 0; k < 3; k++) give(&crowd, at, 1);
        }
        take(&crowd, 8 * length * rows);
        take(&crowd, 8 * length * rows);
        take(&crowd, length * rows);
    }
}

void fill_checkpoint(trace_t *trace)
{
    static const uint64_t widths[] = { 64,  64,  64,  64,  64,  128, 128, 128, 128,
                                       256, 256, 256, 256, 512, 512, 512, 512 };
    static crowd_t crowd;
    dice_t dice = { 6 };
    crowd = (crowd_t){ .trace = trace };
    loader_t loader = { trace_scope(trace, "train/load"), 128, 4 * 3 * 96 * 96, 8, 5000 };
    crowd.scope = trace_scope(trace, "train/checkpoint");
    for (int step = 0; step < 600; step++) {
        load(trace, &loader, 3);
        /* A weight is written and freed while the next steps run. */
        for (int k = 0; k < 4 && crowd.count; k++)
            give(&crowd, (int)dice_roll(&dice, 0, crowd.count < 8 ? (uint64_t)crowd.count - 1 : 7),
                 1);
        if (step % 60) continue;
        uint64_t in = 3;
        for (size_t i = 0; i < sizeof widths / sizeof *widths; in = widths[i++])
            for (int copy = 0; copy < 2; copy++) { /* weights and momenta */
                take(&crowd, 4 * 9 * in * widths[i]);
                for (int k = 0; k < 3; k++) take(&crowd, 4 * widths[i]);
            }
    }
}

void fill_metrics(trace_t *trace)
{
    static crowd_t crowd;
    dice_t dice = { 7 };
    crowd = (crowd_t){ .trace = trace, .scope = trace_scope(trace, "evaluate/download") };
    for (int i = 0; i < 3000; i++) {
        const uint64_t roll = dice_roll(&dice, 0, 99);
        const uint64_t nbytes = roll < 70   ? dice_roll(&dice, 4, 64)
                                : roll < 95 ? dice_roll(&dice, 256, 200 * kib)
                                            : dice_roll(&dice, mib, 64 * mib);
        while (crowd.count && (crowd.live + nbytes > 192 * mib || crowd.count > 200))
            give(&crowd, (int)dice_roll(&dice, 0, (uint64_t)crowd.count / 4), 1);
        take(&crowd, nbytes);
    }
}
