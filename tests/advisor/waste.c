/* Plants waste. Every plant hands the step what it would have had without it: an activation of the
 * same shape. */
#include "tests/advisor/waste.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 1024, EVERY = 3, BUFFERS = 32 }; /* a plant's matrix is 4 MiB */

static fy_status_t on_host(int64_t rows, fy_tensor_t **out)
{
    return fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(rows, SIDE), out);
}

static fy_status_t pinned(fy_device_t *device, fy_tensor_t **out)
{
    return fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(SIDE, SIDE), out);
}

waste_kind_t waste_named(const char *name)
{
    static const char *const names[] = { "clean",
#define X(kind, text, what) text,
                                         WASTE_LIST(X)
#undef X
    };
    size_t i = 0;
    while (i < sizeof names / sizeof *names && strcmp(names[i], name) != 0) i++;
    return (waste_kind_t)i;
}

/* New contents: what the program writes does not matter, that it writes does. */
static fy_status_t write_source(fy_tensor_t *source)
{
    void *bytes;
    return fy_tensor_map(source, FY_ACCESS_WRITE, &bytes);
}

/* Many buffers where two would do; each is uploaded from once. */
static fy_status_t create_many_pinned(fy_device_t *device, fy_tensor_t *target)
{
    fy_tensor_t *buffer;
    fy_ticket_t sent;
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_HERE;
    borrow.contract = FY_HOST_BORROW;
    for (int i = 0; i < BUFFERS; i++) {
        FY_TRY(pinned(device, &buffer));
        FY_TRY(write_source(buffer));
        FY_TRY(fy_tensor_upload_into(target, buffer, &borrow, &sent));
        FY_TRY(fy_axpy(target, 0.5, target)); /* reads what was uploaded */
    }
    return FY_STATUS_OK;
}

static bool is_pinned(waste_kind_t kind)
{
    return kind == WASTE_NEVER_USED || kind == WASTE_ONE_BUFFER || kind == WASTE_PINNED_IDLE ||
           kind == WASTE_HOST_WORK || kind == WASTE_EARLY_WRITE || kind == WASTE_TURNS ||
           kind == WASTE_SLOW_COPY || kind == WASTE_LATE_UPLOAD;
}

fy_status_t waste_create(waste_t *waste, fy_device_t *device, waste_kind_t kind)
{
    *waste = (waste_t){ .kind = kind, .device = device };
    FY_TRY(is_pinned(kind) ? pinned(device, &waste->source) : on_host(SIDE, &waste->source));
    FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(SIDE, SIDE), &waste->target));
    if (kind == WASTE_HOST_WORK) return on_host(SIDE, &waste->noise);
    if (kind == WASTE_PINNED_MOST) return create_many_pinned(device, waste->target);
    const bool takes_turns = kind == WASTE_EARLY_WRITE || kind == WASTE_SLOW_COPY ||
                             kind == WASTE_LATE_UPLOAD;
    for (int i = 0; i < SPARES && takes_turns; i++)
        FY_TRY(fy_zeros(device, FY_DTYPE_F32, FY_DIMS(SIDE, SIDE), &waste->spare[i]));
    if (kind != WASTE_SMALL_COPIES) return FY_STATUS_OK;
    for (int i = 0; i < SMALL; i++) {
        FY_TRY(on_host(1, &waste->small_source[i]));
        FY_TRY(fy_slice(waste->target, 0, i, i + 1, &waste->small_target[i]));
    }
    return FY_STATUS_OK;
}

/* ---- one function a kind ---- */

static fy_status_t upload(waste_t *waste, fy_host_contract_t contract)
{
    fy_transfer_options_t options = FY_TRANSFER_OPTIONS_HERE;
    options.contract = contract;
    return fy_tensor_upload_into(waste->target, waste->source, &options, &waste->sent);
}

/* The plant's matrix takes part in the step. */
static fy_status_t use_target(waste_t *waste, fy_tensor_t **h)
{
    return fy_matmul(*h, waste->target, h);
}

static fy_status_t plant_small_copies(waste_t *waste, fy_tensor_t **h)
{
    for (int i = 0; i < SMALL; i++) {
        FY_TRY(write_source(waste->small_source[i]));
        FY_TRY(fy_tensor_upload_into(waste->small_target[i], waste->small_source[i], HERE, NULL));
    }
    return use_target(waste, h);
}

static fy_status_t plant_staged(waste_t *waste, fy_tensor_t **h)
{
    FY_TRY(write_source(waste->source));
    FY_TRY(upload(waste, FY_HOST_COPY));
    return use_target(waste, h);
}

/* To the host and back; `relu`: with an op there. */
static fy_status_t plant_round_trip(waste_t *waste, fy_tensor_t **h, bool relu)
{
    fy_download_t *reply;
    fy_tensor_t *host;
    FY_TRY(fy_tensor_download(*h, HERE, &reply));
    FY_TRY(fy_download_wait(reply, FY_FOREVER, &host));
    if (relu) FY_TRY(fy_relu(host, &host));
    return fy_tensor_upload(host, waste->device, HERE, h);
}

static fy_status_t plant_reload(waste_t *waste, fy_tensor_t **h, int every)
{
    if (waste->step % every == 0) FY_TRY(upload(waste, FY_HOST_COPY));
    return use_target(waste, h);
}

static fy_status_t plant_never_read(fy_tensor_t *h)
{
    fy_download_t *reply;
    return fy_tensor_download(h, HERE, &reply);
}

static fy_status_t plant_borrowed(waste_t *waste, fy_tensor_t **h, bool is_used)
{
    FY_TRY(fy_ticket_wait(waste->sent, FY_FOREVER));
    FY_TRY(write_source(waste->source));
    FY_TRY(upload(waste, FY_HOST_BORROW));
    return is_used ? use_target(waste, h) : FY_STATUS_OK;
}

/* The batch is computed in place, where the device copies it from. */
static fy_status_t plant_host_work(waste_t *waste, fy_tensor_t **h)
{
    FY_TRY(fy_ticket_wait(waste->sent, FY_FOREVER));
    FY_TRY(fy_axpy(waste->source, 0.5, waste->noise));
    FY_TRY(upload(waste, FY_HOST_BORROW));
    return use_target(waste, h);
}

/* A larger result than any before, so no cached block fits. */
static fy_status_t plant_alloc(waste_t *waste)
{
    fy_tensor_t *grown;
    return fy_zeros(waste->device, FY_DTYPE_F32, FY_DIMS(SIDE * (64 + 8 * waste->step), SIDE / 8),
                    &grown);
}

static void free_bytes(void *user, void *data)
{
    (void)user;
    free(data);
}

static fy_status_t plant_pin(waste_t *waste, fy_tensor_t **h)
{
    fy_tensor_t *buffer;
    fy_transfer_options_t borrow = FY_TRANSFER_OPTIONS_HERE;
    borrow.contract = FY_HOST_BORROW;
    void *bytes = calloc(SIDE, SIDE * sizeof(float));
    if (!bytes) return fy_error_set(FY_STATUS_OUT_OF_MEMORY, __FILE__, __LINE__, "no memory");
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(SIDE, SIDE), bytes, free_bytes,
                          NULL, &buffer));
    FY_TRY(fy_tensor_pin(buffer, waste->device));
    FY_TRY(fy_tensor_upload_into(waste->target, buffer, &borrow, &waste->sent));
    return use_target(waste, h);
}

static fy_status_t plant_chain(fy_tensor_t **h)
{
    fy_tensor_t *x = *h;
    for (int i = 0; i < 2; i++) {
        FY_TRY(fy_sigmoid(x, &x));
        FY_TRY(fy_mul(x, *h, &x));
        FY_TRY(fy_relu(x, &x));
    }
    *h = x;
    return FY_STATUS_OK;
}

/* Four targets take turns, so an upload never waits for its buffer. With `writes_early` it tries to
 * write the next bytes behind the upload at once, and leaves them out when refused. */
static fy_status_t plant_turns_of_four(waste_t *waste, fy_tensor_t **h, bool writes_early)
{
    waste->target = waste->spare[waste->step % SPARES];
    FY_TRY(plant_borrowed(waste, h, false));
    const fy_status_t status = writes_early ? write_source(waste->source) : FY_STATUS_BUSY;
    return status == FY_STATUS_BUSY ? use_target(waste, h) : status;
}

static fy_status_t plant_tiny_ops(waste_t *waste, int64_t length)
{
    fy_tensor_t *row;
    FY_TRY(fy_slice(waste->target, 0, 0, 1, &row));
    FY_TRY(fy_slice(row, 1, 0, length, &row));
    for (int i = 0; i < TINY; i++) FY_TRY(fy_axpy(row, 0.5, row));
    return FY_STATUS_OK;
}

fy_status_t waste_read(fy_tensor_t *result)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    fy_tensor_t *answer;
    void *bytes;
    FY_TRY(fy_tensor_query(result, &info));
    FY_TRY(fy_tensor_create(fy_device_host(), info.dtype, info.rank, info.dims, &answer));
    FY_TRY(fy_tensor_download_into(answer, result, HERE));
    return fy_tensor_map(answer, FY_ACCESS_READ, &bytes);
}

/* Decides by a sum of the step whether to go on, as an iterative solver does. */
static fy_status_t read_sum(waste_t *waste)
{
    fy_tensor_t *sum, *host;
    fy_download_t *reply;
    FY_TRY(fy_sum(waste->target, 0, NULL, 0, &sum));
    FY_TRY(fy_tensor_download(sum, HERE, &reply));
    FY_TRY(fy_axpy(waste->target, 0.5, waste->target));
    return fy_download_wait(reply, FY_FOREVER, &host);
}

fy_status_t waste_after_ops(waste_t *waste)
{
    fy_download_t **reply = &waste->replies[waste->step % SPARES];
    fy_tensor_t *sum, *host;
    if (waste->kind == WASTE_ONE_BUFFER) return fy_sum(waste->target, 0, NULL, 0, &sum);
    if (waste->kind == WASTE_LATE_UPLOAD) return read_sum(waste);
    if (waste->kind != WASTE_TURNS) return FY_STATUS_OK;
    FY_TRY(fy_sum(waste->target, 0, NULL, 0, &sum));
    FY_TRY(fy_axpy(waste->target, 0.5, waste->target));
    if (*reply) FY_TRY(fy_download_wait(*reply, FY_FOREVER, &host));
    FY_TRY(fy_tensor_download(waste->target, HERE, reply));
    fy_download_keep(*reply);
    return FY_STATUS_OK;
}

fy_status_t waste_end(waste_t *waste)
{
    fy_tensor_t *host;
    for (int i = 1; i <= SPARES; i++) {
        fy_download_t *reply = waste->replies[(waste->step + i) % SPARES];
        if (reply) FY_TRY(fy_download_wait(reply, FY_FOREVER, &host));
    }
    return FY_STATUS_OK;
}

fy_status_t waste_in_step(waste_t *waste, fy_tensor_t **h)
{
    waste->step++;
    switch (waste->kind) {
    case WASTE_SMALL_COPIES: return plant_small_copies(waste, h);
    case WASTE_STAGED: return plant_staged(waste, h);
    case WASTE_ROUND_TRIP: return plant_round_trip(waste, h, false);
    case WASTE_HOST_OP: return plant_round_trip(waste, h, true);
    case WASTE_AGAIN: return plant_reload(waste, h, EVERY);
    case WASTE_RELOAD: return plant_reload(waste, h, 1);
    case WASTE_NEVER_READ: return plant_never_read(*h);
    case WASTE_NEVER_USED: return plant_borrowed(waste, h, false);
    case WASTE_ONE_BUFFER:
    case WASTE_TURNS: return plant_borrowed(waste, h, true);
    case WASTE_EARLY_WRITE: return plant_turns_of_four(waste, h, true);
    case WASTE_ALLOC: return plant_alloc(waste);
    case WASTE_PIN: return plant_pin(waste, h);
    case WASTE_HOST_WORK: return plant_host_work(waste, h);
    case WASTE_CHAIN: return plant_chain(h);
    case WASTE_LATE_UPLOAD:
    case WASTE_SLOW_COPY: return plant_turns_of_four(waste, h, false);
    case WASTE_TINY_OPS: return plant_tiny_ops(waste, SIDE);
    case WASTE_RAGGED_OPS: return plant_tiny_ops(waste, SIDE - 8 * waste->step);
    default: return FY_STATUS_OK; /* planted where results are read, or when it was created */
    }
}
