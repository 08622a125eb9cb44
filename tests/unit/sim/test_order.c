/* Tests of backends/sim/order.c: which orders exist, and that eager changes bytes at submission, before the model clock says so. */
#include "tests/unit/sim/fixture.h"

#include "backends/sim/order.h"

static void orders_by_name(void **state)
{
    (void)state;
    assert_string_equal(fy__sim_order_at(0)->name, "eager");
    for (size_t i = 0; fy__sim_order_at(i); i++) assert_ptr_equal(fy__sim_order_find(fy__sim_order_at(i)->name), fy__sim_order_at(i));
    assert_null(fy__sim_order_find("sideways"));
    assert_null(fy__sim_order_find(""));
}

static void eager_changes_bytes_at_once(void **state)
{
    (void)state;
    void *dev = OPEN(0, "capacity=8192", "order=eager"), *stream = make_stream(dev), *event = make_event(dev);
    char *block = make_block(dev, 8192);
    static char on_host[4096];
    int done = 1;
    sim->register_host(dev, on_host, sizeof(on_host));
    sim->fill(dev, stream, block, 7, 4096);
    copy(dev, stream, FY_COPY_LOCAL, 0, block + 4096, block, 4096);
    copy(dev, stream, FY_COPY_DOWNLOAD, 1, on_host, block + 4096, 4096);
    sim->event_record(dev, event, stream);
    assert_int_equal(sim->event_query(dev, event, &done), FY_STATUS_OK);
    assert_int_equal(done, 0);
    assert_int_equal(on_host[0], 7);
    assert_int_equal(on_host[4095], 7);
    sim->unregister_host(dev, on_host, sizeof(on_host));
    sim->free(dev, block, 8192);
    sim->event_destroy(dev, event);
    sim->stream_destroy(dev, stream);
    sim->device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(orders_by_name), cmocka_unit_test(eager_changes_bytes_at_once) };
    return cmocka_run_group_tests(tests, open_backend, NULL);
}
