/* Stream capture and graphs of the fake. Work passes through fake_submit: it runs at once, or is
 * kept as a closure if its stream is being captured; a graph runs its closures in order. Calls that
 * the driver forbids during a capture (allocating, event queries, page-locking) fail here too and
 * invalidate the capture: on the capturing thread, and, in GLOBAL mode, on every other thread. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fake_cuda/fake.h"

typedef struct node {
    struct node *next;
    fake_run_fn run;
    size_t nbytes;
    _Alignas(16) unsigned char work[];
} node_t;

/* Both kinds of handle. */
typedef struct graph {
    struct graph *next; /* the list of all */
    CUcontext context;
    int is_exec;
    node_t *first, **last;
} graph_t;

typedef struct capture {
    CUstream stream;
    graph_t *graph;
    CUstreamCaptureMode mode;
    const void *thread;
    int is_invalid;
} capture_t;

enum { NCAPTURES = 16 };
static graph_t *graphs;
static capture_t captures[NCAPTURES]; /* graph NULL: free */
static int64_t live[2];               /* graphs, executable ones */
static _Thread_local char this_thread;

int64_t fake_graphs_live(int is_exec) { return live[is_exec]; }

static graph_t *make(CUcontext context, int is_exec)
{
    graph_t *graph = calloc(1, sizeof *graph);
    *graph = (graph_t){ .next = graphs, .context = context, .is_exec = is_exec };
    graph->last = &graph->first;
    graphs = graph;
    live[is_exec]++;
    return graph;
}

static void append(graph_t *graph, fake_run_fn run, const void *work, size_t nbytes)
{
    node_t *node = malloc(sizeof *node + nbytes);
    node->next = NULL;
    node->run = run;
    node->nbytes = nbytes;
    memcpy(node->work, work, nbytes);
    *graph->last = node;
    graph->last = &node->next;
}

static void drop(graph_t *graph)
{
    graph_t **link = &graphs;
    while (*link != graph) link = &(*link)->next;
    *link = graph->next;
    live[graph->is_exec]--;
    while (graph->first != NULL) {
        node_t *node = graph->first;
        graph->first = node->next;
        free(node);
    }
    free(graph);
}

static int is_valid(const void *handle, CUcontext context, int is_exec)
{
    for (const graph_t *graph = graphs; graph != NULL; graph = graph->next)
        if (graph == handle && graph->is_exec == is_exec && graph->context == context) return 1;
    fake_count_misuse();
    return 0;
}

static capture_t *capture_of(CUstream stream)
{
    for (int i = 0; i < NCAPTURES; i++)
        if (captures[i].graph != NULL && captures[i].stream == stream) return &captures[i];
    return NULL;
}

/* ---- queries of the rest of the fake ---- */

CUresult fake_submit(CUcontext context, CUstream stream, fake_run_fn run, const void *work,
                     size_t nbytes)
{
    capture_t *capture = capture_of(stream);
    if (capture == NULL) return run(context, work);
    if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    append(capture->graph, run, work, nbytes);
    return CUDA_SUCCESS;
}

int fake_capture_refuses(CUstream stream)
{
    capture_t *capture = capture_of(stream);
    if (capture == NULL) return 0;
    if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    capture->is_invalid = 1;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

int fake_capture_forbids(enum fake_entry entry)
{
    int code = 0;
    switch (entry) {
    case FAKE_cuMemAlloc:
    case FAKE_cuMemFree:
    case FAKE_cuMemHostRegister:
    case FAKE_cuMemHostUnregister:
    case FAKE_cuModuleLoadData:
    case FAKE_cuModuleUnload:
    case FAKE_cuEventQuery:
    case FAKE_cuEventSynchronize:
#ifdef FERRY_HAS_CUDNN
    case FAKE_cudnnCreate:
#endif
    case FAKE_cublasLtCreate:
    case FAKE_cublasLtMatmulAlgoGetHeuristic: break; /* of CUDA 13.3: an internal error */
    default: return 0;
    }
    for (int i = 0; i < NCAPTURES; i++) {
        capture_t *capture = &captures[i];
        if (capture->graph == NULL || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && capture->thread != &this_thread)
            continue;
        capture->is_invalid = 1;
        code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return code;
}

void fake_capture_drop(CUstream stream)
{
    capture_t *capture = capture_of(stream);
    if (capture == NULL) return;
    drop(capture->graph);
    capture->graph = NULL;
}

void fake_graphs_close(CUcontext context, int lost)
{
    for (graph_t *graph = graphs, *next; graph != NULL; graph = next) {
        next = graph->next;
        if (graph->context != context) continue;
        for (int i = 0; i < NCAPTURES; i++)
            if (captures[i].graph == graph) captures[i].graph = NULL;
        if (!lost) fake_count_leak(1);
        drop(graph);
    }
}

int fake_cuda_captures(void)
{
    int n = 0;
    fake_lock();
    for (int i = 0; i < NCAPTURES; i++) n += captures[i].graph != NULL;
    fake_unlock();
    return n;
}

/* ---- capturing ---- */

CUresult fake_cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    FAKE_ENTER(cuStreamBeginCapture);
    if (code == 0 && (stream == NULL || !fake_stream_is_valid(stream, context)))
        code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0 && capture_of(stream) != NULL) code = CUDA_ERROR_ILLEGAL_STATE;
    for (int i = 0; code == 0 && i < NCAPTURES; i++) {
        if (captures[i].graph != NULL) continue;
        captures[i] = (capture_t){ stream, make(context, 0), mode, &this_thread, 0 };
        return (CUresult)fake_leave(0);
    }
    return (CUresult)fake_leave(code != 0 ? code : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult fake_cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    FAKE_ENTER(cuStreamEndCapture);
    *out = NULL;
    if (code == 0 && !fake_stream_is_valid(stream, context)) code = CUDA_ERROR_INVALID_HANDLE;
    capture_t *capture = code == 0 ? capture_of(stream) : NULL;
    if (code == 0 && capture == NULL) code = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (code == 0 && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != &this_thread)
        code = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (code == 0 && capture->is_invalid) {
        fake_capture_drop(stream);
        code = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if (code == 0) {
        *out = (CUgraph)capture->graph;
        capture->graph = NULL;
    }
    return (CUresult)fake_leave(code);
}

/* ---- graphs ---- */

CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle,
                                          unsigned long long flags)
{
    FAKE_ENTER(cuGraphInstantiateWithFlags);
    *out = NULL;
    if (code == 0 && !is_valid(handle, context, 0)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0 && flags != 0) code = CUDA_ERROR_INVALID_VALUE;
    if (code == 0) {
        graph_t *exec = make(context, 1);
        for (const node_t *node = ((graph_t *)handle)->first; node != NULL; node = node->next)
            append(exec, node->run, node->work, node->nbytes);
        *out = (CUgraphExec)exec;
    }
    return (CUresult)fake_leave(code);
}

/* Both need a graph and a stream of the current context that is not being captured. */
static int check(const void *exec, CUstream stream, CUcontext context)
{
    if (!is_valid(exec, context, 1) || !fake_stream_is_valid(stream, context))
        return CUDA_ERROR_INVALID_HANDLE;
    return fake_capture_refuses(stream);
}

CUresult fake_cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    FAKE_ENTER(cuGraphUpload);
    if (code == 0) code = check(exec, stream, context);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    FAKE_ENTER(cuGraphLaunch);
    if (code == 0) code = check(exec, stream, context);
    if (code == 0)
        for (const node_t *node = ((graph_t *)exec)->first;
             node != NULL && code == 0 && context->lost == CUDA_SUCCESS; node = node->next)
            code = node->run(context, node->work);
    return (CUresult)fake_leave(code);
}

CUresult fake_cuGraphExecDestroy(CUgraphExec exec)
{
    FAKE_ENTER_RELEASE(cuGraphExecDestroy);
    if (code == 0 && !is_valid(exec, context, 1)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) drop((graph_t *)exec);
    return (CUresult)fake_leave(code != 0 ? code : told);
}

CUresult fake_cuGraphDestroy(CUgraph graph)
{
    FAKE_ENTER_RELEASE(cuGraphDestroy);
    if (code == 0 && !is_valid(graph, context, 0)) code = CUDA_ERROR_INVALID_HANDLE;
    if (code == 0) drop((graph_t *)graph);
    return (CUresult)fake_leave(code != 0 ? code : told);
}
