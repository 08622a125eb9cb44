/* Experiments E8 and E9: LeNet or ResNet-18 trained by one thread on 1, 2, 4, ... devices. Each
 * has a copy of the model and gets a shard of each batch; losses are summed over the shard,
 * gradients over the devices (fy_allreduce_sum), and the update divides by the whole batch: so
 * the parameters are those of one device, up to the order of sums. Not here: the transfers
 * (train/parallel.c). How to read it: docs/experiments.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/experiments/exp_parallel.h"

enum { MOST_DEVICES = 8, MOST_RUNS = 4, PIXELS = 28 * 28, MADE_UP = 10000 };

/* The published settings. `grows`: batch and learning rate are those of one device, n devices
 * have n times both. `is_equal`: n devices come to the parameters of one; batch norm takes its
 * statistics from the shard of a device, so a model that has it does not. */
typedef struct net {
    const char *name;
    int64_t batch;
    double lr;
    bool grows, is_equal;
} net_t;

static const net_t nets[] = { { "lenet", 256, 0.2, false, true },
                              { "resnet18", 256, 0.1, true, false } };

typedef struct request {
    const net_t *net;
    const char *data;
    int64_t devices, batch, steps, seed;
    effort_t effort;
    const char *lr_text;
    double lr;
} request_t;

/* One training, on `count` devices. */
typedef struct training {
    size_t count;
    fy_device_t *devices[MOST_DEVICES]; /* [0] is the session's */
    fy_model_t *models[MOST_DEVICES];
    fy_tape_t *tapes[MOST_DEVICES];
    fy_tensor_t *grads[MOST_DEVICES], *values[MOST_DEVICES]; /* the models' blocks */
} training_t;

/* The printed explanation. */
typedef struct outcome {
    size_t count;
    int64_t batch;
    double lr;
    double first_loss, last_loss; /* mean of a batch */
    /* ||p - p1|| / ||p1||, p1 the parameters that one device has come to, all of them */
    double difference;
    /* the same of the tensor where it is largest: one whose gradient is all but 0 has little but
     * rounding in it */
    double worst_tensor;
    int replicas_are_equal;
    double ns, model_ns;           /* a step */
    spread_t spread, model_spread; /* the same, of all rounds */
    double peer_nbytes, peer_count, uploads, downloads;
    char refusal[512]; /* what is said to one who reads a weight on the host */
} outcome_t;

/* ---- data ---- */

static fy_status_t open_digits(const request_t *request, const char **out_origin,
                               fy_dataset_t **out_digits)
{
    *out_origin = data_folder(request->data);
    const fy_status_t status = fy_dataset_open("mnist", *out_origin, 0, out_digits);
    if (!data_may_be_made_up(request->data, "mnist", status)) return status;
    *out_origin = "synthetic";
    return fy_dataset_synthetic_digits(MADE_UP, 1, out_digits);
}

fy_status_t fill_digits(const fy_dataset_t *digits, int64_t first, int64_t count, fy_tensor_t *x,
                        fy_tensor_t *y)
{
    void *pixels, *labels;
    unsigned char image[PIXELS];
    fy_dataset_info_t info = FY_DATASET_INFO_INIT;
    FY_TRY(fy_dataset_query(digits, &info));
    FY_TRY(fy_tensor_map(x, FY_ACCESS_WRITE, &pixels));
    FY_TRY(fy_tensor_map(y, FY_ACCESS_WRITE, &labels));
    for (int64_t i = 0; i < count; i++) {
        const uint64_t index = (uint64_t)(first + i) % info.samples;
        FY_TRY(fy_dataset_get(digits, index, image, (int32_t *)labels + i));
        for (int p = 0; p < PIXELS; p++)
            ((float *)pixels)[i * PIXELS + p] = (float)image[p] / 255.0f;
    }
    return FY_STATUS_OK;
}

/* ---- one training ---- */

static void end_training(training_t *t)
{
    for (size_t i = 0; i < t->count; i++) fy_model_destroy(t->models[i]);
    for (size_t i = 1; i < t->count; i++) fy_device_close(t->devices[i]);
}

static fy_status_t begin_training(session_t *session, const request_t *request, size_t count,
                                  training_t *t)
{
    *t = (training_t){ .count = count, .devices = { session->device } };
    for (size_t i = 1; i < count; i++) FY_TRY(session_open_sibling(session, i, &t->devices[i]));
    for (size_t i = 0; i < count; i++) {
        fy_model_options_t options = FY_MODEL_OPTIONS_INIT;
        fy_model_info_t info = FY_MODEL_INFO_INIT;
        /* another one each: that replicas are equal is the transfer's doing */
        options.seed = request->seed + (int64_t)i;
        FY_TRY(fy_model_open(t->devices[i], request->net->name, &options, &t->models[i]));
        FY_TRY(fy_model_query(t->models[i], &info));
        t->values[i] = info.values;
        t->grads[i] = info.grads;
        FY_TRY(fy_tape_create(&t->tapes[i]));
        FY_TRY(fy_model_watch(t->models[i], t->tapes[i]));
    }
    return fy_models_replicate(count, t->models);
}

/* Forward and backward of one shard; *loss is the sum over it. */
static fy_status_t run_shard(training_t *t, size_t i, fy_tensor_t *x, fy_tensor_t *y,
                             fy_tensor_t **loss)
{
    fy_tensor_t *logits;
    FY_TRY(fy_tape_begin(t->tapes[i]));
    FY_TRY(fy_model_forward(t->models[i], x, &logits));
    FY_TRY(fy_cross_entropy(logits, y, FY_REDUCTION_SUM, loss));
    fy_tensor_destroy(logits);
    return fy_model_backward(t->models[i], t->tapes[i], *loss, NULL);
}

static fy_status_t run_step(training_t *t, const request_t *request, const fy_tensor_t *x,
                            const fy_tensor_t *y, fy_tensor_t **losses)
{
    fy_tensor_t *xs[MOST_DEVICES], *ys[MOST_DEVICES];
    FY_TRY(fy_batch_split(x, t->count, t->devices, xs));
    FY_TRY(fy_batch_split(y, t->count, t->devices, ys));
    for (size_t i = 0; i < t->count; i++) FY_TRY(run_shard(t, i, xs[i], ys[i], &losses[i]));
    FY_TRY(fy_allreduce_sum(t->count, t->grads));
    for (size_t i = 0; i < t->count; i++)
        FY_TRY(fy_axpy(t->values[i], -request->lr / (double)request->batch, t->grads[i]));
    return FY_STATUS_OK;
}

static fy_status_t sum_losses(size_t count, fy_tensor_t *const *losses, double scale,
                              double *out_loss)
{
    *out_loss = 0;
    for (size_t i = 0; i < count; i++) {
        fy_download_t *download;
        double loss;
        FY_TRY(fy_tensor_download(losses[i], &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE,
                                  &download));
        FY_TRY(fy_download_wait_f64(download, FY_FOREVER, &loss));
        *out_loss += loss * scale;
    }
    return FY_STATUS_OK;
}

static fy_status_t wait_all(const training_t *t)
{
    for (size_t i = 0; i < t->count; i++) FY_TRY(fy_device_wait(t->devices[i], FY_FOREVER));
    return FY_STATUS_OK;
}

static fy_status_t train(session_t *session, training_t *t, const request_t *request,
                         const fy_dataset_t *digits, outcome_t *out)
{
    fy_tensor_t *x, *y;
    FY_TRY(
        fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(request->batch, 28, 28, 1), &x));
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_I32, FY_DIMS(request->batch), &y));
    FY_TRY(wait_all(t));
    const double begin = wall_ns(), model_begin = session_model_ns(session);
    for (int64_t step = 0; step < request->steps; step++) {
        fy_tensor_t *losses[MOST_DEVICES] = { NULL };
        const fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(fill_digits(digits, step * request->batch, request->batch, x, y));
        FY_TRY(run_step(t, request, x, y, losses));
        if (step == 0)
            FY_TRY(sum_losses(t->count, losses, 1 / (double)request->batch, &out->first_loss));
        if (step + 1 == request->steps)
            FY_TRY(sum_losses(t->count, losses, 1 / (double)request->batch, &out->last_loss));
        fy_scope_end(scope, 0, NULL);
        progress("step", step + 1, request->steps);
    }
    FY_TRY(wait_all(t));
    out->ns = (wall_ns() - begin) / (double)request->steps;
    out->model_ns = (session_model_ns(session) - model_begin) / (double)request->steps;
    return FY_STATUS_OK;
}

/* ---- what must hold ---- */

static fy_status_t fetch(const fy_tensor_t *tensor, fy_tensor_t **out_host)
{
    fy_download_t *download;
    FY_TRY(fy_tensor_download(tensor, &(fy_transfer_options_t)FY_TRANSFER_OPTIONS_HERE, &download));
    return fy_download_wait(download, FY_FOREVER, out_host);
}

double add_difference(const float *a, const float *b, uint64_t n, double sums[2])
{
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)a[i] * (double)a[i];
    }
    sums[0] += difference;
    sums[1] += norm;
    return norm > 0 ? sqrt(difference / norm) : difference > 0 ? INFINITY : 0;
}

/* Against the parameters that one device has come to, tensor by tensor; `first` is NULL for that
 * one. */
static fy_status_t compare(const training_t *t, fy_tensor_t **first, outcome_t *out)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    double sums[2] = { 0, 0 };
    FY_TRY(fy_model_query(t->models[0], &info));
    for (size_t p = 0; p < info.nparams; p++) {
        fy_tensor_t *host[MOST_DEVICES] = { NULL };
        void *data[MOST_DEVICES] = { NULL }, *want = NULL;
        fy_tensor_info_t facts = FY_TENSOR_INFO_INIT;
        for (size_t i = 0; i < t->count; i++) {
            fy_param_t param = FY_PARAM_INIT;
            FY_TRY(fy_model_param(t->models[i], p, &param));
            FY_TRY(fetch(param.value, &host[i]));
            FY_TRY(fy_tensor_map(host[i], FY_ACCESS_READ, &data[i]));
        }
        FY_TRY(fy_tensor_query(host[0], &facts));
        for (size_t i = 1; i < t->count; i++)
            out->replicas_are_equal &= memcmp(data[0], data[i], facts.nbytes) == 0;
        if (!first[p]) first[p] = host[0];
        FY_TRY(fy_tensor_map(first[p], FY_ACCESS_READ, &want));
        if (!want || !data[0]) return TOOL_FAIL(INTERNAL, "a parameter without bytes");
        const double difference = add_difference(want, data[0], facts.nelem, sums);
        if (!(difference <= out->worst_tensor)) out->worst_tensor = difference;
    }
    out->difference = sqrt(sums[0] / sums[1]);
    return FY_STATUS_OK;
}

/* A weight that lives on a device cannot be read on the host: the experiment shows the error
 * text. */
static fy_status_t show_refusal(const training_t *t, outcome_t *out)
{
    fy_param_t param = FY_PARAM_INIT;
    void *data;
    fy_device_info_t info = FY_DEVICE_INFO_INIT;
    FY_TRY(fy_device_query(t->devices[t->count - 1], &info));
    if (info.is_host) return FY_STATUS_OK;
    FY_TRY(fy_model_param(t->models[t->count - 1], 0, &param));
    if (fy_tensor_map(param.value, FY_ACCESS_READ, &data) != FY_STATUS_DEVICE_MISMATCH)
        return TOOL_FAIL(INTERNAL, "a weight on %s was read on the host",
                         fy_device_name(t->devices[t->count - 1]));
    snprintf(out->refusal, sizeof out->refusal, "%s: %s", fy_status_name(fy_error_get()->status),
             fy_error_get()->text);
    return FY_STATUS_OK;
}

static fy_status_t measure(session_t *session, const request_t *request, const fy_dataset_t *digits,
                           size_t count, fy_tensor_t **first, outcome_t *out)
{
    char name[32], path[64];
    training_t training;
    snprintf(name, sizeof name, "devices-%zu", count);
    snprintf(path, sizeof path, "parallel/%s/step", name);
    *out = (outcome_t){ .count = count, .replicas_are_equal = 1 };
    const fy_scope_t scope = fy_scope_begin(name);
    request_t scaled = *request;
    if (request->net->grows) {
        scaled.batch *= (int64_t)count;
        scaled.lr *= (double)count;
    }
    request = &scaled;
    out->batch = scaled.batch;
    out->lr = scaled.lr;
    fy_status_t status = begin_training(session, request, count, &training);
    const fy_ledger_totals_t before = ledger_read(path);
    if (status == FY_STATUS_OK) status = train(session, &training, request, digits, out);
    const fy_ledger_totals_t after = ledger_read(path);
    const double steps = (double)request->steps;
    out->peer_nbytes = (double)(after.peer.nbytes - before.peer.nbytes) / steps;
    out->peer_count = (double)(after.peer.count - before.peer.count) / steps;
    out->uploads = (double)(after.upload.count - before.upload.count) / steps;
    out->downloads = (double)(after.download.count - before.download.count);
    if (status == FY_STATUS_OK && session->info.numerics) status = compare(&training, first, out);
    if (status == FY_STATUS_OK) status = show_refusal(&training, out);
    for (size_t p = 0; first[p]; p++) fy_tensor_keep(first[p]);
    fy_scope_end(scope, 0, NULL);
    end_training(&training);
    return status;
}

/* Each round is the whole training; what it comes to is that of the first. */
static fy_status_t measure_rounds(session_t *session, const request_t *request,
                                  const fy_dataset_t *digits, size_t count, fy_tensor_t **first,
                                  outcome_t *out)
{
    sample_t ns = { 0 }, model_ns = { 0 };
    outcome_t again;
    while (!effort_is_met(&request->effort, session->info.is_simulated ? &model_ns : &ns)) {
        outcome_t *round = ns.count ? &again : out;
        FY_TRY(measure(session, request, digits, count, first, round));
        sample_add(&ns, round->ns);
        sample_add(&model_ns, round->model_ns);
    }
    out->spread = sample_spread(&ns);
    out->model_spread = sample_spread(&model_ns);
    return FY_STATUS_OK;
}

/* ---- reporting ---- */

static void print_text(const session_t *session, const request_t *request, const char *origin,
                       const sheet_t *sheet, const outcome_t *outcomes, size_t count)
{
    fprintf(session->out, "parallel: %s, %lld steps (%s), from %s on (%s)\n\n", request->net->name,
            (long long)request->steps, origin, fy_device_name(session->device),
            session->info.model);
    sheet_print(sheet, session->out);
    if (outcomes[count - 1].refusal[0])
        fprintf(session->out, "\nreading a weight of the last replica on the host:\n%s\n",
                outcomes[count - 1].refusal);
}

static fy_status_t report(session_t *session, const request_t *request, const char *origin,
                          const outcome_t *outcomes, size_t count)
{
    static const column_t columns[] = {
        { "devices", "devices", 0 },
        { "batch", "batch", 0 },
        { "lr", "lr", 3 },
        { "first_loss", "first loss", 5 },
        { "last_loss", "last loss", 5 },
        { "difference", "difference from one", 3 },
        { "worst_tensor", "worst tensor", 3 },
        { "replicas_equal", "replicas equal", 0 },
        { "peer_bytes_per_step", "peer bytes/step", 0 },
        { "peer_transfers_per_step", "peer transfers/step", 0 },
        SPREAD_HIDDEN("model_ns_per_step", "model ns/step", 0),
        SPREAD_COLUMNS("ns_per_step", "wall ns/step", 0),
        { "status", "status", 0 },
        ROUNDS_COLUMN,
    };
    bool all_ok = true;
    sheet_t *sheet = sheet_create(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < count; i++) {
        const outcome_t *o = &outcomes[i];
        const bool is_equal = !request->net->is_equal || o->difference <= 1e-5;
        const bool ok = !session->info.numerics || (o->replicas_are_equal && is_equal);
        all_ok &= ok;
        sheet_int(sheet, (int64_t)o->count);
        sheet_int(sheet, o->batch);
        sheet_real(sheet, o->lr);
        sheet_real(sheet, o->first_loss);
        sheet_real(sheet, o->last_loss);
        sheet_real(sheet, session->info.numerics ? o->difference : NAN);
        sheet_real(sheet, session->info.numerics ? o->worst_tensor : NAN);
        sheet_text(sheet, o->replicas_are_equal ? "yes" : "no");
        sheet_real(sheet, o->peer_nbytes);
        sheet_real(sheet, o->peer_count);
        sheet_spread(sheet, &o->model_spread);
        sheet_spread(sheet, &o->spread);
        sheet_text(sheet, ok ? "ok" : "failed");
        sheet_int(sheet, (int64_t)o->spread.rounds);
    }
    if (session->out) print_text(session, request, origin, sheet, outcomes, count);
    if (session->json.file) {
        json_text(&session->json, "model", request->net->name);
        json_text(&session->json, "data", origin);
        json_int(&session->json, "batch", request->batch);
        json_int(&session->json, "steps", request->steps);
        json_real(&session->json, "lr", request->lr);
        json_text(&session->json, "clock", "wall");
        sheet_json(sheet, &session->json, "runs");
        json_text(&session->json, "refusal", outcomes[count - 1].refusal);
    }
    session_statistics(session, &request->effort, NULL);
    fy_status_t status = session_finish(session, sheet, NULL);
    if (status == FY_STATUS_OK && !all_ok)
        status = TOOL_FAIL(BAD_VALUE, "parameters on several devices are not those of one (1e-5), "
                                      "or replicas differ: see the table");
    return status;
}

static fy_status_t run(session_t *session, const request_t *request)
{
    enum { MOST_PARAMS = 128 };
    fy_tensor_t *first[MOST_PARAMS] = { NULL };
    outcome_t outcomes[MOST_RUNS];
    const char *origin;
    fy_dataset_t *digits;
    size_t count = 0;
    FY_TRY(open_digits(request, &origin, &digits));
    fy_status_t status = FY_STATUS_OK;
    for (int64_t n = 1; n <= request->devices && status == FY_STATUS_OK; n *= 2)
        status = measure_rounds(session, request, digits, (size_t)n, first, &outcomes[count++]);
    fy_dataset_destroy(digits);
    for (size_t p = 0; p < MOST_PARAMS; p++) fy_tensor_destroy(first[p]);
    return status == FY_STATUS_OK ? report(session, request, origin, outcomes, count) : status;
}

int exp_parallel(int argc, char **argv)
{
    common_t common = { .device = "sim:0" };
    scaling_t scaling = { .model = NULL };
    request_t request = { .devices = 4, .steps = 20, .seed = 1, .effort = { .rounds = 1 } };
    const option_t options[] = {
        { "data", OPTION_TEXT, "DIR", &request.data, "folder with MNIST's files" },
        { "devices", OPTION_INT, "N", &request.devices,
          "up to how many devices: 1, 2, 4, ... of them", 1, MOST_DEVICES },
        { "batch", OPTION_INT, "N", &request.batch,
          "samples a step: lenet over all devices, default 256; resnet18 for each device, default "
          "256",
          MOST_DEVICES, 65536 },
        { "steps", OPTION_INT, "N", &request.steps, "steps of each training", 1, 1000000 },
        { "lr", OPTION_TEXT, "X", &request.lr_text,
          "learning rate; default: lenet 0.2, resnet18 0.1 times the number of devices" },
        { "seed", OPTION_INT, "N", &request.seed, "of the initial values", 0, INT32_MAX },
        { "ranks", OPTION_INT, "N", &scaling.ranks.ranks,
          "trains nothing: predicts weak and strong scaling on 1, 2, 4, ... N ranks from plans", 1,
          RANKS_MOST },
        { "per-node", OPTION_INT, "N", &scaling.per_node,
          "of --ranks: ranks of a node, a power of two; default 8", 1, RANKS_MOST },
        { "total-batch", OPTION_INT, "N", &scaling.total,
          "of --ranks: batch of strong scaling, over all ranks; default 32 times --batch, which is "
          "that of a rank in weak scaling",
          1, 1 << 30 },
        RANKS_NET_OPTIONS(&scaling.ranks),
        EFFORT_OPTIONS(&request.effort),
        TRAFFIC_OPTION(&common),
        COMMON_OPTIONS(&common),
    };
    const usage_t usage = {
        "ferry experiment parallel MODEL",
        "Trains MODEL, lenet (the default) or resnet18, by one thread on 1, 2, 4, ... devices: "
        "shards of "
        "each batch, gradients summed by peer transfers.\n"
        "ResNet-18 has batch norm, whose statistics are those of a device's shard: its parameters "
        "depend on the number of devices.\n"
        "Data: --data, else $FERRY_DATA, else data/, else made-up digits.",
        options, sizeof options / sizeof *options,
        "ferry experiment parallel --devices 2 --steps 2\n"
        "ferry experiment parallel lenet --ranks 64 --net eth25\n"
        "ferry experiment parallel resnet18 --steps 2 --device 'sim:0?profile=h200&numerics=off'\n"
    };
    const bool is_named = argc > 1 && argv[1][0] != '-';
    request.net = &nets[0];
    for (size_t i = 0; is_named && i < sizeof nets / sizeof *nets; i++)
        if (strcmp(argv[1], nets[i].name) == 0) request.net = &nets[i];
    if (is_named && strcmp(argv[1], request.net->name) != 0) {
        fprintf(
            stderr,
            "ferry experiment parallel: there is no model '%s' here; there are lenet, resnet18\n",
            argv[1]);
        return STATUS_USAGE;
    }
    OPTIONS_TRY(options_parse(&usage, is_named ? argc - 1 : argc, is_named ? argv + 1 : argv));
    if (!scaling_check(common.device, &scaling)) return STATUS_USAGE;
    if (common.plot && !scaling.ranks.ranks) {
        fprintf(stderr, "%s: --plot: this table has no figure; --csv FILE writes its numbers\n",
                usage.command);
        return STATUS_USAGE;
    }
    char *end = NULL;
    if (!request.batch) request.batch = request.net->batch;
    request.lr = request.lr_text ? strtod(request.lr_text, &end) : request.net->lr;
    if (request.lr_text &&
        (end == request.lr_text || *end || !isfinite(request.lr) || request.lr < 0)) {
        fprintf(stderr, "%s: --lr takes a number, 0 or more, not '%s'\n", usage.command,
                request.lr_text);
        return STATUS_USAGE;
    }
    session_t session;
    fy_status_t status = session_begin(&session, &common, usage.command, "experiment", "parallel");
    scaling.model = request.net->name;
    scaling.batch = request.batch;
    if (status == FY_STATUS_OK)
        status = scaling.ranks.ranks ? scaling_run(&session, &scaling) : run(&session, &request);
    return session_end_experiment(&session, status);
}
