/* The tensors of a checkpoint: the device blocks of a model and an optimizer, the same on the host,
 * and the host's pieces by their names in the file. One list serves writing and reading, so that
 * both use the same names.
 * "model.NAME" parameters and buffers · "model_rng" · "optimizer.NAME" · "progress" i64 [4] = step,
 * epoch, epoch_step, seed · "rates" f64 [2] = lr, momentum · "losses" f64 [4], which older files do
 * not have. Parameters and buffers alone: "NAME".
 * Not here: moving and storing them (checkpoint.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/device.h>
#include <ferry/transfer.h>

#include "train/checkpoint.h"
#include "train/fail.h"
#include "train/model.h"

static size_t count_state(const fy_optimizer_t *optimizer)
{
    const char *name = NULL;
    fy_tensor_t *tensor = NULL;
    size_t count = 0;
    if (!optimizer) return 0;
    while (fy_optimizer_state(optimizer, count, &name, &tensor), name) count++;
    return count;
}

void fyt_pieces_free(fyt_pieces_t *p)
{
    for (size_t i = 0; p->entries && i < p->count; i++) free((char *)p->entries[i].name);
    free(p->device);
    free(p->host);
    free(p->entries);
    free(p->whole);
    *p = (fyt_pieces_t){ 0 };
}

fy_status_t fyt_pieces_make(fy_model_t *model, fy_optimizer_t *optimizer, int with_all,
                            fyt_pieces_t *p)
{
    /* random state, progress, rates, losses */
    const size_t nstate = with_all ? count_state(optimizer) : 0;
    const size_t most = model->nparams + model->nbuffers + nstate + 4;
    const size_t has_buffers = model->nbuffers > 0;
    *p = (fyt_pieces_t){ .model = model,
                         .optimizer = with_all ? optimizer : NULL,
                         .with_all = with_all,
                         .first_state = 2 + has_buffers,
                         .nblocks = with_all ? 2 + has_buffers + nstate : 1 + has_buffers };
    p->device = calloc(p->nblocks, sizeof *p->device);
    p->host = calloc(p->nblocks, sizeof *p->host);
    p->entries = calloc(most, sizeof *p->entries);
    if (nstate && fyt_optimizer_is_shard(optimizer)) {
        p->ranges = fyt_optimizer_ranges(optimizer);
        p->nstates = nstate / p->ranges->count;
    }
    p->whole = calloc(p->nstates + 1, sizeof *p->whole);
    if (!p->device || !p->host || !p->entries || !p->whole) {
        fyt_pieces_free(p);
        return FYT_FAIL(OUT_OF_MEMORY, "no host memory for a list of %zu tensors", most);
    }
    p->device[0] = model->values;
    if (has_buffers) p->device[1] = model->buffer_values;
    if (with_all) p->device[p->first_state - 1] = model->rng;
    for (size_t i = 0; i < nstate; i++) {
        const char *name;
        fy_optimizer_state(optimizer, i, &name, &p->device[p->first_state + i]);
    }
    return FY_STATUS_OK;
}

/* Copies the parts of the name, not the handle. */
static fy_status_t add(fyt_pieces_t *p, const char *prefix, const char *name, fy_tensor_t *tensor)
{
    char *text;
    if (asprintf(&text, "%s%s", prefix, name) < 0)
        return FYT_FAIL(OUT_OF_MEMORY, "no host memory for the name '%s%s'", prefix, name);
    p->entries[p->count++] = (fyt_piece_t){ text, tensor };
    return FY_STATUS_OK;
}

/* The views of parameters or of buffers in their block on the host. */
static fy_status_t add_views(fyt_pieces_t *p, size_t count, const fyt_model_param_t *params,
                             fy_tensor_t *block)
{
    for (size_t i = 0; i < count; i++) {
        const fyt_model_param_t *param = &params[i];
        fy_tensor_t *flat, *view;
        FY_TRY(fy_slice(block, 0, (int64_t)param->offset, (int64_t)(param->offset + param->nelem),
                        &flat));
        FY_TRY(fy_reshape(flat, param->def->rank, param->def->dims, &view));
        FY_TRY(add(p, p->with_all ? "model." : "", param->name, view));
    }
    return FY_STATUS_OK;
}

static fy_status_t add_states(fyt_pieces_t *p)
{
    char whole[64];
    for (size_t k = 0; k < p->nstates; k++) {
        fyt_shards_name(p, k, whole, sizeof whole);
        FY_TRY(add(p, "optimizer.", whole, p->whole[k]));
    }
    for (size_t i = p->first_state; !p->ranges && i < p->nblocks; i++) {
        const char *name;
        fy_tensor_t *tensor;
        fy_optimizer_state(p->optimizer, i - p->first_state, &name, &tensor);
        FY_TRY(add(p, "optimizer.", name, p->host[i]));
    }
    return FY_STATUS_OK;
}

fy_status_t fyt_pieces_name(fyt_pieces_t *p)
{
    const fy_model_t *model = p->model;
    FY_TRY(add_views(p, model->nparams, model->params, p->host[0]));
    if (model->nbuffers) FY_TRY(add_views(p, model->nbuffers, model->buffers, p->host[1]));
    if (!p->with_all) return FY_STATUS_OK;
    FY_TRY(add(p, "", "model_rng", p->host[p->first_state - 1]));
    FY_TRY(add_states(p));
    FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_I64, FY_DIMS(4), &p->progress));
    FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_F64, FY_DIMS(2), &p->rates));
    FY_TRY(fy_zeros(fy_device_host(), FY_DTYPE_F64, FY_DIMS(4), &p->losses));
    FY_TRY(add(p, "", "progress", p->progress));
    FY_TRY(add(p, "", "rates", p->rates));
    return add(p, "", "losses", p->losses);
}

fy_status_t fyt_pieces_download(fyt_pieces_t *p, size_t first)
{
    const size_t count = p->nblocks - first;
    fy_download_t **downloads = calloc(count + 1, sizeof *downloads);
    if (!downloads) return FYT_FAIL(OUT_OF_MEMORY, "no host memory for %zu downloads", count);
    fy_status_t status = count ? fy_tensor_download_many(count, p->device + first, NULL, downloads)
                               : FY_STATUS_OK;
    for (size_t i = 0; i < count && status == FY_STATUS_OK; i++)
        status = fy_download_wait(downloads[i], FY_FOREVER, &p->host[first + i]);
    free(downloads); /* the scope destroys those that were not waited for */
    return status;
}

fy_status_t fyt_pieces_make_host(fyt_pieces_t *p)
{
    for (size_t i = 0; i < p->nblocks; i++) {
        fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
        FY_TRY(fy_tensor_query(p->device[i], &info));
        FY_TRY(fy_zeros(fy_device_host(), info.dtype, info.rank, info.dims, &p->host[i]));
    }
    return fyt_shards_make(p);
}

fy_status_t fyt_pieces_upload(fyt_pieces_t *p)
{
    fy_ticket_t ticket;
    return fy_tensor_upload_many_into(p->nblocks, p->device, p->host, NULL, &ticket);
}

/* ---- against a file ---- */

static void shape_text(char text[128], int rank, const int64_t *dims)
{
    size_t used = (size_t)snprintf(text, 128, "[");
    for (int i = 0; i < rank && used < 110; i++)
        used +=
            (size_t)snprintf(text + used, 128 - used, i ? ", %lld" : "%lld", (long long)dims[i]);
    snprintf(text + used, 128 - used, "]");
}

/* Losses, in a file without them: they stay 0, which is unknown. */
static int is_absent(const fyt_pieces_t *p, const fy_safetensors_t *file, const fyt_piece_t *piece)
{
    size_t index;
    return piece->tensor == p->losses &&
           fy_safetensors_find(file, piece->name, &index) != FY_STATUS_OK;
}

static fy_status_t check_piece(const char *path, const fy_safetensors_t *file,
                               const fyt_piece_t *piece)
{
    size_t index;
    fy_safetensors_info_t in_file = FY_SAFETENSORS_INFO_INIT;
    fy_tensor_info_t here = FY_TENSOR_INFO_INIT;
    char in_file_text[128], here_text[128];
    if (fy_safetensors_find(file, piece->name, &index) != FY_STATUS_OK)
        return FYT_FAIL(INVALID_ARGUMENT, "%s has no '%s': it is of another model or optimizer",
                        path, piece->name);
    FY_TRY(fy_safetensors_at(file, index, &in_file));
    FY_TRY(fy_tensor_query(piece->tensor, &here));
    if (in_file.dtype != here.dtype)
        return FYT_FAIL(DTYPE_MISMATCH, "'%s' is %s in %s and %s here", piece->name,
                        fy_dtype_name(in_file.dtype), path, fy_dtype_name(here.dtype));
    int same = in_file.rank == here.rank;
    for (int i = 0; same && i < here.rank; i++) same = in_file.dims[i] == here.dims[i];
    if (same) return FY_STATUS_OK;
    shape_text(in_file_text, in_file.rank, in_file.dims);
    shape_text(here_text, here.rank, here.dims);
    return FYT_FAIL(SHAPE_MISMATCH, "'%s' is %s in %s and %s here", piece->name, in_file_text, path,
                    here_text);
}

static int is_wanted(const fyt_pieces_t *p, const char *name)
{
    /* Without an optimizer, the file's optimizer state is ignored. */
    if (p->with_all && !p->optimizer && strncmp(name, "optimizer.", 10) == 0) return 1;
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->entries[i].name, name) == 0) return 1;
    return 0;
}

fy_status_t fyt_pieces_check(const fyt_pieces_t *p, const char *path, const fy_safetensors_t *file)
{
    for (size_t i = 0; i < p->count; i++)
        if (!is_absent(p, file, &p->entries[i])) FY_TRY(check_piece(path, file, &p->entries[i]));
    for (size_t i = 0; i < fy_safetensors_count(file); i++) {
        fy_safetensors_info_t info = FY_SAFETENSORS_INFO_INIT;
        FY_TRY(fy_safetensors_at(file, i, &info));
        if (!is_wanted(p, info.name))
            return FYT_FAIL(INVALID_ARGUMENT,
                            "%s has '%.64s', which model '%s' has no place for: it is of another "
                            "model or optimizer",
                            path, info.name, p->model->name);
    }
    return FY_STATUS_OK;
}

fy_status_t fyt_pieces_read(fyt_pieces_t *p, const fy_safetensors_t *file)
{
    for (size_t i = 0; i < p->count; i++) {
        size_t index;
        if (is_absent(p, file, &p->entries[i])) continue;
        FY_TRY(fy_safetensors_find(file, p->entries[i].name, &index));
        FY_TRY(fy_safetensors_read_into(file, index, p->entries[i].tensor));
    }
    return fyt_shards_divide(p);
}

fy_status_t fyt_pieces_write(const fyt_pieces_t *p, const char *path, size_t npairs,
                             const fy_safetensors_pair_t *pairs)
{
    fy_safetensors_entry_t *entries = calloc(p->count ? p->count : 1, sizeof *entries);
    if (!entries)
        return FYT_FAIL(OUT_OF_MEMORY, "no host memory for a list of %zu tensors", p->count);
    for (size_t i = 0; i < p->count; i++)
        entries[i] = (fy_safetensors_entry_t){ p->entries[i].name, p->entries[i].tensor };
    const fy_status_t status = fy_safetensors_write(path, p->count, entries, npairs, pairs);
    free(entries);
    return status;
}
