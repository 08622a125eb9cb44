/* The trace, the run of one program, and functions that programs share. No check here asserts: a
 * failure is one of the observed values. */
#include <stdio.h>
#include <string.h>

#include "tests/mutation/mutation.h"

/* ---- the trace ---- */

void mu_tape_clear(mu_tape_t *tape)
{
    tape->nbytes = tape->nnotes = 0;
    tape->is_full = false;
}

const char *mu_tape_compare(const mu_tape_t *want, const mu_tape_t *got)
{
    static char text[256];
    for (size_t i = 0; i < want->nnotes && i < got->nnotes; i++) {
        const size_t begin = want->notes[i].begin, got_begin = got->notes[i].begin;
        const size_t n = (i + 1 < want->nnotes ? want->notes[i + 1].begin : want->nbytes) - begin;
        const size_t got_n = (i + 1 < got->nnotes ? got->notes[i + 1].begin : got->nbytes) -
                             got_begin;
        if (n == got_n && memcmp(want->bytes + begin, got->bytes + got_begin, n) == 0) continue;
        size_t at = 0;
        while (at < n && at < got_n && want->bytes[begin + at] == got->bytes[got_begin + at]) at++;
        snprintf(text, sizeof text, "note %zu, %.100s, byte %zu: %d instead of %d", i,
                 got->notes[i].what, at, at < got_n ? got->bytes[got_begin + at] : -1,
                 at < n ? want->bytes[begin + at] : -1);
        return text;
    }
    if (want->nnotes == got->nnotes) return NULL;
    snprintf(text, sizeof text, "%zu notes instead of %zu", got->nnotes, want->nnotes);
    return text;
}

void mu_note(mu_run_t *run, const char *what, const void *bytes, size_t nbytes)
{
    mu_tape_t *tape = run->tape;
    if (tape->nnotes == MU_TAPE_NOTES || nbytes > MU_TAPE_NBYTES - tape->nbytes) {
        tape->is_full = true;
        return;
    }
    tape->notes[tape->nnotes].what = what;
    tape->notes[tape->nnotes++].begin = tape->nbytes;
    memcpy(tape->bytes + tape->nbytes, bytes, nbytes);
    tape->nbytes += nbytes;
}

bool mu_ok(mu_run_t *run, const char *what, fy_status_t status)
{
    const unsigned char byte = (unsigned char)status;
    mu_note(run, what, &byte, 1);
    return status == FY_STATUS_OK;
}

/* ---- a run ---- */

const char *mu_order(uint64_t seed)
{
    static char text[64];
    if (!seed) return "order=lazy";
    snprintf(text, sizeof text, "order=random&seed=%llu", (unsigned long long)seed);
    return text;
}

const char *mu_program_run(const mu_program_t *program, const char *order, mu_tape_t *tape)
{
    mu_run_t run = { order, { NULL, NULL }, tape, NULL };
    char spec[192];
    mu_tape_clear(tape);
    const fy_scope_t scope = fy_scope_begin("program");
    for (int i = 0; i < program->ndevices; i++) {
        snprintf(spec, sizeof spec, "sim:%d?%s&%s", i, program->options, order);
        if (!mu_ok(&run, "open", fy_device_open(spec, &run.devices[i]))) run.stopped = "open";
    }
    if (!run.stopped) program->run(&run);
    fy_scope_end(scope, 0, NULL);
    for (int i = 0; i < program->ndevices; i++) fy_device_close(run.devices[i]);
    return run.stopped;
}

/* ---- for the programs ---- */

const fy_transfer_options_t mu_borrowed = { sizeof(fy_transfer_options_t), FY_HOST_BORROW,
                                            FY_DTYPE_SAME, 0, NULL };

void mu_count_up(float *values, int64_t n, float first)
{
    for (int64_t i = 0; i < n; i++) values[i] = first + (float)i;
}

static fy_tensor_t *count_up(mu_run_t *run, fy_status_t status, fy_tensor_t *tensor, int64_t n,
                             float first)
{
    void *values;
    if (!mu_ok(run, "host memory", status) ||
        !mu_ok(run, "map", fy_tensor_map(tensor, FY_ACCESS_WRITE, &values))) {
        run->stopped = "host memory";
        return NULL;
    }
    mu_count_up(values, n, first);
    return tensor;
}

fy_tensor_t *mu_host(mu_run_t *run, int64_t n, float first)
{
    fy_tensor_t *tensor;
    const fy_status_t status =
        fy_tensor_create(fy_device_host(), FY_DTYPE_F32, FY_DIMS(n), &tensor);
    return count_up(run, status, tensor, n, first);
}

fy_tensor_t *mu_pinned(mu_run_t *run, fy_device_t *device, int64_t n, float first)
{
    fy_tensor_t *tensor;
    const fy_status_t status = fy_tensor_create_pinned(device, FY_DTYPE_F32, FY_DIMS(n), &tensor);
    return count_up(run, status, tensor, n, first);
}

fy_tensor_t *mu_upload(mu_run_t *run, fy_device_t *device, int64_t n, float first)
{
    fy_tensor_t *host = mu_host(run, n, first), *tensor = NULL;
    if (host && !mu_ok(run, "upload", fy_tensor_upload(host, device, NULL, &tensor)))
        run->stopped = "upload";
    fy_tensor_destroy(host);
    return tensor;
}

void mu_see(mu_run_t *run, const char *what, fy_tensor_t *host)
{
    fy_tensor_info_t info = FY_TENSOR_INFO_INIT;
    void *bytes;
    if (mu_ok(run, what, fy_tensor_query(host, &info)) &&
        mu_ok(run, what, fy_tensor_map(host, FY_ACCESS_READ, &bytes)))
        mu_note(run, what, bytes, info.nbytes);
}

void mu_arrive(mu_run_t *run, const char *what, fy_download_t *download)
{
    fy_tensor_t *host;
    if (!mu_ok(run, what, fy_download_wait(download, FY_FOREVER, &host))) return;
    mu_see(run, what, host);
    fy_tensor_destroy(host);
}

void mu_read(mu_run_t *run, const char *what, const fy_tensor_t *tensor)
{
    fy_download_t *download;
    if (tensor && mu_ok(run, what, fy_tensor_download(tensor, NULL, &download)))
        mu_arrive(run, what, download);
}

bool mu_streams(mu_run_t *run, int n, fy_stream_t **out_streams)
{
    for (int i = 0; i < n; i++)
        if (!mu_ok(run, "stream", fy_stream_create(run->devices[0], NULL, &out_streams[i]))) {
            run->stopped = "stream";
            return false;
        }
    return true;
}

static fy_status_t linger(const fy_launch_t *launch, void *stream)
{
    float *dst = launch->dst[0].data;
    const float *src = launch->src[0].data;
    (void)stream;
    for (uint64_t i = 0; i < launch->nelem; i++) dst[i] = dst[i] / 2 + src[i];
    return FY_STATUS_OK;
}

static void linger_cost(fy_launch_t *launch)
{
    launch->flops = 6700000000u; /* at 67 TFLOP/s */
    launch->nbytes = 12 * launch->nelem;
}

bool mu_linger(mu_run_t *run, fy_tensor_t *dst, fy_tensor_t *src)
{
    static fy_op_t op = FY_OP_NONE;
    const fy_op_kernel_t kernel = { "host", linger, NULL };
    fy_op_def_t def = {
        .struct_size = sizeof def, .nkernels = 1, .kernels = &kernel, .cost = linger_cost
    };
    def.info = &(fy_op_info_t){ .struct_size = sizeof *def.info,
                                .name = "mutation_linger",
                                .summary = "dst = dst / 2 + src, slowly",
                                .nsrc_min = 1,
                                .nsrc_max = 1,
                                .ndst = 1,
                                .flags = FY_OP_ELEMENTWISE | FY_OP_IN_PLACE,
                                .inout = 1,
                                .dtypes = FY_DTYPE_BIT(FY_DTYPE_F32) };
    if (op == FY_OP_NONE && fy_op_register(&def, &op) != FY_STATUS_OK) {
        run->stopped = "register";
        return false;
    }
    if (mu_ok(run, "linger", fy_op_call(op, 1, &src, NULL, 0, 1, &dst))) return true;
    run->stopped = "linger";
    return false;
}
