/* Part of attention.c, which includes it once for float and once for double: T is the type, N(name)
 * a function's name for it. The blocks of one task are on the stack. Rows of scores are MOST_BLOCK
 * apart: exponentials are written in whole vectors, beyond the last key. No include guard. */

/* C = A B, or += B, of blocks. B's rows are contiguous. */
static void N(product)(const fy__loops_t *loops, int64_t m, int64_t n, int64_t k, const T *a,
                       int64_t a_row, int64_t a_column, const T *b, int64_t b_row, T *c,
                       int64_t c_row, int adds)
{
#if IS_FLOAT
    const fy__small_gemm_t g = { m, n, k, a, a_row, a_column, b, b_row, 1, c, c_row, adds };
    loops->gemm_small_f32(&g);
#else
    (void)loops;
    for (int64_t i = 0; i < m; i++) {
        T *out = c + i * c_row;
        if (!adds) memset(out, 0, (size_t)n * sizeof *out);
        for (int64_t p = 0; p < k; p++) {
            const T x = a[i * a_row + p * a_column];
            for (int64_t j = 0; j < n; j++) out[j] += x * b[p * b_row + j];
        }
    }
#endif
}

/* n rows of a tensor [B, ., H, D], from row `first` on, times `factor`: element d of row r goes to
 * out[r * row + d * column]. Heads lie between the rows, so that no processor guesses the next one:
 * it is asked for some rows ahead. */
static void N(load)(const task_t *t, const fy_desc_t *x, int64_t first, int64_t n, T factor, T *out,
                    int64_t row, int64_t column)
{
    _Alignas(64) T staged[FY__BLOCK];
    const int is_plain = x->dtype == COMPUTE && x->strides[3] == 1;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t d = 0; d < t->a->width; d += FY__BLOCK) {
            const int64_t left = t->a->width - d, m = left < FY__BLOCK ? left : FY__BLOCK;
            const T *from = (const T *)(const void *)at(t, x, first + r, d);
            if (is_plain && r + AHEAD < n) {
                const T *next = (const T *)(const void *)at(t, x, first + r + AHEAD, d);
                for (int64_t i = 0; i < m; i += 64 / (int64_t)sizeof *next)
                    __builtin_prefetch(next + i);
            }
            if (!is_plain) {
                fy__stage_in(t->a->loops, m, staged, COMPUTE, from, x->strides[3], x->dtype);
                from = staged;
            }
            T *to = out + r * row + d * column;
            for (int64_t i = 0; i < m; i++) to[i * column] = from[i] * factor;
        }
    }
}

/* The other way, each row times its factor. */
static void N(put)(const task_t *t, const fy_desc_t *x, int64_t first, int64_t n,
                   const double *factors, const T *from)
{
    _Alignas(64) T staged[FY__BLOCK];
    for (int64_t r = 0; r < n; r++) {
        for (int64_t d = 0; d < t->a->width; d += FY__BLOCK) {
            const int64_t left = t->a->width - d, m = left < FY__BLOCK ? left : FY__BLOCK;
            for (int64_t i = 0; i < m; i++)
                staged[i] = from[r * t->a->width + d + i] * (T)factors[r];
            fy__stage_out(t->a->loops, m, (char *)(uintptr_t)at(t, x, first + r, d), x->strides[3],
                          x->dtype, staged, COMPUTE);
        }
    }
}

/* The scores of a block of rows and keys; -inf where the row may not attend to the key. */
static void N(scores)(const task_t *t, const block_t *rows, const block_t *keys, const T *q,
                      const T *kt, T *s)
{
    const attention_t *a = t->a;
    N(product)
    (a->loops, rows->n, keys->n, a->width, q, a->width, 1, kt, a->block, s, MOST_BLOCK, 0);
    for (int64_t r = 0; r < rows->n; r++) {
        T *score = s + r * MOST_BLOCK;
        const int64_t row = rows->first + r, after = row + 1 - keys->first;
        if (a->is_causal)
            for (int64_t c = after > 0 ? after : 0; c < keys->n; c++) score[c] = -(T)INFINITY;
        if (!a->mask) continue;
        const uint8_t *mask = (const uint8_t *)a->mask->data + t->batch * a->mask_strides[0] +
                              t->head * a->mask_strides[1] + row * a->mask_strides[2] +
                              keys->first * a->mask_strides[3];
        for (int64_t c = 0; c < keys->n; c++)
            if (!mask[c * a->mask_strides[3]]) score[c] = -(T)INFINITY;
    }
}

static double N(exponentials)(const fy__loops_t *loops, int64_t n, T *x, T shift)
{
#if IS_FLOAT
    return loops->exp_row_f32(n, x, x, shift);
#else
    return loops->exp_row_f64(n, x, x, shift);
#endif
}

/* One block of rows: the running maximum and sum of Milakov and Gimelshein, "Online normalizer
 * calculation for softmax" (2018), as Dao et al., "FlashAttention" (2022), use it. */
static void N(forward)(const void *context, int64_t index)
{
    const attention_t *a = (const attention_t *)context;
    const task_t t = task_of(a, &index, a->row_blocks);
    const block_t rows = block_of(a, index, a->rows);
    const int64_t d = a->width, end = a->is_causal && rows.first + rows.n < a->keys
                                          ? rows.first + rows.n
                                          : a->keys;
    _Alignas(64) T q[ROOM], kt[ROOM], v[ROOM], s[ROOM], y[ROOM] = { 0 };
    T top[MOST_BLOCK];
    double sums[MOST_BLOCK] = { 0 };
    N(load)(&t, a->q, rows.first, rows.n, (T)a->scale, q, d, 1);
    for (int64_t r = 0; r < rows.n; r++) top[r] = -(T)INFINITY;
    for (int64_t j = 0; j * a->block < end; j++) {
        const block_t keys = block_of(a, j, end);
        N(load)(&t, a->k, keys.first, keys.n, 1, kt, 1, a->block);
        N(load)(&t, a->v, keys.first, keys.n, 1, v, d, 1);
        N(scores)(&t, &rows, &keys, q, kt, s);
        for (int64_t r = 0; r < rows.n; r++) {
            T *score = s + r * MOST_BLOCK, *sum = y + r * d, most = top[r];
            a->loops->max_row[COMPUTE](keys.n, &most, score);
            if (most == -(T)INFINITY) { /* no key so far */
                memset(score, 0, (size_t)keys.n * sizeof *score);
                continue;
            }
            const double less = top[r] == -(T)INFINITY ? 0 : exp((double)(top[r] - most));
            sums[r] = sums[r] * less + N(exponentials)(a->loops, keys.n, score, most);
            if (top[r] != most)
                for (int64_t i = 0; i < d; i++) sum[i] *= (T)less;
            top[r] = most;
        }
        N(product)(a->loops, rows.n, d, keys.n, s, MOST_BLOCK, 1, v, d, y, d, 1);
    }
    for (int64_t r = 0; r < rows.n; r++) {
        const double lse = sums[r] == 0 ? -INFINITY : (double)top[r] + log(sums[r]);
        fy__stage_out(a->loops, 1, (char *)(uintptr_t)lse_at(&t, rows.first + r), 1, a->lse->dtype,
                      &lse, FY_DTYPE_F64);
        sums[r] = sums[r] == 0 ? 0 : 1 / sums[r];
    }
    N(put)(&t, a->y, rows.first, rows.n, sums, y);
}

/* ---- the gradient: blocks of probabilities are computed again from the log-sum-exp ---- */

typedef struct N(row_block) {
    _Alignas(64) T q[ROOM], dy[ROOM];     /* q is scaled */
    T lse[MOST_BLOCK], delta[MOST_BLOCK]; /* delta: sum(dy y) of a row */
} N(row_block_t);

static void N(load_row_block)(const task_t *t, const block_t *rows, N(row_block_t) * out)
{
    const attention_t *a = t->a;
    const int64_t d = a->width;
    _Alignas(64) T y[FY__BLOCK];
    N(load)(t, a->q, rows->first, rows->n, (T)a->scale, out->q, d, 1);
    N(load)(t, a->dy, rows->first, rows->n, 1, out->dy, d, 1);
    for (int64_t r = 0; r < rows->n; r++) {
        double sum = 0;
        fy__stage_in(a->loops, 1, &out->lse[r], COMPUTE, lse_at(t, rows->first + r), 1,
                     a->lse->dtype);
        for (int64_t i = 0; i < d; i += FY__BLOCK) {
            const int64_t m = d - i < FY__BLOCK ? d - i : FY__BLOCK;
            fy__stage_in(a->loops, m, y, COMPUTE, at(t, a->y, rows->first + r, i), a->y->strides[3],
                         a->y->dtype);
            for (int64_t k = 0; k < m; k++) sum += (double)out->dy[r * d + i + k] * (double)y[k];
        }
        out->delta[r] = (T)sum;
    }
}

/* The probabilities p and the gradient of the scores ds = p (dy v^T - delta). */
static void N(slopes)(const task_t *t, const block_t *rows, const block_t *keys,
                      const N(row_block_t) * row, const T *kt, const T *vt, T *p, T *ds)
{
    const attention_t *a = t->a;
    N(scores)(t, rows, keys, row->q, kt, p);
    N(product)
    (a->loops, rows->n, keys->n, a->width, row->dy, a->width, 1, vt, a->block, ds, MOST_BLOCK, 0);
    for (int64_t r = 0; r < rows->n; r++) {
        T *prob = p + r * MOST_BLOCK, *slope = ds + r * MOST_BLOCK;
        if (row->lse[r] == -(T)INFINITY) /* the row attends to no key */
            memset(prob, 0, (size_t)keys->n * sizeof *prob);
        else
            (void)N(exponentials)(a->loops, keys->n, prob, row->lse[r]);
        for (int64_t c = 0; c < keys->n; c++) slope[c] = prob[c] * (slope[c] - row->delta[r]);
    }
}

/* dk = ds^T q and dv = p^T dy of one block of keys, over all rows in order. With dq also that: one
 * head's, to which ds k of this block of keys is added. */
static void N(backward_block)(const task_t *t, const block_t *keys, T *dq)
{
    const attention_t *a = t->a;
    const int64_t d = a->width, first = a->is_causal ? keys->first / a->block : 0;
    _Alignas(64) T kt[ROOM], vt[ROOM], k[ROOM], p[ROOM], ds[ROOM], dk[ROOM] = { 0 },
                                                                   dv[ROOM] = { 0 };
    N(row_block_t) row;
    N(load)(t, a->k, keys->first, keys->n, 1, kt, 1, a->block);
    N(load)(t, a->v, keys->first, keys->n, 1, vt, 1, a->block);
    if (dq) N(load)(t, a->k, keys->first, keys->n, (T)a->scale, k, d, 1);
    for (int64_t i = first; i < a->row_blocks; i++) {
        const block_t rows = block_of(a, i, a->rows);
        N(load_row_block)(t, &rows, &row);
        N(slopes)(t, &rows, keys, &row, kt, vt, p, ds);
        N(product)(a->loops, keys->n, d, rows.n, ds, 1, MOST_BLOCK, row.q, d, dk, d, 1);
        N(product)(a->loops, keys->n, d, rows.n, p, 1, MOST_BLOCK, row.dy, d, dv, d, 1);
        if (dq) N(product)
        (a->loops, rows.n, d, keys->n, ds, MOST_BLOCK, 1, k, d, dq + rows.first * d, d, 1);
    }
    N(put)(t, a->dk, keys->first, keys->n, a->ones, dk);
    N(put)(t, a->dv, keys->first, keys->n, a->ones, dv);
}

static void N(backward_keys)(const void *context, int64_t index)
{
    const attention_t *a = (const attention_t *)context;
    const task_t t = task_of(a, &index, a->key_blocks);
    const block_t keys = block_of(a, index, a->keys);
    N(backward_block)(&t, &keys, NULL);
}

/* dq = scale ds k of one block of rows, over all keys in order. */
static void N(backward_rows)(const void *context, int64_t index)
{
    const attention_t *a = (const attention_t *)context;
    const task_t t = task_of(a, &index, a->row_blocks);
    const block_t rows = block_of(a, index, a->rows);
    const int64_t d = a->width, end = a->is_causal && rows.first + rows.n < a->keys
                                          ? rows.first + rows.n
                                          : a->keys;
    _Alignas(64) T kt[ROOM], vt[ROOM], k[ROOM], p[ROOM], ds[ROOM], dq[ROOM] = { 0 };
    N(row_block_t) row;
    N(load_row_block)(&t, &rows, &row);
    for (int64_t j = 0; j * a->block < end; j++) {
        const block_t keys = block_of(a, j, end);
        N(load)(&t, a->k, keys.first, keys.n, 1, kt, 1, a->block);
        N(load)(&t, a->v, keys.first, keys.n, 1, vt, 1, a->block);
        N(load)(&t, a->k, keys.first, keys.n, (T)a->scale, k, d, 1);
        N(slopes)(&t, &rows, &keys, &row, kt, vt, p, ds);
        N(product)(a->loops, rows.n, d, keys.n, ds, MOST_BLOCK, 1, k, d, dq, d, 1);
    }
    N(put)(&t, a->dq, rows.first, rows.n, a->ones, dq);
}

/* All three of one head whose dq fits the stack: the same sums in the same order as the two above,
 * with five products of blocks instead of seven. */
static void N(backward_head)(const void *context, int64_t index)
{
    const attention_t *a = (const attention_t *)context;
    const task_t t = task_of(a, &index, 1);
    _Alignas(64) T dq[HEAD_ROOM];
    memset(dq, 0, (size_t)(a->rows * a->width) * sizeof *dq);
    for (int64_t j = 0; j < a->key_blocks; j++) {
        const block_t keys = block_of(a, j, a->keys);
        N(backward_block)(&t, &keys, dq);
    }
    for (int64_t i = 0; i < a->row_blocks; i++) {
        const block_t rows = block_of(a, i, a->rows);
        N(put)(&t, a->dq, rows.first, rows.n, a->ones, dq + rows.first * a->width);
    }
}
