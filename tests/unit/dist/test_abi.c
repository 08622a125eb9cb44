/* Each call of libferry_dist that takes a struct with a struct_size, with every size that another
 * version of a header could give. The rules by themselves: tests/unit/runtime/test_abi.c. */
#include <ferry/train/train.h>

#include "dist/ddp.h"
#include "tests/support/abi_sweep.h"
#include "tests/support/harness.h"
#include "tests/support/test.h"

FY__ABI_DECLARATION(group_options, GROUP_OPTIONS, )
FY__ABI_DECLARATION(group_info, GROUP_INFO, )
FY__ABI_DECLARATION(ddp_options, DDP_OPTIONS, )
FY__ABI_DECLARATION(ddp_info, DDP_INFO, )
FY__ABI_DECLARATION(backward_options, BACKWARD_OPTIONS, )
FY__ABI_DECLARATION(train_replicas, TRAIN_REPLICAS, )
FY__ABI_DECLARATION(optimizer_options, OPTIMIZER_OPTIONS, )

static fy_group_t *group;
static fy_model_t *model;
static fy_ddp_t *ddp;

static fy_status_t group_open(void *given)
{
    fy_group_t *made;
    fy_group_close(group);
    const fy_status_t status = fy_group_open(given, &made);
    fy_group_close(made);
    ts_ok(fy_group_open(NULL, &group));
    ddp->group = group;
    return status == FY_STATUS_OK ? status : fy_error_get()->status;
}
static fy_status_t group_query(void *given) { return fy_group_query(group, given); }
static fy_status_t ddp_create(void *given)
{
    fy_ddp_t *made;
    const fy_status_t status = fy_ddp_create(group, model, given, &made);
    fy_ddp_destroy(made);
    return status;
}
static fy_status_t ddp_query(void *given) { return fy_ddp_query(ddp, given); }
static fy_status_t ddp_replicas(void *given) { return fy_ddp_replicas(ddp, given); }
static fy_status_t ddp_backward(void *given)
{
    fy_tape_t *tape;
    fy_tensor_t *x, *y, *loss;
    ts_ok(fy_full(fy_device_host(), FY_DTYPE_F32, FY_DIMS(2, 28, 28, 1), 0.5, &x));
    ts_ok(fy_tape_create(&tape));
    ts_ok(fy_model_watch(model, tape));
    ts_ok(fy_tape_begin(tape));
    ts_ok(fy_model_forward(model, x, &y));
    ts_ok(fy_mean(y, FY_ALL_AXES, 0, &loss));
    const fy_status_t status = fy_ddp_backward(ddp, tape, loss, given);
    fy_tape_destroy(tape);
    return status;
}
/* As one of two ranks that divide the state: the call alone exchanges nothing. */
static fy_status_t ddp_create_optimizer(void *given)
{
    fy_optimizer_t *made;
    ddp->options.shard_optimizer = 1;
    group->transport.size = 2;
    const fy_status_t status = fy_ddp_create_optimizer(ddp, given, &made);
    group->transport.size = 1;
    ddp->options.shard_optimizer = 0;
    fy_optimizer_destroy(made);
    return status;
}

static const ts_abi_case_t cases[] = {
    TS_ABI_OPTIONS(group_options, group_open),
    TS_ABI_FACTS(group_info, group_query),
    TS_ABI_OPTIONS(ddp_options, ddp_create),
    TS_ABI_FACTS(ddp_info, ddp_query),
    TS_ABI_FACTS(train_replicas, ddp_replicas),
    TS_ABI_OPTIONS(backward_options, ddp_backward),
    TS_ABI_OPTIONS(optimizer_options, ddp_create_optimizer),
};

TS_TEST(every_size_of_every_struct)
{
    ts_ok(fy_group_open(NULL, &group));
    ts_ok(fy_model_open(fy_device_host(), "mlp", NULL, &model));
    ts_ok(fy_ddp_create(group, model, NULL, &ddp));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fy_scope_t scope = fy_scope_begin("sweep");
        ts_abi_sweep(&cases[i]);
        fy_scope_end(scope, 0, NULL);
    }
    fy_ddp_destroy(ddp);
    fy_model_destroy(model);
    fy_group_close(group);
}
