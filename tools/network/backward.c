/* When gradients are complete; see overlap.h. Ops of the backward that write into the block of
 * gradients are found by its storage. Which parameter an op writes follows from the shape: of
 * several writes of one shape the last ones count, one for each parameter of that shape (a tied
 * parameter has two). Not here: event files (tools/cli/event_file.h). */
#include "tools/network/overlap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/event_file.h"
#include "tools/cli/tool.h"

/* GAP: elements; a model's parameters begin at multiples (fy_model_info_t). */
enum { SHAPE = 96, GAP = 16, DSTS = 8, TIMES = 4 };

/* A parameter's gradient, or one write. */
typedef struct piece {
    char shape[SHAPE]; /* "[20,3,3,1]" */
    uint64_t ns, nbytes;
} piece_t;

typedef struct pieces {
    piece_t *list;
    size_t count;
} pieces_t;

typedef struct reader {
    pieces_t params, writes;
    plan_request_t *request;
    uint64_t elements, storage; /* of the block of gradients; storage 0: not made yet */
    int runs;                   /* of the step function: the first one has no limit */
    uint64_t latest_ns, begin_ns, backward_ns, end_ns; /* of all work; of the step */
    backward_t *out;
} reader_t;

static void drop_pieces(pieces_t *pieces)
{
    free(pieces->list);
    *pieces = (pieces_t){ NULL, 0 };
}

static piece_t *add_piece(pieces_t *pieces)
{
    pieces->list = tool_grow(pieces->list, pieces->count, sizeof *pieces->list);
    return &pieces->list[pieces->count++];
}

/* ---- the step ---- */

static fy_status_t list_params(const fy_model_t *model, reader_t *reader)
{
    fy_model_info_t info = FY_MODEL_INFO_INIT;
    fy_tensor_info_t block = FY_TENSOR_INFO_INIT;
    FY_TRY(fy_model_query(model, &info));
    FY_TRY(fy_tensor_query(info.grads, &block));
    drop_pieces(&reader->params);
    reader->elements = block.nelem;
    reader->out->nbytes = block.nbytes;
    reader->out->element_nbytes = block.nbytes / block.nelem;
    for (size_t p = 0; p < info.nparams; p++) {
        fy_param_t param = FY_PARAM_INIT;
        fy_tensor_info_t grad = FY_TENSOR_INFO_INIT;
        FY_TRY(fy_model_param(model, p, &param));
        FY_TRY(fy_tensor_query(param.grad, &grad));
        piece_t *piece = add_piece(&reader->params);
        size_t used = 0;
        for (int d = 0; d < grad.rank && used < SHAPE; d++)
            used += (size_t)snprintf(piece->shape + used, SHAPE - used, "%c%" PRId64, d ? ',' : '[',
                                     grad.dims[d]);
        if (used < SHAPE) snprintf(piece->shape + used, SHAPE - used, grad.rank ? "]" : "[]");
        piece->nbytes = (grad.nelem + GAP - 1) / GAP * GAP * reader->out->element_nbytes;
    }
    return FY_STATUS_OK;
}

static fy_status_t step(fy_device_t *device, int64_t batch, void *user)
{
    reader_t *reader = user;
    fy_model_t *model;
    FY_TRY(model_plan_open(device, reader->request->options, reader->request, &model));
    fy_status_t status = list_params(model, reader);
    if (status == FY_STATUS_OK) status = model_plan_run(model, batch, reader->request);
    fy_model_destroy(model);
    return status;
}

/* ---- its events ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Shape `index` of "[[10,128],[10]]". */
static void copy_shape(const char *shapes, size_t index, char out[SHAPE])
{
    const char *at = *shapes ? shapes + 1 : shapes;
    for (; index && *at; index--) {
        at += strcspn(at, "]");
        at += strspn(at, "],");
    }
    const size_t length = strcspn(at, "]");
    out[0] = '\0';
    if (at[length] && length + 2 <= SHAPE) snprintf(out, SHAPE, "%.*s]", (int)length, at);
}

/* An event has at most 8 operands, its signature has all: results that the event leaves out are
 * gradients if another one is (scale and offset of a batch norm). */
static void read_writes(reader_t *reader, const event_t *event, uint64_t end_ns)
{
    uint64_t dst[DSTS][2];
    char shape[SHAPE];
    bool is_gradient = false;
    const size_t listed = event_pairs(event, "dst", dst, DSTS);
    const size_t sources = event->signature ? (size_t)event->signature->sources : 0;
    for (size_t i = 0; i < DSTS; i++) {
        copy_shape(event_text(event, "shapes"), sources + i, shape);
        if (!shape[0]) return;
        if (i < listed ? dst[i][0] != reader->storage : !is_gradient) continue;
        is_gradient = true;
        piece_t *write = add_piece(&reader->writes);
        write->ns = end_ns;
        memcpy(write->shape, shape, sizeof shape);
    }
}

static void read_op(reader_t *reader, const event_t *event)
{
    const char *scope = event_text(event, "scope");
    const uint64_t end_ns = event_whole(event, "model_end_ns");
    uint64_t dst[1][2];
    if (ends_with(scope, "/model/gradients") && event_pairs(event, "dst", dst, 1) == 1) {
        reader->runs++;
        if (reader->runs == 1) reader->storage = dst[0][0];
    }
    if (reader->runs != 1) return;
    if (end_ns > reader->latest_ns) reader->latest_ns = end_ns;
    if (strstr(scope, "/run/step")) reader->end_ns = reader->latest_ns;
    if (!strstr(scope, "/step/backward")) return;
    reader->backward_ns = reader->latest_ns;
    read_writes(reader, event, end_ns);
}

/* As many bytes as the block of gradients has elements, or a multiple. */
static void read_block(reader_t *reader, const event_t *event)
{
    const uint64_t requested = event_whole(event, "requested_bytes");
    if (strcmp(event_text(event, "category"), "optimizer_state") != 0 ||
        requested < reader->elements || requested % reader->elements)
        return;
    reader->out->nstates++;
    reader->out->state_nbytes += event_whole(event, "bytes");
    reader->out->state_element_nbytes += requested / reader->elements;
}

static void read_event(void *user, const event_t *event)
{
    reader_t *reader = user;
    if (event_is(event, "op"))
        read_op(reader, event);
    else if (reader->runs == 1 && event_is(event, "block_alloc"))
        read_block(reader, event);
    else if (reader->runs == 1 && event_is(event, "scope_begin") &&
             ends_with(event_text(event, "scope"), "/run/step")) {
        const uint64_t now = event_whole(event, "model_ns");
        reader->begin_ns = now > reader->latest_ns ? now : reader->latest_ns;
        drop_pieces(&reader->writes);
    }
}

/* ---- arrivals ---- */

static size_t count_shape(const pieces_t *pieces, size_t from, const char *shape,
                          uint64_t *out_nbytes)
{
    size_t count = 0;
    for (size_t i = from; i < pieces->count; i++) {
        if (strcmp(pieces->list[i].shape, shape) != 0) continue;
        if (out_nbytes) *out_nbytes = pieces->list[i].nbytes;
        count++;
    }
    return count;
}

/* A gradient that no write was found for is complete at the end of the backward. */
static void find_arrivals(const reader_t *reader)
{
    backward_t *out = reader->out;
    uint64_t found = 0;
    out->arrivals = tool_alloc((reader->params.count + 1) * sizeof *out->arrivals);
    out->backward_ns = reader->backward_ns - reader->begin_ns;
    out->step_ns = reader->end_ns - reader->begin_ns;
    for (size_t i = 0; i < reader->writes.count; i++) {
        const piece_t *write = &reader->writes.list[i];
        uint64_t nbytes = 0;
        const size_t wanted = count_shape(&reader->params, 0, write->shape, &nbytes);
        if (count_shape(&reader->writes, i, write->shape, NULL) > wanted) continue;
        out->arrivals[out->count++] = (arrival_t){ write->ns - reader->begin_ns, nbytes };
        found += nbytes;
    }
    if (found < out->nbytes)
        out->arrivals[out->count++] = (arrival_t){ out->backward_ns, out->nbytes - found };
}

static fy_status_t record_plan(const char *device, reader_t *reader, int64_t batch,
                               const fy_plan_options_t *options, fy_plan_t *out_plan,
                               uint64_t *out_lost)
{
    char path[] = "/tmp/ferry-plan-XXXXXX";
    event_file_info_t info = { 0 };
    const int file = mkstemp(path);
    if (file < 0) return TOOL_FAIL(IO, "cannot make a file for the events of a plan in /tmp");
    close(file);
    fy_status_t status = fy_ledger_record(path);
    if (status == FY_STATUS_OK) {
        status = fy_plan_step(device, step, reader, batch, options, out_plan);
        const fy_status_t ended = fy_ledger_record(NULL);
        if (status == FY_STATUS_OK) status = ended;
    }
    if (status == FY_STATUS_OK) status = event_file_read(path, read_event, reader, &info);
    unlink(path);
    *out_lost = info.lost;
    return status;
}

fy_status_t backward_plan(const char *device, plan_request_t *request, int64_t batch,
                          const fy_plan_options_t *options, fy_plan_t *out_plan,
                          backward_t *out_backward)
{
    fy_status_t status = FY_STATUS_OK;
    uint64_t lost = 1;
    *out_backward = (backward_t){ .count = 0 };
    for (int i = 0; i < TIMES && lost && status == FY_STATUS_OK; i++) {
        *out_backward = (backward_t){ .count = 0 };
        reader_t reader = { .request = request, .out = out_backward };
        /* the points are those of the first time */
        status = record_plan(device, &reader, batch, i ? NULL : options, out_plan, &lost);
        if (status == FY_STATUS_OK && !lost) find_arrivals(&reader);
        drop_pieces(&reader.params);
        drop_pieces(&reader.writes);
    }
    if (status == FY_STATUS_OK && lost)
        return TOOL_FAIL(BUSY,
                         "%" PRIu64 " events of the plan were lost in each of %d recordings: the "
                         "machine is busy; run it again",
                         lost, TIMES);
    if (status == FY_STATUS_OK && out_backward->step_ns != out_plan->step_model_ns)
        return TOOL_FAIL(INTERNAL, "the events of the step take %" PRIu64 " ns, its plan %" PRIu64,
                         out_backward->step_ns, out_plan->step_model_ns);
    return status;
}

void backward_free(backward_t *backward)
{
    free(backward->arrivals);
    *backward = (backward_t){ .count = 0 };
}
