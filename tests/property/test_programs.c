/* Random programs: the same sequence of ops, views, uploads, downloads, destroys and scopes on the
 * host and on the device under test. Both must accept or refuse each call with the same status, and
 * every downloaded byte must be the same.
 * A failure prints the seed; FERRY_SEED=n runs that one program alone, FERRY_PROGRAMS=n runs more
 * of them.
 * Ops are drawn from the op table, so a new one is included. Not here: the correct values
 * (tests/ops). */
#include <inttypes.h>

#include "tests/support/harness.h"
#include "tests/support/value.h"

enum { MAX_PAIRS = 24, NSTEPS = 150, MAX_DEPTH = 4, MAX_SRC = 8, MAX_ATTRS = 128 };

/* The same tensor on both devices. */
typedef struct pair {
    fy_tensor_t *t[2]; /* host, device; NULL: a free slot */
    int depth;
} pair_t;

typedef struct world {
    fy_device_t *device[2];
    fy_stream_t *side; /* of device[1]; NULL on a device with one stream */
    pair_t pairs[MAX_PAIRS];
    fy_scope_t scopes[MAX_DEPTH];
    int depth;
    ts_random_t random;
    uint64_t seed, nrun, nrefused, ncompared;
    int step;
    char last[160], host_text[512]; /* of the last step; of the host's last failure */
} world_t;

static int64_t below(world_t *w, int64_t n) { return ts_random_below(&w->random, n); }

static void die(world_t *w, const char *text)
{
    print_error("seed %" PRIu64 ", step %d, %s: %s\n  again: FERRY_SEED=%" PRIu64 "\n", w->seed,
                w->step, w->last, text, w->seed);
    fail();
}

/* `status`, of the call on the host. */
static fy_status_t of_host(world_t *w, fy_status_t status)
{
    snprintf(w->host_text, sizeof w->host_text, "%s", fy_error_get()->text);
    return status;
}

/* Compares both statuses; true if both accepted. */
static bool agree(world_t *w, fy_status_t host, fy_status_t device)
{
    if (host != device) {
        char text[1200];
        snprintf(text, sizeof text, "host says %s (%s), the device says %s (%s)",
                 fy_status_name(host), host ? w->host_text : "-", fy_status_name(device),
                 device ? fy_error_get()->text : "-");
        die(w, text);
    }
    w->nrun++;
    w->nrefused += host != FY_STATUS_OK;
    return host == FY_STATUS_OK;
}

static pair_t *free_place(world_t *w)
{
    for (int i = 0; i < MAX_PAIRS; i++) {
        if (!w->pairs[i].t[0]) return &w->pairs[i];
    }
    pair_t *victim = &w->pairs[below(w, MAX_PAIRS)];
    for (int i = 0; i < 2; i++) fy_tensor_destroy(victim->t[i]);
    *victim = (pair_t){ 0 };
    return victim;
}

static void add_pair(world_t *w, fy_tensor_t *host, fy_tensor_t *device)
{
    pair_t *place = free_place(w);
    *place = (pair_t){ { host, device }, w->depth };
}

/* Any pair; of `dtype` if it is a dtype and such a pair exists. NULL if there is no pair. */
static pair_t *pick(world_t *w, fy_dtype_t dtype)
{
    pair_t *found = NULL;
    int64_t start = below(w, MAX_PAIRS);
    for (int i = 0; i < MAX_PAIRS; i++) {
        pair_t *pair = &w->pairs[(start + i) % MAX_PAIRS];
        if (!pair->t[0]) continue;
        if (dtype == FY_DTYPE_COUNT || ts_info(pair->t[0]).dtype == dtype) return pair;
        if (!found) found = pair;
    }
    return found;
}

/* ---- steps ---- */

static void make_host_values(world_t *w, ts_array_t *values, ts_domain_t domain, int64_t limit)
{
    int64_t dims[4];
    int rank = (int)below(w, 4);
    for (int axis = 0; axis < rank; axis++)
        dims[axis] = (int64_t[]){ 1, 2, 3, 4, 4, 5, 0, 17 }[below(w, below(w, 10) ? 6 : 8)];
    fy_dtype_t dtype = domain == TS_INDEX
                           ? FY_DTYPE_I64
                           : (fy_dtype_t)(below(w, 3) ? below(w, 3) : below(w, FY_DTYPE_COUNT));
    ts_array_make(values, dtype, rank, dims);
    ts_array_fill(values, domain, limit, -1, &w->random);
}

static fy_tensor_t *host_tensor(const ts_array_t *values)
{
    fy_tensor_t *host;
    void *data;
    ts_ok(fy_tensor_create(fy_device_host(), values->dtype, values->rank, values->dims, &host));
    ts_ok(fy_tensor_map(host, FY_ACCESS_WRITE, &data));
    for (uint64_t k = 0; k < values->nelem; k++) ts_encode(values, k, data, k);
    return host;
}

static void step_upload(world_t *w)
{
    ts_array_t values;
    make_host_values(w, &values, below(w, 8) ? TS_ANY : TS_SPECIAL, 0);
    snprintf(w->last, sizeof w->last, "upload %s", fy_dtype_name(values.dtype));
    fy_tensor_t *host = host_tensor(&values), *up[2];
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_INIT;
    if (ts_is_float(values.dtype) && below(w, 4) == 0)
        options.dtype = (fy_dtype_t)below(w, FY_DTYPE_BF16 + 1);
    for (int i = 0; i < 2; i++) ts_ok(fy_tensor_upload(host, w->device[i], &options, &up[i]));
    fy_tensor_destroy(host);
    add_pair(w, up[0], up[1]);
    ts_array_free(&values);
}

static void step_upload_into(world_t *w)
{
    pair_t *dst = pick(w, FY_DTYPE_COUNT);
    if (!dst) return;
    fy_tensor_info_t info = ts_info(dst->t[0]);
    ts_array_t values;
    ts_array_make(&values, info.dtype, info.rank, info.dims);
    ts_array_fill(&values, TS_ANY, 0, -1, &w->random);
    fy_tensor_t *host = host_tensor(&values);
    snprintf(w->last, sizeof w->last, "upload_into %s rank %d", fy_dtype_name(info.dtype),
             info.rank);
    fy_status_t first = of_host(w, fy_tensor_upload_into(dst->t[0], host, NULL, NULL));
    agree(w, first, fy_tensor_upload_into(dst->t[1], host, NULL, NULL));
    fy_tensor_destroy(host);
    ts_array_free(&values);
}

/* Random attributes, in the ranges where ops often accept them. */
static void random_attrs(world_t *w, const fy_op_info_t *info, unsigned char *attrs)
{
    for (int f = 0; f < info->nfields; f++) {
        const fy_attr_field_t *field = &info->fields[f];
        unsigned char *at = attrs + field->offset;
        double real = (double)below(w, 9) / 2 - 2;
        int64_t whole = below(w, 4);
        int32_t small = (int32_t)(field->type == FY_ATTR_BOOL32    ? below(w, 2)
                                  : field->type == FY_ATTR_DTYPE32 ? below(w, FY_DTYPE_COUNT)
                                                                   : below(w, 5) - 2);
        uint32_t axes = (uint32_t)below(w, 8);
        switch (field->type) {
        case FY_ATTR_F64: memcpy(at, &real, sizeof real); break;
        case FY_ATTR_I64: memcpy(at, &whole, sizeof whole); break;
        case FY_ATTR_AXES32: memcpy(at, &axes, sizeof axes); break;
        default: memcpy(at, &small, sizeof small); break;
        }
    }
}

/* Any op except the random draws, gather (its indices are made below) and ops that need a special
 * destination. */
static void step_op(world_t *w)
{
    const fy_op_info_t *info = fy_op_get((fy_op_t)below(w, FY_OP_BUILTIN_COUNT));
    if (info->op == FY_OP_GATHER || info->ndst > 1) return;
    if (info->nsrc_min == 2 && below(w, 3) == 0) info = fy_op_get(FY_OP_MATMUL);
    _Alignas(16) unsigned char attrs[MAX_ATTRS] = { 0 };
    assert_true(info->nsrc_min <= MAX_SRC && info->attrs_nbytes <= MAX_ATTRS);
    random_attrs(w, info, attrs);
    fy_tensor_t *src[2][MAX_SRC], *dst[2] = { NULL, NULL };
    size_t nsrc = info->nsrc_max == FY_OP_VARIADIC ? 1 + (size_t)below(w, 3) : info->nsrc_min;
    fy_dtype_t dtype = FY_DTYPE_COUNT;
    for (size_t s = 0; s < nsrc; s++) {
        fy_dtype_t wanted = info->op == FY_OP_WHERE && s == 0 ? FY_DTYPE_BOOL : dtype;
        pair_t *pair = pick(w, wanted);
        if (!pair) return;
        if (wanted == dtype) dtype = ts_info(pair->t[0]).dtype;
        for (int i = 0; i < 2; i++) src[i][s] = pair->t[i];
    }
    bool given = (info->flags & FY_OP_IN_PLACE) || below(w, 6) == 0;
    if (given) {
        pair_t *pair = pick(w, dtype);
        if (!pair) return;
        for (int i = 0; i < 2; i++) dst[i] = pair->t[i];
    }
    snprintf(w->last, sizeof w->last, "%s of %zu %s%s", info->name, nsrc,
             dtype < FY_DTYPE_COUNT ? fy_dtype_name(dtype) : "", given ? " into a given dst" : "");
    const void *attr = info->attrs_nbytes ? attrs : NULL;
    fy_status_t first =
        of_host(w, fy_op_call(info->op, nsrc, src[0], attr, info->attrs_nbytes, 1, &dst[0]));
    if (agree(w, first, fy_op_call(info->op, nsrc, src[1], attr, info->attrs_nbytes, 1, &dst[1])) &&
        !given)
        add_pair(w, dst[0], dst[1]);
}

static void step_gather(world_t *w)
{
    pair_t *table = pick(w, FY_DTYPE_COUNT);
    if (!table) return;
    fy_tensor_info_t info = ts_info(table->t[0]);
    if (info.rank == 0 || info.dims[0] == 0) return;
    /* an index out of range: both devices must report it to a download of the result */
    bool bad = below(w, 12) == 0;
    ts_array_t values;
    make_host_values(w, &values, TS_INDEX, info.dims[0] + (bad ? 3 : 0));
    fy_tensor_t *host = host_tensor(&values), *indices, *out[2] = { NULL, NULL };
    fy_status_t status[2];
    snprintf(w->last, sizeof w->last, "gather%s", bad ? " out of range" : "");
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_tensor_upload(host, w->device[i], NULL, &indices));
        status[i] = fy_gather(table->t[i], indices, &out[i]);
        if (i == 0) (void)of_host(w, status[0]);
        fy_tensor_destroy(indices);
    }
    if (agree(w, status[0], status[1])) add_pair(w, out[0], out[1]);
    fy_tensor_destroy(host);
    ts_array_free(&values);
}

static void step_random(world_t *w)
{
    fy_tensor_t *rng, *out[2];
    int64_t seed = below(w, 1000), n = below(w, 40);
    snprintf(w->last, sizeof w->last, "random draw");
    for (int i = 0; i < 2; i++) {
        ts_ok(fy_rng_create(w->device[i], seed, &rng));
        if (seed % 2)
            ts_ok(fy_randperm(rng, n, &out[i]));
        else
            ts_ok(fy_rand(rng, (fy_dtype_t)(seed / 2 % 4), FY_DIMS(2, n), -1, 1, &out[i]));
        fy_tensor_destroy(rng);
    }
    add_pair(w, out[0], out[1]);
}

static fy_status_t view_of(fy_tensor_t *src, int kind, int64_t a, int64_t b, fy_tensor_t **out)
{
    fy_tensor_info_t info = ts_info(src);
    int64_t dims[FY_MAX_RANK + 1] = { 0 };
    switch (kind) {
    case 0: return fy_transpose(src, NULL, out);
    case 1: return fy_slice(src, (int)(a % 4) - 1, b % 3, b % 3 + a % 3, out);
    case 2: return fy_unsqueeze(src, (int)(a % 4) - 1, out);
    case 3: return fy_squeeze(src, (int)(a % 4) - 1, out);
    case 4: return fy_reshape(src, 1, (int64_t[]){ -1 }, out);
    case 5: return fy_reshape(src, 2, (int64_t[]){ 1 + a % 4, -1 }, out);
    default:
        dims[0] = 1 + a % 3;
        memcpy(dims + 1, info.dims, sizeof info.dims);
        return info.rank < FY_MAX_RANK ? fy_broadcast(src, info.rank + 1, dims, out)
                                       : fy_transpose(src, NULL, out);
    }
}

static void step_view(world_t *w)
{
    pair_t *pair = pick(w, FY_DTYPE_COUNT);
    if (!pair) return;
    fy_tensor_t *out[2] = { NULL, NULL };
    int kind = (int)below(w, 7);
    int64_t a = below(w, 12), b = below(w, 12);
    snprintf(w->last, sizeof w->last, "view %d", kind);
    fy_status_t first = of_host(w, view_of(pair->t[0], kind, a, b, &out[0]));
    if (agree(w, first, view_of(pair->t[1], kind, a, b, &out[1]))) add_pair(w, out[0], out[1]);
}

static void compare(world_t *w, pair_t *pair)
{
    fy_tensor_t *host[2] = { NULL, NULL };
    fy_status_t status[2];
    snprintf(w->last, sizeof w->last, "download");
    for (int i = 0; i < 2; i++) {
        fy_download_t *download;
        status[i] = fy_tensor_download(pair->t[i], NULL, &download);
        if (status[i] == FY_STATUS_OK) status[i] = fy_download_wait(download, FY_FOREVER, &host[i]);
        if (i == 0) (void)of_host(w, status[0]);
    }
    if (agree(w, status[0], status[1])) {
        fy_tensor_info_t a = ts_info(host[0]), b = ts_info(host[1]);
        void *bytes[2];
        if (a.dtype != b.dtype || a.nbytes != b.nbytes || a.rank != b.rank) die(w, "other facts");
        for (int i = 0; i < 2; i++) ts_ok(fy_tensor_map(host[i], FY_ACCESS_READ, &bytes[i]));
        if (memcmp(bytes[0], bytes[1], a.nbytes) != 0) die(w, "other bits");
        w->ncompared++;
    }
    for (int i = 0; i < 2; i++) fy_tensor_destroy(host[i]);
}

static void step_destroy(world_t *w)
{
    pair_t *pair = pick(w, FY_DTYPE_COUNT);
    if (!pair) return;
    for (int i = 0; i < 2; i++) fy_tensor_destroy(pair->t[i]);
    *pair = (pair_t){ 0 };
}

static void step_scope(world_t *w)
{
    if (w->depth < MAX_DEPTH && below(w, 2)) {
        w->scopes[w->depth++] = fy_scope_begin("level");
        if (w->side && below(w, 2)) ts_ok(fy_stream_set_current(w->side));
        return;
    }
    if (w->depth == 0) return;
    fy_tensor_t *results[2 * MAX_PAIRS];
    size_t nresults = 0;
    w->depth--;
    for (int i = 0; i < MAX_PAIRS; i++) {
        pair_t *pair = &w->pairs[i];
        if (!pair->t[0] || pair->depth <= w->depth) continue;
        if (below(w, 2)) { /* returned to the outer scope */
            results[nresults++] = pair->t[0];
            results[nresults++] = pair->t[1];
            pair->depth = w->depth;
        } else {
            *pair = (pair_t){ 0 };
        }
    }
    fy_scope_end(w->scopes[w->depth], nresults, results);
}

static void run_program(ts_ctx_t *ctx, world_t *w, uint64_t seed)
{
    *w = (world_t){ .device = { fy_device_host(), ctx->device }, .random = { seed }, .seed = seed };
    fy_scope_t scope = fy_scope_begin("program");
    if (!ctx->is_host) ts_ok(fy_stream_create(ctx->device, NULL, &w->side));
    for (w->step = 0; w->step < NSTEPS; w->step++) {
        int64_t kind = below(w, 100);
        pair_t *pair;
        if (kind < 12)
            step_upload(w);
        else if (kind < 16)
            step_upload_into(w);
        else if (kind < 56)
            step_op(w);
        else if (kind < 61)
            step_gather(w);
        else if (kind < 64)
            step_random(w);
        else if (kind < 80)
            step_view(w);
        else if (kind < 86)
            step_destroy(w);
        else if (kind < 93)
            step_scope(w);
        else if ((pair = pick(w, FY_DTYPE_COUNT)))
            compare(w, pair);
    }
    for (int i = 0; i < MAX_PAIRS; i++) {
        if (w->pairs[i].t[0]) compare(w, &w->pairs[i]);
    }
    fy_scope_end(scope, 0, NULL);
}

TS_DEVICE_TEST(host_and_device_agree)
{
    const char *count = getenv("FERRY_PROGRAMS"), *one = getenv("FERRY_SEED");
    uint64_t nprograms = one && *one       ? 1
                         : count && *count ? strtoull(count, NULL, 0)
                                           : 150,
             first = ts_seed(1);
    uint64_t nrun = 0, nrefused = 0, ncompared = 0;
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    for (uint64_t i = 0; i < nprograms; i++) {
        run_program(ctx, w, first + i);
        nrun += w->nrun;
        nrefused += w->nrefused;
        ncompared += w->ncompared;
    }
    print_message("           seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " calls, %" PRIu64
                  " of them refused by both, %" PRIu64 " tensors compared\n",
                  first, first + nprograms - 1, nrun, nrefused, ncompared);
    /* a program that compares nothing proves nothing */
    assert_true(ncompared > nprograms);
    assert_true(2 * nrefused < nrun || nprograms == 1); /* nor one in which every call is refused */
    free(w);
}

static const ts_exclusion_t k_exclusions[] = {
    { "cuda", "host_and_device_agree",
      "another kernel set: bits differ within the oracle's bounds, which test_op_matrix checks" },
    { NULL, NULL, NULL },
};

TS_SUITE(.exclusions = k_exclusions);
