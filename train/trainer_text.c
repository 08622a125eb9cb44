/* What all ranks of a training must have in common, as lines of text: the ranks compare them before
 * the first step, and the first line that differs is in the failure. Layers are compared elsewhere
 * (fy_ddp_create). */
#include "trainer.h"

#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/c_locale.h"
#include "train/loader.h"
#include "train/optimizer.h"

typedef struct text {
    char *at;
    size_t left;
} text_t;

__attribute__((format(printf, 2, 3))) static void put(text_t *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = fy__vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= text->left) return; /* the rest is not compared */
    text->at += length;
    text->left -= (size_t)length;
}

static void put_loader(text_t *text, const char *name, const fy_loader_t *loader)
{
    const fy_loader_options_t *o = &loader->options;
    const fy_dataset_info_t *set = &loader->dataset->info;
    put(text,
        "%s: %llu samples in batches of %lld, %lld an epoch, seed %lld, shuffle %d, drop_last "
        "%d\n",
        name, (unsigned long long)set->samples, (long long)o->batch, (long long)loader->steps,
        (long long)o->seed, !!o->shuffle, !!o->drop_last);
    put(text,
        "%s samples: scale %.17g, channels %d, mean %.17g, std %.17g, resize %lld, pad %lld, "
        "crop %lld, flip %d, augment %d\n",
        name, o->scale, o->channels, o->channels ? o->mean[0] : 0.0, o->channels ? o->std[0] : 1.0,
        (long long)o->resize, (long long)o->pad, (long long)o->crop, !!o->flip, !!o->augment);
}

static void put_training(text_t *text, const fyt_trainer_t *trainer)
{
    const fy_train_options_t *t = trainer->options;
    put(text,
        "training: epochs %lld, max_steps %lld, accumulate %lld, loss %d, precision %s\n"
        "clipping: clip_norm %.17g, clip_value %.17g\n"
        "rhythm: log_every %lld, checkpoint_every %lld, checkpoint %d, test %d, stop %d\n",
        (long long)t->epochs, (long long)t->max_steps, (long long)t->accumulate, (int)t->loss,
        fy_dtype_name(t->precision), t->clip_norm, t->clip_value, (long long)t->log_every,
        (long long)t->checkpoint_every, !!t->checkpoint, !!trainer->test, !!t->stop);
}

static void put_optimizer(text_t *text, const fyt_trainer_t *trainer,
                          const fy_optimizer_options_t *o)
{
    put(text,
        "optimizer: %s, lr %.17g, weight_decay %.17g, momentum %.17g, dampening %.17g, "
        "nesterov %d, beta1 %.17g, beta2 %.17g, rho %.17g, eps %.17g, trust_coefficient %.17g, "
        "decay_min_rank %lld, centered %lld, sharded %d\n",
        fy_optimizer_name(o->kind), o->lr, o->weight_decay, o->momentum, o->dampening, o->nesterov,
        o->beta1, o->beta2, o->rho, o->eps, o->trust_coefficient, (long long)o->decay_min_rank,
        (long long)o->centered, trainer->options->replicas->shards_optimizer != 0);
    put(text, "groups and loss scaling of the optimizer: checksum %016llx\n",
        (unsigned long long)fyt_optimizer_checksum(trainer->optimizer));
}

static void put_schedule(text_t *text, const fy_schedule_t *s)
{
    if (!s) return;
    put(text,
        "schedule: %s, lr %.17g, warmup_steps %lld, warmup_factor %.17g, step_size %lld, gamma "
        "%.17g, total_steps %lld, min_lr %.17g, pct_start %.17g, div_factor %.17g, "
        "final_div_factor %.17g, three_phase %d, linear %d, momentum %.17g to %.17g\n",
        fy_schedule_name(s->kind), s->lr, (long long)s->warmup_steps, s->warmup_factor,
        (long long)s->step_size, s->gamma, (long long)s->total_steps, s->min_lr, s->pct_start,
        s->div_factor, s->final_div_factor, s->three_phase, s->linear, s->base_momentum,
        s->max_momentum);
}

fy_status_t fyt_replicas_text(const fyt_trainer_t *trainer, char *text, size_t size)
{
    fy_optimizer_options_t optimizer = FY_OPTIMIZER_OPTIONS_INIT;
    text_t out = { text, size };
    *text = 0;
    FY_TRY(fy_optimizer_get(trainer->optimizer, &optimizer));
    put(&out, "position: epoch %lld, batch %lld, update %lld\n", (long long)trainer->epoch,
        (long long)trainer->epoch_step, (long long)trainer->step);
    put_loader(&out, "data", trainer->train);
    if (trainer->test) put_loader(&out, "test data", trainer->test);
    put_training(&out, trainer);
    put_optimizer(&out, trainer, &optimizer);
    put_schedule(&out, trainer->options->schedule);
    return FY_STATUS_OK;
}
