/* Graphs of the driver: the requests of a thread on a separate stream are captured, instantiated
 * once, and launched as one request by each replay. The mode is THREAD_LOCAL: other threads may
 * allocate meanwhile, and a forbidden call of this thread (an allocation, a wait) ends the capture
 * instead of missing in the graph. Not here: the time of a capture, and the handling of its failure
 * (ops/capture.c). */
#include "backends/cuda/device.h"

#include <stdlib.h>

#include "backends/cuda/dnn.h"
#include "backends/cuda/nvtx.h"

typedef struct fy__cuda_graph {
    CUgraphExec exec;
    /* of the stream while it is captured: its number of requests; not reported */
    fy__cuda_trail_t trail;
    struct {
        fy_copy_kind_t kind;
        uint64_t nbytes;
    } * copies; /* what a replay moves, to be reported by each */
    uint32_t ncopies, room;
} graph_t;

_Thread_local int fy__cuda_captures;

fy_status_t fy__cuda_check_capture(const char *what)
{
    if (!fy__cuda_captures) return FY_STATUS_OK;
    return FY__CUDA_FAIL(FY_STATUS_BUSY,
                         "%s while a graph is captured: what the first replay chose was dropped "
                         "for other shapes since",
                         what);
}

static void drop_graph(graph_t *graph)
{
    if (graph != NULL) free(graph->copies);
    free(graph);
}

fy_status_t fy__cuda_graph_note_copy(const fy__cuda_stream_t *stream, fy_copy_kind_t kind,
                                     uint64_t nbytes)
{
    graph_t *graph = stream->capture;
    if (graph == NULL) {
        fy__cuda.host->record(kind, nbytes);
        return FY_STATUS_OK;
    }
    if (graph->ncopies == graph->room) {
        const uint32_t room = graph->room > 0 ? graph->room * 2 : 8;
        void *copies = realloc(graph->copies, room * sizeof *graph->copies);
        if (copies == NULL)
            return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY,
                                 "no host memory for the %u copies of a graph", (unsigned)room);
        graph->copies = copies;
        graph->room = room;
    }
    graph->copies[graph->ncopies].kind = kind;
    graph->copies[graph->ncopies++].nbytes = nbytes;
    return FY_STATUS_OK;
}

/* ---- capturing ---- */

/* The context is current. A stream that captures goes, too, and its capture with it. */
static void drop(fy__cuda_device_t *dev, fy__cuda_stream_t *stream)
{
    fy__cuda_dnn_leave_stream(dev, stream->handle);
    if (stream->handle != NULL) fy__cuda_note(dev, fy__cuda.cuStreamDestroy(stream->handle));
    drop_graph(stream->capture);
    free(stream);
}

static fy__cuda_stream_t *make_stream(void)
{
    fy__cuda_stream_t *stream = calloc(1, sizeof *stream);
    graph_t *graph = calloc(1, sizeof *graph);
    if (stream == NULL || graph == NULL) {
        free(stream);
        free(graph);
        return NULL;
    }
    stream->capture = graph;
    stream->trail = &graph->trail;
    return stream;
}

fy_status_t fy__cuda_graph_begin(void *handle, void **out_stream)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_frame_t frame;
    *out_stream = NULL;
    fy__cuda_stream_t *stream = make_stream();
    if (stream == NULL)
        return FY__CUDA_FAIL(FY_STATUS_OUT_OF_MEMORY, "no host memory for a graph of cuda:%d",
                             dev->index);
    fy_status_t status = fy__cuda_enter(dev, &frame);
    if (status != FY_STATUS_OK) {
        drop_graph(stream->capture);
        free(stream);
        return status;
    }
    status = FY__CUDA_CALL(dev, cuStreamCreateWithPriority,
                           (&stream->handle, CU_STREAM_NON_BLOCKING, dev->least_priority),
                           "creating a stream for a graph on cuda:%d", dev->index);
    if (status == FY_STATUS_OK)
        status = FY__CUDA_CALL(dev, cuStreamBeginCapture,
                               (stream->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                               "beginning a graph on cuda:%d", dev->index);
    if (status == FY_STATUS_OK) {
        *out_stream = stream;
        fy__cuda_captures++;
    } else {
        drop(dev, stream);
    }
    fy__cuda_leave(&frame);
    return status;
}

/* The driver's description becomes something that can be launched, and its upload is not left to
 * the first launch. */
static fy_status_t instantiate(fy__cuda_device_t *dev, fy__cuda_stream_t *stream, CUgraph captured)
{
    graph_t *graph = stream->capture;
    FY_TRY(FY__CUDA_CALL(dev, cuGraphInstantiateWithFlags, (&graph->exec, captured, 0),
                         "making a graph on cuda:%d", dev->index));
    fy_status_t status = FY__CUDA_CALL(dev, cuGraphUpload, (graph->exec, stream->handle),
                                       "bringing a graph to cuda:%d", dev->index);
    if (status != FY_STATUS_OK) fy__cuda_note(dev, fy__cuda.cuGraphExecDestroy(graph->exec));
    return status;
}

fy_status_t fy__cuda_graph_end(void *handle, void *stream_handle, void **out_graph)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_stream_t *stream = stream_handle;
    fy__cuda_frame_t frame;
    CUgraph captured = NULL;
    fy_status_t status;
    if (out_graph != NULL) *out_graph = NULL;
    fy__cuda_captures--;
    if (!fy__cuda_enter_to_release(dev, &frame)) {
        drop_graph(stream->capture);
        free(stream);
        return FY__CUDA_FAIL(FY_STATUS_INTERNAL,
                             "ending a graph on cuda:%d: its context cannot be used on this thread",
                             dev->index);
    }
    status = FY__CUDA_CALL(dev, cuStreamEndCapture, (stream->handle, &captured),
                           "ending a graph on cuda:%d", dev->index);
    if (status == FY_STATUS_OK && out_graph != NULL) status = instantiate(dev, stream, captured);
    if (captured != NULL) fy__cuda_note(dev, fy__cuda.cuGraphDestroy(captured));
    if (status == FY_STATUS_OK && out_graph != NULL) {
        *out_graph = stream->capture;
        stream->capture = NULL;
    }
    drop(dev, stream);
    fy__cuda_leave(&frame);
    return status;
}

/* ---- replaying ---- */

/* By a kernel, as flags are raised without a graph: no copy engine has to be waited for. Words that
 * lie side by side, and mostly all of them do, go in one launch. */
static fy_status_t fetch_flags(fy__cuda_device_t *dev, fy__cuda_stream_t *stream,
                               const uint32_t *flags, uint32_t nflags, uint32_t *const *words)
{
    for (uint32_t i = 0, n; i < nflags; i += n) {
        for (n = 1; i + n < nflags && words[i + n] == words[i] + n;) n++;
        fy_desc_t src = { .data = (void *)(uintptr_t)(flags + i),
                          .dtype = FY_DTYPE_I32,
                          .rank = 1,
                          .dims = { n },
                          .strides = { 1 } };
        fy_desc_t dst = src;
        dst.data = words[i];
        const fy_launch_t launch = { .struct_size = sizeof launch,
                                     .op = FY_OP_COPY,
                                     .nsrc = 1,
                                     .ndst = 1,
                                     .dst = &dst,
                                     .src = &src,
                                     .nelem = n };
        FY_TRY(fy__cuda_launch(dev, stream, &launch));
    }
    return FY_STATUS_OK;
}

fy_status_t fy__cuda_graph_replay(void *handle, void *stream_handle, void *graph_handle,
                                  const uint32_t *flags, uint32_t nflags, uint32_t *const *words,
                                  int *out_submitted)
{
    fy__cuda_device_t *dev = handle;
    fy__cuda_stream_t *stream = stream_handle;
    const graph_t *graph = graph_handle;
    fy__cuda_frame_t frame;
    *out_submitted = 0;
    FY_TRY(fy__cuda_enter(dev, &frame));
    fy__cuda_range_begin("graph replay");
    fy_status_t status = FY__CUDA_CALL(dev, cuGraphLaunch, (graph->exec, stream->handle),
                                       "running a graph on cuda:%d", dev->index);
    if (status == FY_STATUS_OK) {
        fy__cuda_recent_add(stream->trail, FY__CUDA_RECENT_REPLAY,
                            atomic_load_explicit(&graph->trail.submitted, memory_order_relaxed));
        for (uint32_t i = 0; i < graph->ncopies; i++)
            fy__cuda.host->record(graph->copies[i].kind, graph->copies[i].nbytes);
        status = fetch_flags(dev, stream, flags, nflags, words);
        *out_submitted = status != FY_STATUS_OK;
    }
    fy__cuda_range_end();
    fy__cuda_leave(&frame);
    return status;
}

/* Pending launches end first: the driver frees it then. */
void fy__cuda_graph_destroy(void *handle, void *graph_handle)
{
    fy__cuda_device_t *dev = handle;
    graph_t *graph = graph_handle;
    fy__cuda_frame_t frame;
    if (fy__cuda_enter_to_release(dev, &frame)) {
        fy__cuda_note(dev, fy__cuda.cuGraphExecDestroy(graph->exec));
        fy__cuda_leave(&frame);
    }
    drop_graph(graph);
}
