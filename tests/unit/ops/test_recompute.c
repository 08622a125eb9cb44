/* fy_tape_recompute: fewer bytes, how often the function runs, results that it did not make;
 * refusals, and that they leave nothing. Not here: the bits of gradients, generators and statistics
 * (tests/property/test_recompute.c). */
#include "tests/support/harness.h"

enum { N = 24 };

/* A network of blocks: dropout of relu of a batch norm of a product. */
typedef struct net {
    fy_tensor_t *x, *w, *weight, *bias, *mean, *var, *rng;
    int first, end;   /* the blocks that a call computes */
    int calls, freed; /* of the function; of destroy */
    fy_tape_t *tape;  /* that `beginning` begins */
} net_t;

static fy_status_t blocks(void *user, size_t count, fy_tensor_t *const *inputs, fy_tensor_t **out_y)
{
    net_t *net = user;
    fy_tensor_t *y = inputs[0];
    assert_int_equal(count, 1);
    net->calls++;
    for (int i = net->first; i < net->end; i++) {
        FY_TRY(fy_matmul(y, net->w, &y));
        FY_TRY(fy_batch_norm(y, net->weight, net->bias, NULL, net->mean, net->var, NULL, &y, NULL,
                             NULL));
        FY_TRY(fy_relu(y, &y));
        FY_TRY(fy_dropout(net->rng, y, 0.25, &y));
    }
    *out_y = y;
    return FY_STATUS_OK;
}

static void count_free(void *user) { ((net_t *)user)->freed++; }

static fy_status_t recompute(net_t *net, fy_recompute_fn fn, fy_tensor_t *x, fy_tensor_t **out_y)
{
    fy_recompute_options_t options = FY_RECOMPUTE_OPTIONS_INIT;
    fy_tensor_t *states[] = { net->mean, net->var, net->rng };
    options.nstates = 3, options.states = states, options.destroy = count_free;
    return fy_tape_recompute(fn, net, 1, (fy_tensor_t *[]){ x }, &options, out_y);
}

/* A call of fy_tape_recompute inside another. */
static fy_status_t inside(void *user, size_t count, fy_tensor_t *const *inputs, fy_tensor_t **out_y)
{
    (void)count;
    FY_TRY(recompute(user, blocks, inputs[0], out_y));
    return fy_affine(*out_y, 1, 0.5, out_y);
}

static fy_status_t make_net(fy_device_t *device, net_t *net)
{
    fy_tensor_t *draws;
    FY_TRY(fy_rng_create(device, 3, &draws));
    FY_TRY(fy_rng_create(device, 4, &net->rng));
    FY_TRY(fy_randn(draws, FY_DTYPE_F32, FY_DIMS(64, N), 0, 1, &net->x));
    FY_TRY(fy_randn(draws, FY_DTYPE_F32, FY_DIMS(N, N), 0, 0.3, &net->w));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(N), 1, &net->weight));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(N), 0.1, &net->bias));
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(N), 0, &net->mean));
    return fy_full(device, FY_DTYPE_F32, FY_DIMS(N), 1, &net->var);
}

/* Plain; in a call; in a call inside another. */
TS_DEVICE_TEST(fewer_bytes_are_kept)
{
    uint64_t live[3], saved[3];
    for (int way = 0; way < 3; way++) {
        const fy_scope_t scope = fy_scope_begin("way");
        net_t net = { .end = 6 };
        fy_tensor_t *y, *loss;
        fy_tape_info_t info = FY_TAPE_INFO_INIT;
        ts_ok(make_net(ctx->device, &net));
        fy_tape_t *tape = ts_record(net.w, net.x);
        ts_ok(way == 0 ? blocks(&net, 1, &net.x, &y)
                       : recompute(&net, way == 1 ? blocks : inside, net.x, &y));
        ts_ok(fy_mean(y, FY_ALL_AXES, 0, &loss));
        ts_ok(fy_tape_query(tape, &info));
        live[way] = ts_live(ctx->device);
        saved[way] = info.saved;
        ts_ok(fy_tape_backward(tape, loss, NULL));
        assert_int_equal(net.calls, way + 1);
        assert_int_equal(net.freed, way == 2 ? 3 : way);
        fy_scope_end(scope, 0, NULL);
        if (way > 0) assert_true(live[way] < live[0] && saved[way] < saved[0]);
    }
}

TS_DEVICE_TEST(without_a_record_it_only_calls)
{
    net_t net = { .end = 1 };
    fy_tape_t *tape;
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    fy_tensor_t *y;
    ts_ok(make_net(ctx->device, &net));
    ts_ok(recompute(&net, blocks, net.x, &y));
    assert_int_equal(net.calls, 1);
    assert_int_equal(net.freed, 1);
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_tape_begin(tape)); /* nothing is watched */
    ts_ok(recompute(&net, blocks, net.x, &y));
    ts_ok(fy_tape_query(tape, &info));
    assert_int_equal(info.calls, 0);
    assert_int_equal(net.calls, 2);
    assert_int_equal(net.freed, 2);
    ts_ok(fy_tape_watch(tape, net.w, NULL));
    ts_ok(fy_tape_begin(tape));
    ts_ok(recompute(&net, blocks, net.x, &y));
    ts_ok(fy_tape_begin(tape)); /* drops it */
    assert_int_equal(net.freed, 3);
    ts_ok(recompute(&net, blocks, net.x, &y));
    fy_tape_destroy(tape);
    assert_int_equal(net.freed, 4);
}

static fy_status_t same(void *user, size_t count, fy_tensor_t *const *inputs, fy_tensor_t **out_y)
{
    (void)user;
    *out_y = count ? inputs[0] : NULL;
    return FY_STATUS_OK;
}

/* A result that the function did not make is a view of it. */
TS_DEVICE_TEST(an_input_may_be_the_result)
{
    const float ones[3] = { 1, 1, 1 };
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(3), 1), *y, *loss;
    fy_tape_t *tape = ts_record(x, NULL);
    ts_ok(fy_tape_recompute(same, NULL, 1, &x, NULL, &y));
    assert_ptr_not_equal(x, y);
    assert_int_equal(ts_info(x).storage, ts_info(y).storage);
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
    ts_ok(fy_tape_backward(tape, loss, NULL));
    ts_expect_f32(ts_grad(tape, x), ones, 3);
}

typedef struct keeping {
    fy_tensor_t *inner; /* a result that the function keeps */
    fy_tensor_t *other; /* what it returns; NULL: the square of its input */
} keeping_t;

static fy_status_t keep_inner(void *user, size_t count, fy_tensor_t *const *inputs,
                              fy_tensor_t **out_y)
{
    keeping_t *keeping = user;
    (void)count;
    FY_TRY(fy_relu(inputs[0], &keeping->inner));
    fy_tensor_keep(keeping->inner);
    *out_y = keeping->other;
    return keeping->other ? FY_STATUS_OK : fy_mul(inputs[0], inputs[0], out_y);
}

/* No call of the record makes such a tensor any more, so the tape saves it. */
TS_DEVICE_TEST(tensors_from_inside_are_saved)
{
    const float want[3] = { 1, 2, 3 }; /* relu(h), a constant: the gradient of sum(relu(h) h) */
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(3), 1), *h, *y, *loss;
    fy_tape_t *tape = ts_tape(x, NULL);
    ts_ok(fy_tape_recompute_cheap(tape, 1));
    for (int depends = 0; depends < 2; depends++) {
        keeping_t keeping = { NULL, NULL };
        if (!depends) ts_ok(fy_full(ctx->device, FY_DTYPE_F32, FY_DIMS(3), 0.5, &keeping.other));
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_affine(x, 1, 0, &h));
        ts_ok(fy_tape_recompute(keep_inner, &keeping, 1, &h, NULL, &y));
        ts_ok(fy_mul(keeping.inner, h, &loss));
        ts_ok(fy_sum(loss, FY_ALL_AXES, 0, &loss));
        ts_ok(fy_tape_backward(tape, loss, NULL));
        ts_expect_f32(ts_grad(tape, x), want, 3);
        fy_tensor_destroy(keeping.inner);
    }
}

/* How a function reads what it did not make. */
typedef enum way { BY_OP, BY_CONSTANT_OP, BY_VIEW, INSIDE, BY_UPLOAD, WRITTEN_INSIDE, WAYS } way_t;
typedef struct reading {
    way_t way;
    fy_tensor_t *scale;
    struct reading *inner;
} reading_t;

static fy_status_t scaled(void *user, size_t count, fy_tensor_t *const *inputs, fy_tensor_t **out_y)
{
    const reading_t *reading = user;
    fy_device_t *device = ts_info(inputs[0]).device;
    fy_tensor_t *scale = reading->scale, *own, *x;
    (void)count;
    FY_TRY(fy_full(device, FY_DTYPE_F32, FY_DIMS(3), 0, &own));
    FY_TRY(fy_add(inputs[0], own, &x));
    FY_TRY(fy_fill(own, 5)); /* what it makes, it may write */
    switch (reading->way) {
    case BY_CONSTANT_OP: FY_TRY(fy_affine(scale, 1, 0, &scale)); break;
    case BY_VIEW: FY_TRY(fy_slice(scale, 0, 0, 3, &scale)); break;
    case BY_UPLOAD: FY_TRY(fy_tensor_upload(scale, device, NULL, &scale)); break;
    case INSIDE: return fy_tape_recompute(scaled, reading->inner, 1, &x, NULL, out_y);
    case WRITTEN_INSIDE:
        FY_TRY(fy_add(x, scale, &x));
        FY_TRY(fy_fill(scale, 0));
        return fy_mul(x, x, out_y);
    default: break;
    }
    return fy_mul(x, scale, out_y);
}

TS_DEVICE_TEST(what_the_function_reads_may_not_be_written)
{
    static const float want[3] = { 2, 2, 2 };
    fy_tensor_t *x = ts_iota(ctx->device, FY_DIMS(3), 1), *y, *loss;
    fy_tape_t *tape = ts_tape(x, NULL);
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    for (int i = 0; i < 2 * WAYS; i++) {
        const bool is_written = i % 2 || i / 2 == WRITTEN_INSIDE;
        reading_t inner = { .way = BY_OP }, reading = { (way_t)(i / 2), NULL, &inner };
        fy_device_t *from = reading.way == BY_UPLOAD ? fy_device_host() : ctx->device;
        if (reading.way == BY_UPLOAD && ctx->device == from) continue;
        ts_ok(fy_full(from, FY_DTYPE_F32, FY_DIMS(3), 2, &reading.scale));
        inner.scale = reading.scale;
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_tape_recompute(scaled, &reading, 1, &x, NULL, &y));
        ts_ok(fy_tape_query(tape, &info));
        assert_int_equal(info.saved, 2); /* x and the scale, but nothing that it makes */
        ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
        if (is_written) {
            ts_ok(fy_fill(reading.scale, 3));
            ts_fails_with(fy_tape_backward(tape, loss, NULL), BUSY,
                          "runs its function again on [3 f32]");
        } else {
            ts_ok(fy_tape_backward(tape, loss, NULL));
            ts_expect_f32(ts_grad(tape, x), want, 3);
        }
    }
}

/* Shorter the second time. */
static fy_status_t fickle(void *user, size_t count, fy_tensor_t *const *inputs, fy_tensor_t **out_y)
{
    net_t *net = user;
    (void)count;
    FY_TRY(fy_mul(inputs[0], inputs[0], out_y));
    return net->calls++ ? fy_slice(*out_y, 0, 0, 1, out_y) : FY_STATUS_OK;
}
static fy_status_t constant(void *user, size_t count, fy_tensor_t *const *inputs,
                            fy_tensor_t **out_y)
{
    net_t *net = user;
    fy_tensor_t *x = net->calls++ ? net->w : inputs[0]; /* w is not watched */
    (void)count;
    return fy_mul(x, x, out_y);
}
static fy_status_t failing(void *user, size_t count, fy_tensor_t *const *inputs,
                           fy_tensor_t **out_y)
{
    net_t *net = user;
    (void)count;
    FY_TRY(fy_mul(inputs[0], inputs[0], out_y));
    return net->calls++ == net->first ? fy_matmul(inputs[0], net->rng, out_y)
                                      : fy_reshape(*out_y, FY_DIMS(64 * N), out_y);
}

static fy_status_t beginning(void *user, size_t count, fy_tensor_t *const *inputs,
                             fy_tensor_t **out_y)
{
    (void)count;
    FY_TRY(fy_tape_begin(((net_t *)user)->tape));
    return fy_mul(inputs[0], inputs[0], out_y);
}

TS_DEVICE_TEST(refusals_say_what_and_leave_nothing)
{
    net_t net = { .end = 1 };
    fy_tensor_t *y, *loss, *x;
    fy_tape_info_t info = FY_TAPE_INFO_INIT;
    fy_recompute_options_t options = FY_RECOMPUTE_OPTIONS_INIT;
    ts_ok(make_net(ctx->device, &net));
    x = net.x;
    options.destroy = count_free;
    ts_fails_with(fy_tape_recompute(NULL, &net, 1, &x, &options, &y), INVALID_ARGUMENT,
                  "fn is NULL");
    ts_fails_with(fy_tape_recompute(same, &net, 1, NULL, &options, &y), INVALID_ARGUMENT,
                  "inputs is NULL");
    ts_fails_with(fy_tape_recompute(same, &net, 1, (fy_tensor_t *[]){ NULL }, &options, &y),
                  INVALID_ARGUMENT, "inputs[0] is NULL");
    ts_fails_with(fy_tape_recompute(same, &net, 0, NULL, &options, &y), INVALID_ARGUMENT,
                  "gave no result");
    assert_null(y);
    assert_int_equal(net.freed, 4);

    fy_tape_t *tape = ts_record(x, NULL);
    ts_fails_with(fy_tape_recompute(blocks, &net, 1, &x, &options, &y), UNSUPPORTED,
                  "Name the tensor in options.states");
    ts_ok(fy_tape_query(tape, &info));
    assert_int_equal(info.calls, 0);
    assert_int_equal(net.freed, 5);
    ts_fails_with(fy_tape_recompute(inside, &net, 1, &x, &options, &y), UNSUPPORTED,
                  "Name the tensor in options.states"); /* they are the inner one's only */
    options.nstates = 1, options.states = (fy_tensor_t *[]){ NULL };
    ts_fails_with(fy_tape_recompute(blocks, &net, 1, &x, &options, &y), INVALID_ARGUMENT,
                  "options->states[0] is NULL");
    options.nstates = 0;

    net.tape = tape;
    net.freed = 0;
    ts_fails_with(fy_tape_recompute(beginning, &net, 1, &x, &options, &y), INVALID_ARGUMENT,
                  "the function began or ended a record");
    assert_int_equal(net.freed, 1);

    static const fy_recompute_fn changing[] = { fickle, constant };
    for (int i = 0; i < 2; i++) {
        net.calls = net.freed = 0;
        ts_ok(fy_tape_begin(tape));
        ts_ok(fy_tape_recompute(changing[i], &net, 1, &x, &options, &y));
        ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
        ts_fails_with(fy_tape_backward(tape, loss, NULL), INVALID_ARGUMENT,
                      i ? "one without a gradient" : "another dtype or shape");
        assert_int_equal(net.freed, 1);
    }
    for (net.first = 0; net.first < 2; net.first++) { /* the first time; in the backward */
        net.calls = net.freed = 0;
        ts_ok(fy_tape_begin(tape));
        const fy_status_t status = fy_tape_recompute(failing, &net, 1, &x, &options, &y);
        assert_int_equal(status == FY_STATUS_OK, net.first);
        if (net.first) {
            ts_ok(fy_sum(y, FY_ALL_AXES, 0, &loss));
            ts_fails(fy_tape_backward(tape, loss, NULL), DTYPE_MISMATCH);
        }
        assert_int_equal(net.freed, 1);
    }
    fy_tensor_t *other;
    ts_ok(fy_empty(ctx->device, FY_DTYPE_F32, FY_DIMS(64, N), &other));
    ts_ok(fy_copy(other, x));
    ts_ok(fy_tape_begin(tape));
    net.calls = 5, net.first = 0;
    ts_ok(fy_mul(x, other, &loss));
    ts_ok(fy_tape_recompute(failing, &net, 1, &loss, &options, &y));
    ts_ok(fy_sum(y, FY_ALL_AXES, 0, &y));
    ts_ok(fy_fill(loss, 2));
    ts_fails_with(fy_tape_backward(tape, y, NULL), BUSY, "runs its function again on [64x24 f32]");
}
