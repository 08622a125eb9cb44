/* The table of synthetic traces: see synthetic.h. */
#include "tests/traces/synthetic.h"

#include <string.h>

static const char device[] = "sim:0", pinned[] = "pinned memory of sim:0";

const synthetic_t synthetic_traces[] = {
    { "lenet_train", device, "lenet, batch 256 of 28x28x1, six training steps, SGD", fill_lenet },
    { "mnist_train", device,
      "mnist (conv 32, conv 64, 9216-128-10), batch 64, six training steps, Adadelta", fill_mnist },
    { "resnet18_train", device,
      "resnet18 (small images), batch 32 of 96x96x3, six training steps, SGD with momentum",
      fill_resnet18 },
    { "resnet18_infer", device,
      "resnet18, 40 batches of 1 to 64 images of 96x96x3, activations freed as soon as they are "
      "read",
      fill_resnet18_inference },
    { "mobilenet_train", device,
      "mobilenet_v3_large, batch 16 of 224x224x3, four training steps, Adam", fill_mobilenet },
    { "transformer_train", device,
      "six layers of a transformer (d 512, 8 heads), batch 16, length 64 to 512 by the step, 16 "
      "steps, Adam",
      fill_transformer },
    { "churn_uniform", device,
      "random blocks of 4 KiB to 4 MiB, any size alike, freed in random order; 256 MiB at "
      "most",
      fill_churn_uniform },
    { "churn_power_plus_one", device,
      "random blocks of 2^k + 1 bytes, k from 12 to 22, freed in random order; 256 MiB at "
      "most",
      fill_churn_power },
    { "loaders_pinned", pinned,
      "three loaders of image batches with labels, four batches ahead each, at different "
      "speeds; the last batch is short",
      fill_loaders },
    { "tokens_pinned", pinned,
      "a loader of text: 32 batches ahead, lengths 64 to 4096 tokens, 8 to 64 rows, three tensors "
      "each",
      fill_tokens },
    { "checkpoint_pinned", pinned,
      "image batches are uploaded; sometimes all weights and momenta of resnet18 are downloaded "
      "and written",
      fill_checkpoint },
    { "metrics_pinned", pinned,
      "predictions of 1 to 64 MiB are downloaded beside many scalars and small tables",
      fill_metrics },
    { NULL, NULL, NULL, NULL },
};

uint64_t dice_roll(dice_t *dice, uint64_t low, uint64_t high)
{
    dice->state = dice->state * 6364136223846793005u + 1442695040888963407u;
    return low + (dice->state >> 24) % (high - low + 1);
}

void synthetic_make(const synthetic_t *synthetic, traces_t *out_traces)
{
    *out_traces = (traces_t){ .list = NULL };
    trace_t *trace = traces_add(out_traces, synthetic->pool);
    synthetic->fill(trace);
    (void)trace_finish(trace);
}
