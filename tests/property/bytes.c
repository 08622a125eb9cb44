/* The bytes and the slots of a program of test_bytes.c. Next: bytes_calls.c. */
#include "tests/property/bytes.h"

void by_fail(world_t *w, const char *text)
{
    if (!w->why[0]) snprintf(w->why, sizeof w->why, "%s", text);
}

/* ---- what the oracle reads and writes ---- */

number_t by_get(world_t *w, const handle_t *h, int64_t element)
{
    const int64_t at = place_of(h, element);
    number_t a = h->bytes->at[at];
    const int column = h->bytes->leaf[at] - 1;
    if (!by_is_live(w) || (h->is_detached && h->bytes->written[at] <= h->seen)) {
        for (int k = 0; k < COLUMNS; k++) a.d[k] = a.dsize[k] = 0;
        if (!by_is_live(w)) return a;
    }
    if (column >= 0 && h->leaf_record == w->record) a.d[column] += 1, a.dsize[column] += 1;
    w->is_wild |= !isfinite(a.v);
    return a;
}

void by_put(world_t *w, const handle_t *h, int64_t element, number_t a)
{
    const int64_t at = place_of(h, element);
    h->bytes->at[at] = as_stored(a, h->bytes->dtype);
    h->bytes->written[at] = ++w->clock;
    /* A constant that an upload or another handle writes to a watched tensor before its first use
     * is its value; its views of this record are results. */
    if (h->leaf_record == w->record && !h->is_held) h->bytes->home[at] = 0;
    h->bytes->leaf[at] = depends(&a) ? 0 : h->bytes->home[at];
}

void by_use_dtype(world_t *w, fy_dtype_t dtype)
{
    if (ts_unit(dtype) > w->unit) w->unit = ts_unit(dtype);
    w->counts.halves += dtype == FY_DTYPE_F16 || dtype == FY_DTYPE_BF16;
}

/* A storage without handles; NULL: all are in use. */
static bytes_t *new_bytes(world_t *w, fy_dtype_t dtype, int64_t n)
{
    for (int i = 0; i < STORAGES; i++) w->storages[i].is_used = false;
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].t) w->slots[i].bytes->is_used = true;
    for (int i = 0; i < STORAGES; i++) {
        bytes_t *bytes = &w->storages[i];
        if (bytes->is_used) continue;
        memset(bytes->home, 0, sizeof bytes->home);
        memset(bytes->leaf, 0, sizeof bytes->leaf);
        memset(bytes->written, 0, sizeof bytes->written);
        bytes->dtype = dtype;
        bytes->n = n;
        by_use_dtype(w, dtype);
        return bytes;
    }
    return NULL;
}

bool by_shares(const handle_t *a, const handle_t *b)
{
    if (a->bytes != b->bytes) return false;
    for (int64_t i = 0; i < nelem(a); i++)
        for (int64_t j = 0; j < nelem(b); j++)
            if (place_of(a, i) == place_of(b, j)) return true;
    return false;
}

/* ---- calls ---- */

void by_say(world_t *w, const char *text)
{
    snprintf(w->line, sizeof w->line, "%s", text);
    if (w->prints) print_error("  %s\n", w->line);
}

bool by_accepted(world_t *w, fy_status_t status, int nsrc, const handle_t *const *src,
                 const handle_t *dst)
{
    bool may_be_busy = w->writes > 0, may_overlap = false;
    w->counts.calls++;
    if (dst) {
        w->counts.view_writes += dst->depth > 0;
        w->counts.writes_before += !w->is_recording;
        w->counts.writes_between += w->is_recording;
    }
    if (status == FY_STATUS_OK) {
        w->writes += dst != NULL;
        return true;
    }
    for (int i = 0; i < nsrc; i++) may_overlap |= dst && dst->bytes == src[i]->bytes;
    for (int i = 0; i < LEAVES && dst; i++)
        if (w->leaves[i].watched) may_be_busy |= w->leaves[i].watched->bytes == dst->bytes;
    w->counts.refused++;
    w->is_over |= w->in_graph;
    SAY("/* %s */", fy_status_name(status));
    if (status == FY_STATUS_BUSY && by_is_live(w) && may_be_busy) return false;
    if (status == FY_STATUS_INVALID_ARGUMENT && may_overlap) return false;
    char text[560];
    snprintf(text, sizeof text, "refused without a reason: %s: %s", fy_status_name(status),
             fy_error_get()->text);
    by_fail(w, text);
    return false;
}

bool by_is_free_for(world_t *w, int slot) { return !w->slots[slot].is_held; }

/* The slot gets a handle in place of its present one. */
void by_set_slot(world_t *w, int slot, handle_t h)
{
    fy_tensor_destroy(w->slots[slot].t);
    w->slots[slot] = h;
    fy_tensor_keep(h.t);
    w->counts.zero_sizes += nelem(&h) == 0;
}

/* No element is above what all dtypes hold, so that rounding can be bounded. */
bool by_is_small(const result_t *r)
{
    for (int64_t i = 0; i < count_of(r->rank, r->dims); i++) {
        const number_t *a = &r->numbers[i];
        if (a->size > LARGEST && !is_unknown(a)) return false;
        for (int k = 0; k < COLUMNS; k++)
            if (a->dsize[k] > LARGEST && isfinite(a->dsize[k])) return false;
    }
    return true;
}

void by_keep_result(world_t *w, int to, fy_tensor_t *t, const result_t *r)
{
    handle_t h = { .t = t };
    make_dense(&h, r->rank, r->dims);
    h.bytes = new_bytes(w, r->dtype, nelem(&h));
    for (int64_t i = 0; i < nelem(&h); i++) by_put(w, &h, i, r->numbers[i]);
    /* of this record, but not a write to what was there */
    for (int64_t i = 0; i < nelem(&h); i++) h.bytes->written[i] = w->record_began;
    by_set_slot(w, to, h);
}

void by_write_result(world_t *w, handle_t *dst, const result_t *r)
{
    for (int64_t i = 0; i < nelem(dst); i++) by_put(w, dst, i, r->numbers[i]);
}

static bool can_take(const handle_t *h, const result_t *r)
{
    return h->t && !h->is_read_only && h->bytes->dtype == r->dtype && has_dims(h, r->rank, r->dims);
}

/* An op as the function of fy_tape_recompute: source 0 is its input, it reads the others. */
typedef struct again {
    fy_op_t op;
    size_t nsrc, attrs_nbytes;
    fy_tensor_t *others[2]; /* its handles on the tensors that it reads */
    unsigned char attrs[32];
} again_t;

static fy_status_t run_again(void *user, size_t count, fy_tensor_t *const *inputs,
                             fy_tensor_t **out_y)
{
    const again_t *again = user;
    fy_tensor_t *src[3] = { inputs[0], again->others[0], again->others[1] };
    assert_int_equal(count, 1);
    return fy_op_call(again->op, again->nsrc, src, again->attrs_nbytes ? again->attrs : NULL,
                      again->attrs_nbytes, 1, out_y);
}

static void free_again(void *user)
{
    again_t *again = user;
    for (int i = 0; i < 2; i++) fy_tensor_destroy(again->others[i]);
    free(again);
}

static fy_status_t call_again(fy_op_t op, int nsrc, fy_tensor_t *const *src, const void *attrs,
                              size_t attrs_nbytes, fy_tensor_t **out_y)
{
    static const int axes[] = { 0, 1, 2 };
    again_t *again = calloc(1, sizeof *again);
    fy_recompute_options_t options = FY_RECOMPUTE_OPTIONS_INIT;
    assert_non_null(again);
    assert_true(attrs_nbytes <= sizeof again->attrs);
    options.destroy = free_again;
    again->op = op, again->nsrc = (size_t)nsrc, again->attrs_nbytes = attrs_nbytes;
    if (attrs) memcpy(again->attrs, attrs, attrs_nbytes);
    for (int i = 1; i < nsrc; i++) {
        const fy_status_t status = fy_transpose(src[i], axes, &again->others[i - 1]);
        if (status != FY_STATUS_OK) {
            free_again(again);
            return status;
        }
        fy_tensor_keep(again->others[i - 1]);
    }
    return fy_tape_recompute(run_again, again, 1, src, &options, out_y);
}

/* An op of these sources; into: the first slot in which to look for a given result, or NULL for a
 * new one in slot `to`. */
void by_call_op(world_t *w, fy_op_t op, int nsrc, handle_t *const *src, const void *attrs,
                size_t attrs_nbytes, handle_t *into, int to, const result_t *r)
{
    fy_tensor_t *tensors[3], *dst = NULL;
    const handle_t *sources[3];
    if (!by_is_small(r)) return;
    if (into) {
        int i = 0, first = by_slot(w, into);
        while (i < SLOTS && !can_take(&w->slots[(first + i) % SLOTS], r)) i++;
        if (i == SLOTS) return;
        into = &w->slots[(first + i) % SLOTS];
        dst = into->t;
    } else if (!by_is_free_for(w, to)) {
        return;
    }
    for (int i = 0; i < nsrc; i++) tensors[i] = (sources[i] = src[i])->t;
    char second[8] = "";
    if (nsrc > 1) snprintf(second, sizeof second, ", t%d", by_slot(w, src[1]));
    const bool is_again = w->runs_again && !into;
    SAY("%st%d = %s%s(t%d%s);", into ? "into " : "", into ? by_slot(w, into) : to,
        is_again ? "recompute " : "", fy_op_get(op)->name, by_slot(w, src[0]), second);
    const fy_status_t status =
        is_again ? call_again(op, nsrc, tensors, attrs, attrs_nbytes, &dst)
                 : fy_op_call(op, (size_t)nsrc, tensors, attrs, attrs_nbytes, 1, &dst);
    if (!by_accepted(w, status, nsrc, sources, into)) return;
    if (into)
        by_write_result(w, into, r);
    else
        by_keep_result(w, to, dst, r);
}

result_t by_like(const handle_t *h)
{
    result_t r = { .rank = h->rank, .dtype = h->bytes->dtype };
    memcpy(r.dims, h->dims, sizeof r.dims);
    return r;
}

static bool fits(const handle_t *a, const handle_t *b, fit_t fit)
{
    int rank;
    int64_t dims[RANK];
    if (!b->t || b->bytes->dtype != a->bytes->dtype) return false;
    switch (fit) {
    case BROADCASTS: return broadcast_dims(a, b, &rank, dims) && count_of(rank, dims) <= MOST;
    case INTO_A: return broadcast_dims(a, b, &rank, dims) && has_dims(a, rank, dims);
    case SAME: return has_dims(b, a->rank, a->dims);
    case PRODUCT: return a->rank == 2 && b->rank == 2 && a->dims[1] == b->dims[0];
    case JOINED: break;
    }
    for (int i = 1; i < a->rank && a->rank == b->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return a->rank == b->rank && a->rank > 0;
}

handle_t *by_find(world_t *w, const handle_t *a, int slot, fit_t fit)
{
    for (int i = 0; a->t && i < SLOTS; i++)
        if (fits(a, &w->slots[(slot + i) % SLOTS], fit)) return &w->slots[(slot + i) % SLOTS];
    return NULL;
}
