/* The calls of test_bytes.c that are no tape's, each with its effect on the oracle's bytes. A call
 * that its shapes, dtypes or sizes forbid is left out, so a refusal needs another reason. */
#include "tests/property/bytes.h"

static const int64_t k_shapes[][RANK + 1] = { { 0 },       { 1, 3 },    { 1, 2 },    { 1, 6 },
                                              { 2, 2, 3 }, { 2, 3, 2 }, { 2, 1, 3 }, { 2, 2, 1 },
                                              { 1, 1 },    { 1, 4 },    { 2, 2, 2 }, { 1, 0 },
                                              { 2, 2, 0 }, { 2, 4, 6 } };

static double value_at(const program_t *p, uint64_t choice, int64_t i)
{
    ts_random_t random = { choice * 977 + (uint64_t)i };
    const int64_t k = ts_random_below(&random, 64);
    if (p->has_nans && k < 2) return k ? NAN : INFINITY;
    return (double)(k % 9) / 2 - 2;
}

static fy_tensor_t *host_values(world_t *w, const program_t *p, const step_t *s, result_t *r)
{
    ts_array_t values;
    fy_tensor_t *host;
    void *data;
    ts_array_make(&values, r->dtype, r->rank, r->dims);
    ts_ok(fy_tensor_create(fy_device_host(), r->dtype, r->rank, r->dims, &host));
    ts_ok(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (uint64_t i = 0; i < values.nelem; i++) {
        values.f[i] = value_at(p, s->choice, (int64_t)i);
        w->counts.nans += !isfinite(values.f[i]);
        r->numbers[i] = constant(values.f[i]);
        ts_encode(&values, i, data, i);
    }
    ts_array_free(&values);
    return host;
}

static void step_new(world_t *w, const program_t *p, const step_t *s)
{
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_F64, FY_DTYPE_F16, FY_DTYPE_BF16 };
    const int64_t *shape = k_shapes[p->shapes[s->choice % 4]];
    result_t r = { .rank = (int)shape[0], .dtype = p->has_halves ? dtypes[s->choice / 14 % 4] : 0 };
    fy_tensor_t *t;
    if (!p->has_halves) r.dtype = dtypes[p->seed % 2];
    memcpy(r.dims, shape + 1, sizeof r.dims);
    if (!by_is_free_for(w, s->to)) return;
    fy_tensor_t *host = host_values(w, p, s, &r);
    char dims[2][24] = { "", "" };
    for (int i = 0; i < r.rank && i < 2; i++)
        snprintf(dims[i], sizeof dims[i], i ? ", %d" : "%d", (int)r.dims[i]);
    SAY("t%d = upload(%s [%s%s]);", s->to, fy_dtype_name(r.dtype), dims[0], dims[1]);
    ts_ok(fy_tensor_upload(host, w->ctx->device, NULL, &t));
    fy_tensor_destroy(host);
    by_keep_result(w, s->to, t, &r);
}

static number_t unary(const world_t *w, int choice, const number_t *a)
{
    const number_t zero = constant(0), minus = affine(a, -1, 0);
    switch (choice) {
    case 0: return affine(a, -1, 0);
    case 1: return isnan(a->v) ? *a : choose(a, &zero, false, a, &zero, w->unit);
    case 2: return affine(a, 0.5, 1);
    case 3: return hyperbolic(a);
    default: {
        number_t r = isnan(a->v) ? *a : choose(a, &zero, false, a, &minus, w->unit);
        if (a->v == 0 && a->is_exact) r = affine(a, 0, 0);
        return r;
    }
    }
}

static void step_unary(world_t *w, const step_t *s, handle_t *into)
{
    static const fy_op_t ops[] = { FY_OP_NEG, FY_OP_RELU, FY_OP_AFFINE, FY_OP_TANH, FY_OP_ABS };
    handle_t *a = &w->slots[s->a];
    const fy_affine_attrs_t attrs = { 0.5, 1 };
    const int choice = (int)(s->choice % 5);
    const bool has_attrs = ops[choice] == FY_OP_AFFINE;
    if (!a->t || !by_is_float(a)) return;
    result_t r = by_like(a);
    for (int64_t i = 0; i < nelem(a); i++) {
        const number_t x = by_get(w, a, i);
        r.numbers[i] = as_stored(unary(w, choice, &x), r.dtype);
    }
    by_call_op(w, ops[choice], 1, &a, has_attrs ? &attrs : NULL, has_attrs ? sizeof attrs : 0, into,
               s->to, &r);
}

static void step_binary(world_t *w, const step_t *s, handle_t *into)
{
    static const fy_op_t ops[] = { FY_OP_ADD, FY_OP_SUB, FY_OP_MUL, FY_OP_MUL, FY_OP_MAXIMUM };
    handle_t *a = &w->slots[s->a], *src[] = { a, by_find(w, a, s->b, BROADCASTS) };
    const int choice = (int)(s->choice % 5);
    result_t r;
    if (!src[1] || !broadcast_dims(a, src[1], &r.rank, r.dims)) return;
    r.dtype = src[0]->bytes->dtype;
    for (int64_t i = 0; i < count_of(r.rank, r.dims); i++) {
        const number_t x = by_get(w, src[0], broadcast_of(src[0], r.rank, r.dims, i)),
                       y = by_get(w, src[1], broadcast_of(src[1], r.rank, r.dims, i));
        number_t z = choice < 2   ? add(&x, &y, choice ? -1 : 1)
                     : choice < 4 ? mul(&x, &y)
                     : isnan(x.v) ? x
                     : isnan(y.v) ? y
                                  : choose(&x, &y, true, &x, &y, w->unit);
        r.numbers[i] = as_stored(z, r.dtype);
    }
    by_call_op(w, ops[choice], 2, src, NULL, 0, into, s->to, &r);
}

/* where(a > b, b, c): the comparison is a constant. */
static void step_where(world_t *w, const step_t *s)
{
    handle_t *a = &w->slots[s->a], *b = by_find(w, a, s->b, SAME), *c = by_find(w, a, s->c, SAME);
    fy_tensor_t *condition, *t;
    const handle_t *src[] = { a, b, c };
    if (!b || !c || !by_is_free_for(w, s->to)) return;
    result_t r = by_like(a);
    for (int64_t i = 0; i < nelem(a); i++) {
        const number_t x = by_get(w, a, i), y = by_get(w, b, i), z = by_get(w, c, i);
        r.numbers[i] = as_stored(choose(&x, &y, false, &y, &z, w->unit), r.dtype);
    }
    if (!by_is_small(&r)) return;
    SAY("t%d = where(t%d > t%d, t%d, t%d);", s->to, s->a, by_slot(w, b), by_slot(w, b),
        by_slot(w, c));
    fy_status_t status = fy_gt(a->t, b->t, &condition);
    if (status == FY_STATUS_OK) status = fy_where(condition, b->t, c->t, &t);
    if (by_accepted(w, status, 3, src, NULL)) by_keep_result(w, s->to, t, &r);
    if (condition) fy_tensor_destroy(condition);
}

static void step_matmul(world_t *w, const step_t *s)
{
    handle_t *a = &w->slots[s->a], *src[] = { a, by_find(w, a, s->b, PRODUCT) };
    const fy_matmul_attrs_t attrs = { 0, 0 };
    if (!src[1]) return;
    result_t r = { .rank = 2, .dims = { src[0]->dims[0], src[1]->dims[1] } };
    const int64_t inner = src[0]->dims[1], columns = r.dims[1];
    r.dtype = src[0]->bytes->dtype;
    if (count_of(r.rank, r.dims) > MOST) return;
    for (int64_t i = 0; i < count_of(r.rank, r.dims); i++) {
        number_t sum = constant(0);
        for (int64_t k = 0; k < inner; k++) {
            const number_t x = by_get(w, src[0], i / columns * inner + k),
                           y = by_get(w, src[1], k * columns + i % columns), z = mul(&x, &y);
            sum = add(&sum, &z, 1);
        }
        r.numbers[i] = as_stored(sum, r.dtype);
    }
    by_call_op(w, FY_OP_MATMUL, 2, src, &attrs, sizeof attrs, NULL, s->to, &r);
}

number_t by_sum(world_t *w, const handle_t *h)
{
    number_t sum = constant(0);
    for (int64_t i = 0; i < nelem(h); i++) {
        const number_t x = by_get(w, h, i);
        sum = add(&sum, &x, 1);
    }
    return as_stored(sum, h->bytes->dtype);
}

static void step_sum(world_t *w, const step_t *s)
{
    handle_t *a = &w->slots[s->a];
    const fy_reduce_attrs_t attrs = { a->rank == 2 && s->choice % 2 ? 1 : 0, 0 };
    if (!a->t || !by_is_float(a)) return;
    result_t r = { .rank = 0, .dtype = a->bytes->dtype };
    if (!attrs.axes) {
        r.numbers[0] = by_sum(w, a);
    } else {
        r.rank = 1;
        r.dims[0] = a->dims[1];
        for (int64_t j = 0; j < a->dims[1]; j++) {
            number_t sum = constant(0);
            for (int64_t i = 0; i < a->dims[0]; i++) {
                const number_t x = by_get(w, a, i * a->dims[1] + j);
                sum = add(&sum, &x, 1);
            }
            r.numbers[j] = as_stored(sum, r.dtype);
        }
    }
    by_call_op(w, FY_OP_SUM, 1, &a, &attrs, sizeof attrs, NULL, s->to, &r);
}

static void step_concat(world_t *w, const step_t *s)
{
    handle_t *a = &w->slots[s->a], *b = by_find(w, a, s->b, JOINED);
    const handle_t *src[] = { a, b };
    fy_tensor_t *t;
    if (!b || !by_is_free_for(w, s->to)) return;
    result_t r = by_like(a);
    r.dims[0] += b->dims[0];
    if (count_of(r.rank, r.dims) > MOST) return;
    for (int64_t i = 0; i < count_of(r.rank, r.dims); i++)
        r.numbers[i] = i < nelem(a) ? by_get(w, a, i) : by_get(w, b, i - nelem(a));
    if (!by_is_small(&r)) return;
    SAY("t%d = concat(t%d, t%d);", s->to, s->a, by_slot(w, b));
    const fy_status_t status = fy_concat(2, (fy_tensor_t *[]){ a->t, b->t }, 0, &t);
    if (by_accepted(w, status, 2, src, NULL)) by_keep_result(w, s->to, t, &r);
}

static void step_cast(world_t *w, const program_t *p, const step_t *s)
{
    static const fy_dtype_t dtypes[] = { FY_DTYPE_F32, FY_DTYPE_F64, FY_DTYPE_F16, FY_DTYPE_BF16 };
    handle_t *a = &w->slots[s->a];
    if (!a->t || !by_is_float(a) || !p->has_halves) return;
    result_t r = by_like(a);
    r.dtype = dtypes[s->choice % 4];
    const fy_cast_attrs_t attrs = { (int32_t)r.dtype };
    for (int64_t i = 0; i < nelem(a); i++) r.numbers[i] = as_stored(by_get(w, a, i), r.dtype);
    by_use_dtype(w, r.dtype);
    by_call_op(w, FY_OP_CAST, 1, &a, &attrs, sizeof attrs, NULL, s->to, &r);
}

/* The facts of a view of `src`; its tensor is NULL. */
static handle_t view_of(const world_t *w, const handle_t *src)
{
    handle_t view = *src;
    view.t = NULL;
    view.is_held = false;
    view.depth++;
    if (!by_is_live(w)) {
        view.is_detached = true;
        view.seen = w->clock;
        view.leaf_record = 0;
    }
    return view;
}

static void keep_view(world_t *w, const step_t *s, fy_status_t status, handle_t view)
{
    const handle_t *src = &w->slots[s->a];
    if (!by_accepted(w, status, 1, &src, NULL)) return;
    w->counts.views_of_views += view.depth > 1;
    by_set_slot(w, s->to, view);
}

static void step_view(world_t *w, const step_t *s)
{
    handle_t *a = &w->slots[s->a], view;
    const int kind = (int)(s->choice % 6), axis = (int)(s->choice / 6 % 2);
    if (!a->t || !by_is_free_for(w, s->to)) return;
    view = view_of(w, a);
    fy_status_t status;
    if (kind < 3) { /* a slice, with a step */
        if (axis >= a->rank) return;
        const int64_t n = a->dims[axis], begin = n ? (int64_t)(s->choice / 12) % n : 0,
                      end = begin + (n ? 1 + (int64_t)(s->choice / 144) % (n - begin) : 0),
                      by = kind == 2 ? 2 : 1;
        view.offset += begin * a->strides[axis];
        view.dims[axis] = (end - begin + by - 1) / by;
        view.strides[axis] *= by;
        SAY("t%d = slice_step(t%d, axis %d, %d, %d, %d);", s->to, s->a, axis, (int)begin, (int)end,
            (int)by);
        status = by > 1 ? fy_slice_step(a->t, axis, begin, end, by, &view.t)
                        : fy_slice(a->t, axis, begin, end, &view.t);
    } else if (kind == 3) {
        if (!is_dense(a) || nelem(a) == 0) return;
        const int64_t n = nelem(a);
        make_dense(&view, 1, &n);
        SAY("t%d = reshape(t%d, -1);", s->to, s->a);
        status = fy_reshape(a->t, 1, (const int64_t[]){ -1 }, &view.t);
    } else if (kind == 4) {
        for (int i = 0; i < a->rank; i++) {
            view.dims[i] = a->dims[a->rank - 1 - i];
            view.strides[i] = a->strides[a->rank - 1 - i];
        }
        SAY("t%d = transpose(t%d);", s->to, s->a);
        status = fy_transpose(a->t, NULL, &view.t);
    } else {
        if (a->rank > 1 || 2 * nelem(a) > MOST) return;
        for (int i = a->rank; i-- > 0;) {
            view.dims[i + 1] = a->dims[i];
            view.strides[i + 1] = a->strides[i];
        }
        view.rank++;
        view.dims[0] = 2;
        view.strides[0] = 0;
        view.is_read_only = true;
        SAY("t%d = broadcast(t%d, 2 x ...);", s->to, s->a);
        status = fy_broadcast(a->t, view.rank, view.dims, &view.t);
    }
    keep_view(w, s, status, view);
}

static void step_split(world_t *w, const step_t *s)
{
    handle_t *a = &w->slots[s->a], view;
    fy_tensor_t *parts[2];
    if (!a->t || !by_is_free_for(w, s->to) || a->rank == 0 || a->dims[0] < 1) return;
    const int64_t sizes[] = { 1, a->dims[0] - 1 };
    const int which = (int)(s->choice % 2);
    view = view_of(w, a);
    view.offset += which * a->strides[0];
    view.dims[0] = sizes[which];
    SAY("t%d = split(t%d, 1 and the rest)[%d];", s->to, s->a, which);
    const fy_status_t status = fy_split(a->t, 0, 2, sizes, parts);
    if (status == FY_STATUS_OK) {
        fy_tensor_destroy(parts[!which]);
        view.t = parts[which];
    }
    keep_view(w, s, status, view);
}

static void step_fill(world_t *w, const program_t *p, const step_t *s)
{
    handle_t *a = &w->slots[s->a];
    const double value = value_at(p, s->choice, 0);
    if (!a->t || a->is_read_only) return;
    result_t r = by_like(a);
    for (int64_t i = 0; i < nelem(a); i++) r.numbers[i] = constant(value);
    w->counts.nans += !isfinite(value);
    SAY("fill(t%d, %g);", s->a, value);
    if (by_accepted(w, fy_fill(a->t, value), 0, NULL, a)) by_write_result(w, a, &r);
}

static void step_copy(world_t *w, const step_t *s, bool adds)
{
    handle_t *a = &w->slots[s->a], *b = by_find(w, a, s->b, INTO_A);
    const handle_t *src = b;
    if (!b || a->is_read_only) return;
    result_t r = by_like(a);
    for (int64_t i = 0; i < nelem(a); i++) {
        const number_t x = by_get(w, a, i), y = by_get(w, b, broadcast_of(b, a->rank, a->dims, i));
        r.numbers[i] = as_stored(adds ? add(&x, &y, 0.5) : y, r.dtype);
    }
    if (!by_is_small(&r)) return;
    SAY(adds ? "axpy(t%d, 0.5, t%d);" : "copy(t%d, t%d);", s->a, by_slot(w, b));
    const fy_status_t status = adds ? fy_axpy(a->t, 0.5, b->t) : fy_copy(a->t, b->t);
    if (by_accepted(w, status, 1, &src, a)) by_write_result(w, a, &r);
}

/* In place, by a factor of 1; the op has no gradient rule. */
static void step_clip(world_t *w, const step_t *s)
{
    handle_t *a = &w->slots[s->a];
    fy_tensor_t *norm;
    if (!a->t || a->is_read_only || !by_is_float(a)) return;
    result_t r = by_like(a);
    for (int64_t i = 0; i < nelem(a); i++) r.numbers[i] = by_get(w, a, i);
    if (!by_is_small(&r)) return;
    SAY("clip_by_norm(t%d, 1, 2);", s->a);
    ts_ok(fy_full(w->ctx->device, a->bytes->dtype, 0, NULL, 1, &norm));
    const fy_status_t status = fy_clip_by_norm(a->t, norm, 2);
    fy_tensor_destroy(norm);
    if (status == FY_STATUS_UNSUPPORTED && by_is_live(w)) {
        w->is_over |= w->in_graph;
        return;
    }
    if (by_accepted(w, status, 0, NULL, a)) by_write_result(w, a, &r);
}

static void step_upload_into(world_t *w, const program_t *p, const step_t *s)
{
    handle_t *a = &w->slots[s->a];
    if (!a->t || a->is_read_only || !by_is_float(a)) return;
    result_t r = by_like(a);
    fy_tensor_t *host = host_values(w, p, s, &r);
    SAY("upload_into(t%d);", s->a);
    if (by_accepted(w, fy_tensor_upload_into(a->t, host, NULL, NULL), 0, NULL, a))
        by_write_result(w, a, &r);
    fy_tensor_destroy(host);
}

/* A copy by an upload, which only the host's tensors have. A tape has no rule for it. */
static void step_send(world_t *w, const step_t *s)
{
    const handle_t *a = &w->slots[s->a];
    fy_tensor_t *t;
    if (!a->t || !w->ctx->is_host || !by_is_free_for(w, s->to)) return;
    result_t r = by_like(a);
    for (int64_t i = 0; i < nelem(a); i++) r.numbers[i] = by_get(w, a, i);
    SAY("t%d = upload(t%d);", s->to, s->a);
    const fy_status_t status = fy_tensor_upload(a->t, w->ctx->device, NULL, &t);
    if (status == FY_STATUS_UNSUPPORTED && by_is_live(w)) return;
    if (by_accepted(w, status, 1, &a, NULL)) by_keep_result(w, s->to, t, &r);
}

void by_run_op(world_t *w, const program_t *p, const step_t *s)
{
    if (w->in_graph && (s->kind == NEW || s->kind == UPLOAD_INTO || s->kind == SEND)) return;
    switch (s->kind) {
    case NEW: step_new(w, p, s); break;
    case UNARY: step_unary(w, s, NULL); break;
    case BINARY: step_binary(w, s, NULL); break;
    case WHERE: step_where(w, s); break;
    case MATMUL: step_matmul(w, s); break;
    case SUM: step_sum(w, s); break;
    case CONCAT: step_concat(w, s); break;
    case CAST: step_cast(w, p, s); break;
    case VIEW: step_view(w, s); break;
    case SPLIT: step_split(w, s); break;
    case FILL: step_fill(w, p, s); break;
    case COPY: step_copy(w, s, false); break;
    case AXPY: step_copy(w, s, true); break;
    case INTO:
        if (!w->slots[s->c].t) break;
        if (s->choice & 1 << 10)
            step_unary(w, s, &w->slots[s->c]);
        else
            step_binary(w, s, &w->slots[s->c]);
        break;
    case UPLOAD_INTO: step_upload_into(w, p, s); break;
    case CLIP: step_clip(w, s); break;
    case SEND: step_send(w, s); break;
    default: break;
    }
}
