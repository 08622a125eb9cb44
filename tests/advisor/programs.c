/* The clean programs. In each, the device always has work that was submitted before: inputs are
 * uploaded a step ahead, results are read steps later, and a step allocates nothing new. */
#include "tests/advisor/corpus.h"

fy_status_t corpus_weights(corpus_t *corpus, int count, fy_tensor_t **out_weights)
{
    for (int i = 0; i < count; i++) {
        fy_tensor_t *host;
        FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(WIDTH, WIDTH), &host));
        FY_TRY(fy_tensor_upload(host, corpus->device, HERE, &out_weights[i]));
        fy_tensor_destroy(host);
    }
    return FY_STATUS_OK;
}

/* ---- results ---- */

static fy_status_t read_now(fy_tensor_t *result)
{
    fy_download_t *reply;
    fy_tensor_t *host;
    FY_TRY(fy_tensor_download(result, HERE, &reply));
    FY_TRY(fy_download_wait(reply, FY_FOREVER, &host));
    fy_tensor_destroy(host);
    return FY_STATUS_OK;
}

/* Reads results, oldest first, until at most `most` are outstanding. */
static fy_status_t read_until(late_reads_t *results, int most)
{
    while (results->asked - results->read > most) {
        fy_tensor_t *host;
        FY_TRY(fy_download_wait(results->replies[results->read % LATE], FY_FOREVER, &host));
        fy_tensor_destroy(host);
        results->read++;
    }
    return FY_STATUS_OK;
}

fy_status_t corpus_read(corpus_t *corpus, fy_tensor_t *result)
{
    late_reads_t *results = &corpus->results;
    fy_tensor_t *sum;
    const waste_kind_t kind = corpus->waste.kind;
    if (kind == WASTE_COPY_INTO) return waste_read(result);
    FY_TRY(waste_after_ops(&corpus->waste));
    if (kind == WASTE_BLOCKING_READ) return read_now(result);
    if (kind == WASTE_SCALAR_READ) {
        FY_TRY(fy_sum(result, 0, NULL, 0, &sum));
        return read_now(sum);
    }
    FY_TRY(read_until(results, LATE - 1));
    fy_download_t **reply = &results->replies[results->asked++ % LATE];
    FY_TRY(fy_tensor_download(result, HERE, reply));
    fy_download_keep(*reply);
    return kind == WASTE_DEVICE_WAIT ? fy_device_wait(corpus->device, FY_FOREVER) : FY_STATUS_OK;
}

fy_status_t corpus_read_rest(corpus_t *corpus)
{
    FY_TRY(fy_device_wait(corpus->device, FY_FOREVER));
    FY_TRY(waste_end(&corpus->waste));
    return read_until(&corpus->results, 0);
}

/* ---- training ---- */

enum { LAYERS = 4 };

/* Through the layers and back, with the gradients of a linear network. */
static fy_status_t train_step(corpus_t *corpus, fy_tensor_t *x, fy_tensor_t *const *weights)
{
    fy_tensor_t *h[LAYERS + 1] = { x }, *transposed, *gradient;
    for (int i = 0; i < LAYERS; i++) {
        if (i == 0) FY_TRY(waste_in_step(&corpus->waste, &h[i]));
        if (i == 0) FY_TRY(waste_in_step(&corpus->also, &h[i]));
        FY_TRY(fy_matmul(h[i], weights[i], &h[i + 1]));
        FY_TRY(fy_relu(h[i + 1], &h[i + 1]));
    }
    for (int i = 0; i < LAYERS; i++) {
        FY_TRY(fy_transpose(h[i], NULL, &transposed));
        FY_TRY(fy_matmul(transposed, h[LAYERS], &gradient));
        FY_TRY(fy_axpy(weights[i], -1e-3, gradient));
    }
    if (corpus->waste.kind != WASTE_BLOCKING_READ)
        FY_TRY(fy_mean(h[LAYERS], FY_AXES(0, 1), 0, &h[LAYERS])); /* the loss */
    return corpus_read(corpus, h[LAYERS]);
}

fy_status_t corpus_train(corpus_t *corpus)
{
    fy_tensor_t *host, *x, *weights[LAYERS];
    const int64_t rows = 512 << corpus->variant;
    FY_TRY(fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(rows, WIDTH), &host));
    FY_TRY(fy_tensor_upload(host, corpus->device, NULL, &x));
    FY_TRY(corpus_weights(corpus, LAYERS, weights));
    for (int i = 0; i < STEPS; i++) {
        fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(train_step(corpus, x, weights));
        fy_scope_end(scope, 0, NULL);
    }
    return corpus_read_rest(corpus);
}

/* ---- streaming and answering ---- */

enum { SLOTS = 3 };

/* Batches on their way to the device: page-locked sources, and buffers that take turns. */
typedef struct feed {
    fy_tensor_t *source[SLOTS], *batch[SLOTS];
    fy_ticket_t sent[SLOTS];
} feed_t;

static fy_status_t feed_create(feed_t *feed, fy_device_t *device, int64_t rows)
{
    *feed = (feed_t){ .sent = { { 0, 0 } } };
    for (int i = 0; i < SLOTS; i++) {
        FY_TRY(
            fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(rows, WIDTH), &feed->source[i]));
        FY_TRY(fy_tensor_create(device, FY_DTYPE_F32, FY_DIMS(rows, WIDTH), &feed->batch[i]));
    }
    return FY_STATUS_OK;
}

static fy_status_t feed_send(feed_t *feed, int step)
{
    const int slot = step % SLOTS;
    void *bytes;
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_HERE;
    borrow.contract = FY_HOST_BORROW;
    FY_TRY(fy_ticket_wait(feed->sent[slot], FY_FOREVER));
    FY_TRY(fy_tensor_map(feed->source[slot], FY_ACCESS_WRITE, &bytes));
    return fy_tensor_upload_into(feed->batch[slot], feed->source[slot], &borrow, &feed->sent[slot]);
}

/* `layers` products of each batch; the program reads the last. */
static fy_status_t run_fed(corpus_t *corpus, int64_t rows, int layers)
{
    fy_tensor_t *weights[16], *h;
    feed_t feed;
    FY_TRY(corpus_weights(corpus, layers, weights));
    FY_TRY(feed_create(&feed, corpus->device, rows));
    FY_TRY(feed_send(&feed, 0));
    for (int step = 0; step < STEPS; step++) {
        fy_scope_t scope = fy_scope_begin("step");
        if (step + 1 < STEPS) FY_TRY(feed_send(&feed, step + 1));
        h = feed.batch[step % SLOTS];
        for (int i = 0; i < layers; i++) {
            if (i == 0) FY_TRY(waste_in_step(&corpus->waste, &h));
            if (i == 0) FY_TRY(waste_in_step(&corpus->also, &h));
            FY_TRY(fy_matmul(h, weights[i], &h));
            FY_TRY(fy_relu(h, &h));
        }
        FY_TRY(corpus_read(corpus, h));
        fy_scope_end(scope, 0, NULL);
    }
    return corpus_read_rest(corpus);
}

fy_status_t corpus_stream(corpus_t *corpus) { return run_fed(corpus, 1024 << corpus->variant, 6); }

fy_status_t corpus_infer(corpus_t *corpus) { return run_fed(corpus, 128 << corpus->variant, 12); }
