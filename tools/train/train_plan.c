/* `ferry train MODEL --recompute auto`: the first updates of this training, with its data, model
 * and optimizer, planned in every way of keeping fewer bytes.
 * Not here: the table and the choice (plan_choices.c). */
#include <string.h>

#include "tools/cli/plan_models.h"
#include "tools/train/train.h"

enum { UPDATES = 3 }; /* the second is a steady one; with --graph the third */

typedef struct rehearsal {
    const train_run_t *actual;
    train_run_t run; /* of the plan that runs */
    volatile int stop;
} rehearsal_t;

/* The device of the training if it is simulated, else one with as much memory, and on cuda with
 * cuda's chains. */
static fy_status_t write_spec(const train_run_t *run, char *spec, size_t nbytes)
{
    const fy_device_info_t *info = &run->session.info;
    const char *device = run->session.common->device;
    const uint64_t given = (uint64_t)run->request.memory_limit;
    if (info->is_simulated && given && strstr(device, "limit="))
        return TOOL_FAIL(INVALID_ARGUMENT,
                         "train: --memory-limit and limit= of %s are the same: "
                         "name one",
                         device);
    if (info->is_host && !given)
        return TOOL_FAIL(INVALID_ARGUMENT, "train: --recompute auto on the host, which has no "
                                           "memory limit: add --memory-limit");
    if (strstr(device, "autotune=on"))
        return TOOL_FAIL(INVALID_ARGUMENT,
                         "train: --recompute auto cannot plan %s: convolutions that are chosen by "
                         "time take other scratch memory than a plan knows; leave autotune= "
                         "out, or give --recompute a way",
                         device);
    int length;
    if (info->is_simulated && !given)
        length = snprintf(spec, nbytes, "%s", device);
    else if (info->is_simulated)
        length = snprintf(spec, nbytes, "%s%climit=%llu", device, strchr(device, '?') ? '&' : '?',
                          (unsigned long long)given);
    else {
        const uint64_t most = info->limit_nbytes < info->free_nbytes ? info->limit_nbytes
                                                                     : info->free_nbytes;
        length = snprintf(spec, nbytes, "sim:0?chains=%s&capacity=%llu",
                          info->is_host ? "host" : "cuda",
                          (unsigned long long)(given ? given : most));
    }
    return length >= 0 && (size_t)length < nbytes
               ? FY_STATUS_OK
               : TOOL_FAIL(INVALID_ARGUMENT, "train: --device %s is too long", device);
}

static fy_status_t on_event(void *user, const fy_train_event_t *event)
{
    rehearsal_t *rehearsal = user;
    rehearsal->stop = event->step >= UPDATES;
    return FY_STATUS_OK;
}

/* What a plan has made but the model, which its caller destroys. */
static void clear(train_run_t *run)
{
    run->model = NULL;
    run->train_set = run->test_set = NULL;
    train_teardown(run);
}

static fy_status_t open(fy_device_t *device, const fy_model_options_t *options, void *user,
                        fy_model_t **out_model)
{
    rehearsal_t *rehearsal = user;
    train_run_t *run = &rehearsal->run;
    *run = (train_run_t){ .session = rehearsal->actual->session,
                          .request = rehearsal->actual->request,
                          .options = rehearsal->actual->options,
                          .train_set = rehearsal->actual->train_set,
                          .test_set = rehearsal->actual->test_set };
    run->session.device = device;
    rehearsal->stop = 0;
    const fy_status_t status = train_make(run, options);
    *out_model = run->model;
    if (status != FY_STATUS_OK) clear(run);
    return status;
}

/* A batch as an evaluation has it. */
static fy_status_t evaluate(train_run_t *run)
{
    fy_tensor_t *x, *y, *result;
    fy_scope_t scope = fy_scope_begin("test");
    fy_model_set_training(run->model, 0);
    fy_status_t status = fy_loader_next(run->test, &x, &y);
    if (status == FY_STATUS_OK) status = fy_model_forward(run->model, x, &result);
    fy_scope_end(scope, 0, NULL);
    return status;
}

static fy_status_t rehearse(fy_model_t *model, int64_t batch, void *user)
{
    (void)model, (void)batch; /* those of the run */
    rehearsal_t *rehearsal = user;
    train_run_t *run = &rehearsal->run;
    fy_train_result_t result = FY_TRAIN_RESULT_INIT;
    fy_status_t status = train_finish(run);
    run->options.epochs = run->options.max_steps = UPDATES;
    run->options.checkpoint = NULL;
    run->options.checkpoint_every = run->options.resume = 0;
    run->options.on_event = on_event;
    run->options.user = rehearsal;
    run->options.stop = &rehearsal->stop;
    if (status == FY_STATUS_OK)
        status =
            fy_train_run(run->model, run->optimizer, run->train, run->test, &run->options, &result);
    if (status == FY_STATUS_OK) status = evaluate(run);
    clear(run);
    return status;
}

fy_status_t train_choose(train_run_t *run, fy_model_options_t *options)
{
    char spec[256];
    rehearsal_t rehearsal = { .actual = run };
    fy_plan_t plan = FY_PLAN_INIT;
    const plan_target_t target = { .device = spec,
                                   .open = open,
                                   .run = rehearse,
                                   .user = &rehearsal,
                                   .batch = run->request.loader.batch,
                                   .may_offload = !run->request.graph };
    const fy_model_options_t given = *options;
    FY_TRY(write_spec(run, spec, sizeof spec));
    FY_TRY(plan_choose(&run->session, &target, &given, &run->segments, options, &plan));
    if (!plan.fits)
        return TOOL_FAIL(OUT_OF_MEMORY,
                         "train: no --recompute fits %llu bytes; the least reserves %llu: try a "
                         "smaller --batch",
                         (unsigned long long)plan.limit, (unsigned long long)plan.peak_reserved);
    return FY_STATUS_OK;
}
