/* Checkpoints. A training that stops and resumes from a file ends with the same bits as one that
 * never stopped. Also: the files that are kept and deleted, files that are skipped, refusals that
 * change nothing, and parameters alone. Not here: killed processes (test_checkpoint_kill.c). */
#include "tests/unit/train/fixture.h"
#include "tests/unit/train/resume.h"

#include <math.h>

enum { STEPS = 12 };

static int is_there(const char *name) { return access(in_folder(name), F_OK) == 0; }

static void steps(ts_ctx_t *ctx, resume_t *r, int64_t until)
{
    while (r->progress.step < until) ts_ok(resume_step(ctx->device, r));
}

TS_DEVICE_TEST(a_resumed_training_has_the_same_bits)
{
    char note[32];
    resume_t whole, part;
    assert_int_equal(make_folder(NULL), 0);
    ts_ok(resume_begin(ctx->device, 1, &whole));
    steps(ctx, &whole, STEPS);
    const bits_t want = bits_of(whole.model, whole.optimizer);
    resume_end(&whole);
    for (int64_t stop = 0; stop <= STEPS; stop += 3) {
        snprintf(note, sizeof note, "{\"stop\": %d}", (int)stop);
        ts_ok(resume_begin(ctx->device, 1, &part));
        steps(ctx, &part, stop);
        part.progress.note = note;
        ts_ok(fy_checkpoint_save(folder, part.model, part.optimizer, &part.progress, 1));
        const fy_progress_t saved = part.progress;
        fy_optimizer_options_t saved_options = { .struct_size = sizeof saved_options },
                               options = saved_options;
        ts_ok(fy_optimizer_get(part.optimizer, &saved_options));
        resume_end(&part);
        /* Other initial values, so that none of them is left. */
        ts_ok(resume_begin(ctx->device, 99, &part));
        part.progress = (fy_progress_t)FY_PROGRESS_INIT;
        ts_ok(fy_checkpoint_load(folder, part.model, part.optimizer, &part.progress));
        assert_int_equal(part.progress.step, saved.step);
        assert_int_equal(part.progress.epoch, saved.epoch);
        assert_int_equal(part.progress.epoch_step, saved.epoch_step);
        assert_int_equal(part.progress.seed, saved.seed);
        assert_string_equal(part.progress.note, note);
        assert_true(part.progress.lr == saved_options.lr &&
                    part.progress.momentum == saved_options.beta1);
        ts_ok(fy_optimizer_get(part.optimizer, &options));
        assert_true(options.lr == saved_options.lr && options.beta1 == saved_options.beta1);
        steps(ctx, &part, STEPS);
        expect_bits(bits_of(part.model, part.optimizer), &want);
        resume_end(&part);
    }
    assert_int_equal(empty_folder(folder), 1);
    assert_int_equal(drop_folder(NULL), 0);
    free(want.bytes);
}

/* Writes the file again without its losses. */
static void drop_losses(const char *path)
{
    enum { MOST = 64 };
    fy_safetensors_entry_t entries[MOST];
    fy_safetensors_t *file;
    size_t count = 0;
    ts_ok(fy_safetensors_open(path, &file));
    for (size_t i = 0; i < fy_safetensors_count(file); i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        ts_ok(fy_safetensors_at(file, i, &info));
        if (strcmp(info.name, "losses") == 0) continue;
        fy_tensor_t *tensor;
        assert_true(count < MOST);
        ts_ok(fy_safetensors_read(file, i, &tensor));
        entries[count++] = (fy_safetensors_entry_t){ strdup(info.name), tensor };
    }
    const fy_safetensors_pair_t pairs[] = {
        { "ferry_checkpoint", "1" },
        { "optimizer", fy_safetensors_metadata(file, "optimizer") },
    };
    ts_ok(fy_safetensors_write(path, count, entries, 2, pairs));
    fy_safetensors_close(file);
    while (count > 0) free((char *)entries[--count].name);
}

/* Losses are saved and loaded, also NaN; a file from before there were any has none. */
TS_DEVICE_TEST(losses_are_part_of_the_progress)
{
    resume_t r;
    fy_progress_t progress = FY_PROGRESS_INIT;
    assert_int_equal(make_folder(NULL), 0);
    ts_ok(resume_begin(ctx->device, 1, &r));
    steps(ctx, &r, 3);
    r.progress.loss_sum = (double)NAN;
    r.progress.loss_samples = 16;
    r.progress.interval_loss_sum = 2.5;
    r.progress.interval_samples = 8;
    ts_ok(fy_checkpoint_save(folder, r.model, r.optimizer, &r.progress, 1));
    ts_ok(fy_checkpoint_load(folder, r.model, r.optimizer, &progress));
    assert_true(isnan(progress.loss_sum) && progress.loss_samples == 16);
    assert_true(progress.interval_loss_sum == 2.5 && progress.interval_samples == 8);
    drop_losses(in_folder("step-00000003.safetensors"));
    ts_ok(fy_checkpoint_load(folder, r.model, r.optimizer, &progress));
    assert_true(progress.step == 3 && progress.loss_samples == 0 && progress.interval_samples == 0);
    resume_end(&r);
    assert_int_equal(drop_folder(NULL), 0);
}

/* Numbers that a load would refuse are not saved, so the older checkpoint stays. */
TS_DEVICE_TEST(impossible_progress_is_not_saved)
{
    resume_t r;
    assert_int_equal(make_folder(NULL), 0);
    ts_ok(resume_begin(ctx->device, 1, &r));
    ts_ok(fy_checkpoint_save(folder, r.model, NULL, &r.progress, 1));
#define REFUSES(field, value)                                                               \
    do {                                                                                    \
        fy_progress_t bad = FY_PROGRESS_INIT;                                               \
        bad.step = 1, bad.field = value;                                                    \
        ts_fails_with(fy_checkpoint_save(folder, r.model, NULL, &bad, 1), INVALID_ARGUMENT, \
                      "all must be finite, 0 or more");                                     \
    } while (0)
    REFUSES(step, -1);
    REFUSES(epoch, -1);
    REFUSES(epoch_step, -1);
    REFUSES(lr, NAN);
    REFUSES(momentum, -1);
    REFUSES(loss_samples, -1);
    REFUSES(interval_samples, INFINITY);
#undef REFUSES
    ts_ok(fy_checkpoint_load(folder, r.model, NULL, &r.progress));
    assert_int_equal(r.progress.step, 0);
    resume_end(&r);
    assert_int_equal(drop_folder(NULL), 0);
}

/* Each optimizer with its state; SGD with and without momentum, Adam with loss scaling, too. */
TS_DEVICE_TEST(every_optimizer_resumes)
{
    fy_loss_scaling_options_t scaling = FY_LOSS_SCALING_OPTIONS_INIT;
    scaling.growth_interval = 2;
    for (int row = 0; row < FY_OPTIMIZER_COUNT + 2; row++) {
        fy_optimizer_options_t options;
        resume_t part, whole;
        double scale;
        fy_optimizer_defaults((fy_optimizer_kind_t)(row % FY_OPTIMIZER_COUNT), &options,
                              sizeof options);
        if (row == FY_OPTIMIZER_COUNT) options.momentum = 0.9;
        if (row == FY_OPTIMIZER_COUNT + 1) options.loss_scaling = &scaling;
        assert_int_equal(make_folder(NULL), 0);
        ts_ok(resume_begin_with(ctx->device, 1, &options, &whole));
        steps(ctx, &whole, 3);
        ts_ok(fy_checkpoint_save(folder, whole.model, whole.optimizer, &whole.progress, 1));
        ts_ok(resume_begin_with(ctx->device, 99, &options, &part));
        ts_ok(fy_checkpoint_load(folder, part.model, part.optimizer, &part.progress));
        ts_ok(fy_optimizer_query_scale(part.optimizer, &scale));
        assert_true(scale == (options.loss_scaling ? 131072 : 1));
        steps(ctx, &whole, 5);
        steps(ctx, &part, 5);
        ts_ok(fy_optimizer_query_scale(part.optimizer, &scale));
        assert_true(scale == (options.loss_scaling ? 262144 : 1));
        const bits_t want = bits_of(whole.model, whole.optimizer);
        expect_bits(bits_of(part.model, part.optimizer), &want);
        free(want.bytes);
        resume_end(&part);
        resume_end(&whole);
        assert_int_equal(empty_folder(folder), 1);
        assert_int_equal(drop_folder(NULL), 0);
    }
}

/* The newest few files stay, and the one just written always does. Left-overs of a killed process
 * are deleted. Other files are not touched. */
TS_DEVICE_TEST(the_newest_checkpoints_are_kept)
{
    static const char *const others[] = { "step-00000001.safetensors.1-0.tmp", "step-1.safetensors",
                                          "best.safetensors", "step-00000001.safetensors.old" };
    resume_t r;
    assert_int_equal(make_folder(NULL), 0);
    ts_ok(resume_begin(ctx->device, 1, &r));
    for (int i = 0; i < 4; i++) fclose(fopen(in_folder(others[i]), "w"));
    for (r.progress.step = 1; r.progress.step <= 5; r.progress.step++)
        ts_ok(fy_checkpoint_save(folder, r.model, r.optimizer, &r.progress, 3));
    assert_false(is_there("step-00000001.safetensors") || is_there("step-00000002.safetensors"));
    assert_true(is_there("step-00000003.safetensors") && is_there("step-00000004.safetensors") &&
                is_there("step-00000005.safetensors"));
    assert_false(is_there(others[0]));
    for (int i = 1; i < 4; i++) assert_true(is_there(others[i]));
    r.progress.step = 2; /* a training that returned to an earlier step */
    ts_ok(fy_checkpoint_save(folder, r.model, r.optimizer, &r.progress, 1));
    assert_true(is_there("step-00000002.safetensors") && is_there("step-00000005.safetensors"));
    r.progress.step = 123456789;
    ts_ok(fy_checkpoint_save(folder, r.model, r.optimizer, &r.progress, 1));
    r.progress.step = 0;
    ts_ok(fy_checkpoint_load(folder, r.model, r.optimizer, &r.progress));
    assert_int_equal(r.progress.step, 123456789);
    assert_int_equal(empty_folder(folder), 4);
    assert_int_equal(drop_folder(NULL), 0);
    resume_end(&r);
}

static void keep_text(void *user, fy_log_level_t level, const char *text)
{
    (void)level;
    snprintf(user, 512, "%s", text);
}

TS_DEVICE_TEST(incomplete_files_are_skipped)
{
    char said[512] = "";
    resume_t r;
    assert_int_equal(make_folder(NULL), 0);
    ts_ok(resume_begin(ctx->device, 1, &r));
    for (r.progress.step = 1; r.progress.step <= 3; r.progress.step++)
        ts_ok(fy_checkpoint_save(folder, r.model, r.optimizer, &r.progress, 3));
    assert_int_equal(truncate(in_folder("step-00000003.safetensors"), 1000), 0);
    fy_log_set(keep_text, said);
    ts_ok(fy_checkpoint_load(folder, r.model, r.optimizer, &r.progress));
    assert_int_equal(r.progress.step, 2);
    assert_non_null(strstr(said, "step-00000003.safetensors is not a whole"));
    /* complete, but not a checkpoint */
    ts_ok(fy_model_save(r.model, in_folder("step-00000002.safetensors")));
    ts_ok(fy_checkpoint_load(folder, r.model, r.optimizer, &r.progress));
    assert_int_equal(r.progress.step, 1);
    assert_int_equal(truncate(in_folder("step-00000001.safetensors"), 0), 0);
    ts_fails(fy_checkpoint_load(folder, r.model, r.optimizer, &r.progress), CORRUPT_DATA);
    fy_log_set(NULL, NULL);
    assert_int_equal(drop_folder(NULL), 0);
    resume_end(&r);
}

/* A model with one different layer, and a file that was tampered with: nothing changes. */
TS_DEVICE_TEST(a_refused_load_changes_nothing)
{
    resume_t r;
    fy_layer_t *layer;
    fy_optimizer_t *sgd;
    assert_int_equal(make_folder(NULL), 0);
    ts_ok(resume_begin(ctx->device, 1, &r));
    ts_fails_with(fy_checkpoint_load(folder, r.model, r.optimizer, &r.progress), UNAVAILABLE,
                  "no checkpoint in");
    ts_fails(fy_checkpoint_load(in_folder("none"), r.model, r.optimizer, &r.progress), UNAVAILABLE);
    ts_fails(fy_checkpoint_save(folder, r.model, r.optimizer, &r.progress, 0), INVALID_ARGUMENT);
    ts_fails_with(fy_checkpoint_save(in_folder("a/b"), r.model, r.optimizer, &r.progress, 1), IO,
                  "cannot make the folder");
    ts_ok(fy_checkpoint_save(folder, r.model, r.optimizer, &r.progress, 1));
    steps(ctx, &r, 2);
    const bits_t before = bits_of(r.model, r.optimizer);
    const fy_model_info_t info = model_info(r.model);
    fy_optimizer_options_t options = optimizer_defaults(FY_OPTIMIZER_SGD);
    ts_ok(fy_optimizer_create(&options, 1, &info.values, &info.grads, &sgd));
    ts_fails_with(fy_checkpoint_load(folder, r.model, sgd, &r.progress), INVALID_ARGUMENT,
                  "is of optimizer 'adam', not 'sgd'");
    ts_ok(fy_layer_linear(RESUME_INPUTS, 3, NULL, &layer));
    const fy_layer_child_t child = { "fc1", layer };
    ts_ok(fy_layer_sequential(1, &child, &layer));
    fy_model_t *other = new_model(ctx->device, layer, 1, (int64_t[]){ RESUME_INPUTS }, NULL);
    ts_fails_with(fy_checkpoint_load(folder, other, NULL, NULL), SHAPE_MISMATCH,
                  "'model.fc1.weight' is [16, 12] in", "and [3, 12] here");
    ts_ok(fy_model_save(other, in_folder("other.safetensors")));
    ts_fails_with(
        fy_checkpoint_load(in_folder("other.safetensors"), r.model, r.optimizer, &r.progress),
        CORRUPT_DATA, "not a checkpoint");
    ts_fails(fy_model_load(r.model, in_folder("other.safetensors")), SHAPE_MISMATCH);
    ts_fails(fy_model_load(r.model, in_folder("step-00000000.safetensors")), INVALID_ARGUMENT);
    expect_bits(bits_of(r.model, r.optimizer), &before);
    ts_ok(fy_checkpoint_load(folder, r.model, NULL, NULL)); /* without the optimizer */
    fy_model_destroy(other);
    fy_optimizer_destroy(sgd);
    assert_int_equal(drop_folder(NULL), 0);
    resume_end(&r);
    free(before.bytes);
}

/* One download, one upload. The file has the parameters under their names, dense. */
TS_DEVICE_TEST(parameters_are_saved_and_loaded_alone)
{
    resume_t a, b;
    fy_safetensors_t *file;
    size_t index;
    assert_int_equal(make_folder(NULL), 0);
    ts_ok(resume_begin(ctx->device, 1, &a));
    ts_ok(resume_begin(ctx->device, 2, &b));
    const fy_ledger_totals_t begin = ts_ledger(NULL);
    ts_ok(fy_model_save(a.model, in_folder("m.safetensors")));
    const fy_ledger_totals_t middle = ts_ledger(NULL);
    ts_ok(fy_model_load(b.model, in_folder("m.safetensors")));
    const fy_ledger_totals_t end = ts_ledger(NULL);
    assert_int_equal(middle.download.count - begin.download.count, 1);
    assert_int_equal(middle.upload.count, begin.upload.count);
    assert_int_equal(end.upload.count - middle.upload.count, 1);
    assert_int_equal(end.download.count, middle.download.count);
    ts_ok(fy_safetensors_open(in_folder("m.safetensors"), &file));
    assert_int_equal(fy_safetensors_count(file), 4);
    ts_ok(fy_safetensors_find(file, "fc1.weight", &index));
    fy_safetensors_close(file);
    float *want = bytes_of(find_param(a.model, "fc1.weight").value);
    ts_expect_f32(find_param(b.model, "fc1.weight").value, want, (size_t)16 * RESUME_INPUTS);
    free(want);
    ts_fails(fy_model_save(a.model, in_folder("no/where")), IO);
    ts_fails(fy_model_load(a.model, in_folder("no/where")), IO);
    resume_end(&b);
    resume_end(&a);
    assert_int_equal(empty_folder(folder), 1);
    assert_int_equal(drop_folder(NULL), 0);
}
