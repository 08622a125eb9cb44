/* Random programs on a tape, each plain and in the ways that keep fewer bytes: cheap results
 * made again, parts of it in fy_tape_recompute, which nest, what it saves offloaded. The loss, all
 * gradients, the generator and the running statistics have the same bits. A fault at the N-th
 * allocation, launch, copy or page-locking fails the step, leaves nothing, and the next step is
 * right. Not here: refusals (tests/unit/ops/test_recompute.c, test_offload.c). */
#include "tests/support/harness.h"

enum { PROGRAMS = 20, MOST_OPS = 24, ROWS = 33, WIDTH = 32, LEAVES = 4, VALUES = MOST_OPS + 1 };

typedef enum way { PLAIN, CHEAP, NESTED, BOTH, OFFLOADED, ALL, WAYS } way_t;

/* Op i makes value i + 1 from two values, of which it has a copy of the same number. */
typedef struct step {
    int kind, a, b, leaf;
} step_t;

typedef struct program {
    int nops;
    step_t steps[MOST_OPS];
    int depth[MOST_OPS]; /* of calls of fy_tape_recompute around it */
} program_t;

typedef struct data {
    fy_tensor_t *x, *w[LEAVES], *scale, *shift, *mean, *var, *rng;
} data_t;

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static void make_program(uint32_t seed, program_t *out)
{
    uint32_t state = seed * 2654435761u + 1;
    out->nops = 6 + (int)draw(&state, MOST_OPS - 6);
    for (int i = 0; i < out->nops; i++) {
        /* mostly the last values */
        const uint32_t near = i < 3 ? (uint32_t)i + 1 : 3;
        out->steps[i] = (step_t){ (int)draw(&state, 14), i - (int)draw(&state, near),
                                  (int)draw(&state, (uint32_t)i + 1), (int)draw(&state, LEAVES) };
        const int before = i ? out->depth[i - 1] : 0;
        out->depth[i] = before + (int)draw(&state, 3) - 1;
        if (out->depth[i] < 0) out->depth[i] = 0;
        if (out->depth[i] > 3) out->depth[i] = 3;
    }
}

static fy_status_t norm(const data_t *data, fy_tensor_t *x, fy_tensor_t *residual,
                        fy_activation_t activation, fy_tensor_t **out_y)
{
    fy_batch_norm_attrs_t attrs = FY_BATCH_NORM_ATTRS_INIT;
    attrs.activation = activation;
    return fy_batch_norm(x, data->scale, data->shift, residual, data->mean, data->var, &attrs,
                         out_y, NULL, NULL);
}

/* Every value is [ROWS, WIDTH], and stays small. */
static fy_status_t run_op(const data_t *data, const step_t *step, fy_tensor_t *a, fy_tensor_t *b,
                          fy_tensor_t **out_y)
{
    fy_tensor_t *t, *halves[2];
    switch (step->kind) {
    case 0: return fy_matmul(a, data->w[step->leaf], out_y);
    case 1: return norm(data, a, NULL, FY_ACTIVATION_RELU, out_y);
    case 2: return norm(data, a, b, FY_ACTIVATION_RELU, out_y);
    case 3: return norm(data, a, NULL, FY_ACTIVATION_NONE, out_y);
    case 4: return fy_hardswish(a, out_y);
    case 5: return fy_dropout(data->rng, a, 0.25, out_y);
    case 6: FY_TRY(fy_mul(a, b, &t)); return fy_tanh(t, out_y);
    case 7: FY_TRY(fy_add(a, b, &t)); return fy_affine(t, 0.5, 0.1, out_y);
    case 8: return fy_layer_norm(a, data->scale, data->shift, 1e-5, out_y, NULL, NULL);
    case 9: /* a view, computed with, and back */
        FY_TRY(fy_reshape(a, FY_DIMS(WIDTH, ROWS), &t));
        FY_TRY(fy_sigmoid(t, &t));
        return fy_reshape(t, FY_DIMS(ROWS, WIDTH), out_y);
    case 10: /* a strided view of a result that may be made again */
        FY_TRY(fy_slice(a, 1, 2, 18, &halves[0]));
        FY_TRY(fy_slice(b, 1, 1, 17, &halves[1]));
        return fy_concat(2, halves, 1, out_y);
    case 11: /* a copy that is written in place */
        FY_TRY(fy_affine(a, 1, 0, &t));
        FY_TRY(fy_axpy(t, 0.25, b));
        return fy_tanh(t, out_y);
    case 12: /* a product of a view of a cheap result */
        FY_TRY(fy_gelu(a, &t));
        FY_TRY(fy_transpose(t, NULL, &t));
        FY_TRY(fy_matmul(t, b, &t));
        return fy_matmul(a, t, out_y);
    default: FY_TRY(fy_rms_norm(a, data->scale, 1e-5, &t, NULL)); return fy_maximum(t, b, out_y);
    }
}

/* ---- parts of a program ---- */

typedef struct part {
    const program_t *program;
    const data_t *data;
    int first, end, depth, recomputes, offloads;
} part_t;

static fy_status_t run_part(const part_t *part, fy_tensor_t **values);

/* Of `inputs`: all values before the part. The result: all values that it makes, side by side. */
static fy_status_t again(void *user, size_t count, fy_tensor_t *const *inputs, fy_tensor_t **out_y)
{
    const part_t *part = user;
    fy_tensor_t *values[VALUES];
    for (size_t i = 0; i < count; i++) values[i] = inputs[i];
    FY_TRY(run_part(part, values));
    return fy_concat((size_t)(part->end - part->first), values + part->first + 1, 0, out_y);
}

static fy_status_t run_again(const part_t *part, fy_tensor_t **values)
{
    const data_t *data = part->data;
    fy_tensor_t *states[] = { data->mean, data->var, data->rng }, *all;
    fy_recompute_options_t options = FY_RECOMPUTE_OPTIONS_INIT;
    const size_t ninputs = (size_t)part->first + 1;
    if (part->recomputes) {
        part_t *kept = malloc(sizeof *kept);
        assert_non_null(kept);
        *kept = *part;
        options.nstates = 3, options.states = states, options.destroy = free;
        FY_TRY(fy_tape_recompute(again, kept, ninputs, values, &options, &all));
    } else {
        FY_TRY(again((part_t *)part, ninputs, values, &all));
    }
    return fy_split(all, 0, (size_t)(part->end - part->first), NULL, values + part->first + 1);
}

static fy_status_t run_part(const part_t *part, fy_tensor_t **values)
{
    const program_t *program = part->program;
    for (int i = part->first; i < part->end;) {
        part_t inner = *part;
        const step_t *step = &program->steps[i];
        inner.first = inner.end = i;
        inner.depth++;
        while (inner.end < part->end && program->depth[inner.end] > part->depth) inner.end++;
        if (inner.end > i) {
            FY_TRY(run_again(&inner, values));
            i = inner.end;
            continue;
        }
        FY_TRY(run_op(part->data, step, values[step->a], values[step->b], &values[i + 1]));
        if (part->offloads && i % 3 == 2) FY_TRY(fy_tape_offload());
        i++;
    }
    return FY_STATUS_OK;
}

/* ---- a step in one of the ways ---- */

typedef struct result {
    float loss, dx[ROWS * WIDTH], dw[LEAVES][WIDTH * WIDTH], dscale[WIDTH], mean[WIDTH], var[WIDTH];
    unsigned char rng[64]; /* zeros behind it */
} result_t;

static fy_status_t make_data(fy_device_t *device, data_t *data)
{
    fy_tensor_t *draws;
    FY_TRY(fy_rng_create(device, 3, &draws));
    FY_TRY(fy_rng_create(device, 4, &data->rng));
    FY_TRY(fy_randn(draws, FY_DTYPE_F32, FY_DIMS(ROWS, WIDTH), 0, 1, &data->x));
    for (int i = 0; i < LEAVES; i++)
        FY_TRY(fy_randn(draws, FY_DTYPE_F32, FY_DIMS(WIDTH, WIDTH), 0, 0.3, &data->w[i]));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(WIDTH), 0.9, &data->scale));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(WIDTH), 0.1, &data->shift));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(WIDTH), &data->mean));
    return fy_full(device, FY_DTYPE_F32, FY_DIMS(WIDTH), 1, &data->var);
}

static fy_status_t read(const fy_tensor_t *tensor, void *out)
{
    fy_tensor_t *host;
    fy_download_t *download;
    FY_TRY(fy_tensor_download(tensor, NULL, &download));
    FY_TRY(fy_download_wait(download, FY_FOREVER, &host));
    ts_read(host, out, ts_info(host).nbytes);
    return FY_STATUS_OK;
}

static fy_status_t read_grad(const fy_tape_t *tape, const fy_tensor_t *tensor, void *out)
{
    fy_tensor_t *grad;
    FY_TRY(fy_tape_grad(tape, tensor, &grad));
    return grad ? read(grad, out) : FY_STATUS_OK;
}

static fy_status_t run_step(const program_t *program, const data_t *data, fy_tape_t *tape,
                            way_t way, result_t *out)
{
    fy_tensor_t *values[VALUES] = { data->x }, *sum, *loss;
    const part_t whole = { program,         data, 0,
                           program->nops,   0,    way == NESTED || way == BOTH || way == ALL,
                           way >= OFFLOADED };
    FY_TRY(fy_tape_recompute_cheap(tape, way == CHEAP || way == BOTH || way == ALL));
    FY_TRY(fy_tape_begin(tape));
    FY_TRY(run_part(&whole, values));
    /* the loss depends on every value, in the same order in all ways */
    FY_TRY(fy_mul(values[program->nops], values[program->nops], &sum));
    for (int i = 1; i < program->nops; i++) FY_TRY(fy_add(sum, values[i], &sum));
    FY_TRY(fy_mean(sum, FY_ALL_AXES, 0, &loss));
    for (int i = 1; i <= program->nops; i++) fy_tensor_destroy(values[i]);
    FY_TRY(fy_tape_backward(tape, loss, NULL));
    FY_TRY(read(loss, &out->loss));
    FY_TRY(read_grad(tape, data->x, out->dx));
    for (int i = 0; i < LEAVES; i++) FY_TRY(read_grad(tape, data->w[i], out->dw[i]));
    return read_grad(tape, data->scale, out->dscale);
}

/* `steps` times the step; the results of the last. */
static fy_status_t run(fy_device_t *device, const program_t *program, way_t way, int steps,
                       result_t *out)
{
    data_t data;
    fy_tape_t *tape;
    FY_TRY(make_data(device, &data));
    FY_TRY(fy_tape_create(&tape));
    FY_TRY(fy_tape_watch(tape, data.x, NULL));
    for (int i = 0; i < LEAVES; i++) FY_TRY(fy_tape_watch(tape, data.w[i], NULL));
    FY_TRY(fy_tape_watch(tape, data.scale, NULL));
    memset(out, 0, sizeof *out);
    for (int i = 0; i < steps; i++) {
        const fy_scope_t scope = fy_scope_begin("step");
        FY_TRY(run_step(program, &data, tape, way, out));
        fy_scope_end(scope, 0, NULL);
    }
    FY_TRY(read(data.mean, out->mean));
    FY_TRY(read(data.var, out->var));
    return read(data.rng, out->rng);
}

static fy_status_t run_in_scope(fy_device_t *device, const program_t *program, way_t way, int steps,
                                result_t *out)
{
    const fy_scope_t scope = fy_scope_begin("program");
    const fy_status_t status = run(device, program, way, steps, out);
    fy_scope_end(scope, 0, NULL);
    return status;
}

TS_DEVICE_TEST(every_way_has_the_same_bits)
{
    static result_t plain, other;
    program_t program;
    for (uint32_t seed = 0; seed < PROGRAMS; seed++) {
        make_program(seed, &program);
        ts_ok(run_in_scope(ctx->device, &program, PLAIN, 2, &plain));
        for (way_t way = CHEAP; way < WAYS; way++) {
            ts_ok(run_in_scope(ctx->device, &program, way, 2, &other));
            if (memcmp(&plain, &other, sizeof plain) != 0)
                fail_msg("program %u in way %d has other bits", seed, (int)way);
        }
    }
}

/* The n-th call of `kind` fails, for many n until no call fails. */
static void sweep(const program_t *program, way_t way, const char *kind, fy_status_t want)
{
    static result_t right, got;
    int done = 0;
    for (int n = 1; !done; n += 1 + n / 8) {
        char spec[96];
        fy_device_t *device;
        assert_in_range(n, 1, 20000);
        snprintf(spec, sizeof spec, "sim:7?faults=%s@%d", kind, n);
        fy_status_t status = fy_device_open(spec, &device);
        if (status == FY_STATUS_OK) {
            status = run_in_scope(device, program, way, 1, &got);
            done = status == FY_STATUS_OK;
            if (!done) ts_ok(run_in_scope(device, program, way, 1, &got));
            if (n == 1) right = got;
            assert_memory_equal(&right, &got, sizeof right);
            assert_int_equal(ts_live(device), 0);
            fy_device_close(device);
        }
        if (status != FY_STATUS_OK && status != want)
            fail_msg("%s: %s: %s", spec, fy_status_name(status), fy_error_get()->text);
    }
}

TS_DEVICE_TEST(a_failed_step_leaves_nothing)
{
    program_t program;
    if (!ctx->is_sim) return; /* it opens its own */
    for (uint32_t seed = 0; seed < 2; seed++) {
        make_program(100 + seed, &program);
        sweep(&program, ALL, "alloc", FY_STATUS_OUT_OF_MEMORY);
        sweep(&program, ALL, "launch", FY_STATUS_INTERNAL);
        sweep(&program, ALL, "copy", FY_STATUS_IO);
        sweep(&program, ALL, "pin", FY_STATUS_OUT_OF_MEMORY);
    }
}
