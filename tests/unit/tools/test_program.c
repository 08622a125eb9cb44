/* A recorded program in memory: tables and events of a file that has each of them; a run of the
 * library; files that are cut off or damaged at any byte. Not here: its lines (test_cli.sh). */

#include "tests/unit/tools/recording.h"
#include "tools/program/program.h"

#define HEAD "{\"ev\":\"ferry\",\"version\":1,\"library\":\"0.1.0\"}\n"

/* Two steps, each with an upload in two pieces, an op, a wait and a download. */
static const struct {
    const char *kind;
    int ns;
    const char *scope, *rest; /* with ' for " */
} lines[] = {
    { "device", 0, "",
      ",'device':'sim:0','backend':'sim','profile':'t4','options':'profile=t4','bytes':1024" },
    { "stream", 0, "", ",'stream':1,'device':'sim:0','name':'compute'" },
    { "stream", 0, "", ",'stream':2,'device':'sim:0','name':'upload'" },
    { "scope_begin", 1, "run", "" },
    { "block_alloc", 2, "run",
      ",'pool':'sim:0','block':1,'bytes':512,'requested_bytes':400,'category':'weights'" },
    { "scope_begin", 3, "run/step", "" },
    { "copy", 4, "run/step", ",'direction':'upload','bytes':256" },
    { "copy", 5, "run/step", ",'direction':'upload','bytes':144" },
    { "storage", 5, "run/step", ",'storage':7,'device':'sim:0','bytes':400,'block':1" },
    { "transfer", 5, "run/step",
      ",'direction':'upload','path':'staged','contract':'copy','priority':0,'device':'sim:0',"
      "'stream':2,'seq':2,'pinned':false,'blocking':false,'bytes':400,'blocked_ns':3,"
      "'site':'main+0x1','src':[6,0],'dst':[7,0],'model_start_ns':5,'model_end_ns':9" },
    { "wait", 6, "run/step",
      ",'stream':1,'seq':1,'on_stream':2,'on_seq':2,'site':'DISPATCH_READ'" },
    { "op", 7, "run/step",
      ",'number':1,'op':'matmul','device':'sim:0','stream':1,'seq':1,'flops':8,'bytes':16,"
      "'src':[[7,0],null],'dst':[[8,0]],'model_start_ns':9,'model_end_ns':12" },
    { "operands", 7, "run/step", ",'of':1,'src':[[7,0]],'dst':[[9,0]]" },
    { "scope_end", 8, "run/step", "" },
    { "scope_begin", 9, "run/step", "" },
    { "op", 9, "run/step",
      ",'number':2,'op':'add','device':'sim:0','stream':1,'seq':2,'flops':8,'bytes':16,"
      "'src':[[9,0],[8,0]],'dst':[[8,1]],'model_start_ns':12,'model_end_ns':15" },
    { "sync", 20, "run/step", ",'what':'download_wait','blocked_ns':4" },
    { "news", 20, "run/step", ",'what':'unknown'" },
    { "scope_end", 20, "run/step", "" },
    { "block_free", 21, "run",
      ",'pool':'sim:0','block':1,'bytes':512,'requested_bytes':400,'after':[[1,2]]" },
    { "scope_end", 21, "run", "" },
};
enum { NLINES = sizeof lines / sizeof *lines };
static char good[8192]; /* the file without its end */

static void make_good(void)
{
    char *at = good + sprintf(good, HEAD);
    for (int i = 0; i < NLINES; i++) {
        char *begin = at;
        at += sprintf(at, "{'ev':'%s','t_ns':%d,'model_ns':%d,'thread':1,'scope':'%s'%s}\n",
                      lines[i].kind, lines[i].ns, lines[i].ns, lines[i].scope, lines[i].rest);
        for (char *s = begin; *s; s++)
            if (*s == '\'') *s = '"';
    }
}

static const program_event_t *find(const program_t *program, program_kind_t kind, size_t nth)
{
    for (size_t i = 0; i < program->nevents; i++)
        if (program->events[i].kind == kind && nth-- == 0) return &program->events[i];
    fail_msg("no such event");
    return NULL;
}

TS_TEST(test_tables)
{
    char text[sizeof good + 64];
    program_t program;
    snprintf(text, sizeof text, "%s{\"ev\":\"end\",\"t_ns\":22,\"events\":%d,\"lost\":0}\n", good,
             NLINES);
    write_file(text, strlen(text));
    assert_int_equal(program_read(path, 0, &program), FY_STATUS_OK);
    assert_true(program.is_whole);
    assert_int_equal(program.end_model_ns, 21);
    assert_int_equal(program.ndevices, 1);
    assert_string_equal(program.devices[0].profile, "t4");
    assert_int_equal(program.devices[0].memory_nbytes, 1024);
    assert_string_equal(program.streams[1].name, "upload");
    assert_int_equal(program.nstorages, 4);
    assert_int_equal(program.nblocks, 1);
    assert_int_equal(program.blocks[0].nbytes, 512);
    assert_string_equal(program.blocks[0].category, "weights");
    assert_int_equal(program.events[program.blocks[0].allocated].t_ns, 2);
    assert_int_equal(program.events[program.blocks[0].freed].t_ns, 21);
    assert_string_equal(program.step_path, "run/step");
    assert_int_equal(program.nsteps, 2);
    assert_int_equal(program.scopes[program.steps[1]].step, 1);
    assert_string_equal(program.scopes[program.scopes[program.steps[1]].parent].path, "run");
    program_free(&program);
}

TS_TEST(test_events)
{
    program_t program;
    write_file(good, strlen(good));
    assert_int_equal(program_read(path, 0, &program), FY_STATUS_OK);
    assert_false(program.is_whole); /* it has no end */

    const program_event_t *upload = find(&program, PROGRAM_TRANSFER, 0),
                          *op = find(&program, PROGRAM_OP, 0);
    const uint32_t upload_index = (uint32_t)(upload - program.events),
                   op_index = (uint32_t)(op - program.events);
    assert_int_equal(upload->direction, PROGRAM_UPLOAD);
    assert_int_equal(upload->pinned, 0);
    assert_int_equal(upload->number, 2); /* pieces */
    assert_int_equal(find(&program, PROGRAM_COPY, 1)->parent, upload_index);
    assert_string_equal(upload->site, "main+0x1");
    assert_string_equal(program.scopes[upload->scope].path, "run/step");
    const program_operand_t *dst = program_operand(&program, upload, 1);
    assert_int_equal(program.storages[dst->storage].id, 7);
    assert_int_equal(program.storages[dst->storage].block, 0);

    assert_string_equal(op->name, "matmul");
    assert_int_equal(op->nsrc, 2); /* of three, one is null */
    assert_int_equal(op->ndst, 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(program_operand(&program, op, i)->writer, upload_index);
    const program_event_t *add = find(&program, PROGRAM_OP, 1);
    assert_int_equal(program_operand(&program, add, 0)->writer, op_index);
    assert_int_equal(program_operand(&program, add, 1)->writer, op_index);

    const program_event_t *wait = find(&program, PROGRAM_WAIT, 0);
    assert_string_equal(wait->name, "DISPATCH_READ");
    assert_string_equal(program.streams[wait->on.stream].name, "upload");
    assert_int_equal(wait->on.seq, 2);
    assert_string_equal(find(&program, PROGRAM_SYNC, 0)->name, "download_wait");
    assert_int_equal(find(&program, PROGRAM_OTHER, 0)->t_ns, 20);
    program_free(&program);
}

static void refuse(const char *line, const char *because)
{
    char text[1024];
    program_t program;
    snprintf(text, sizeof text, HEAD "%s\n", line);
    write_file(text, strlen(text));
    ts_fails_with(program_read(path, 0, &program), CORRUPT_DATA, because, "line 2");
    program_free(&program);
}

/* A replay of two launches, of which lines of another op's launches come between; one with a launch
 * missing, and one without model times, have none. */
TS_TEST(test_launches)
{
    static const char text[] = HEAD
        "{\"ev\":\"launch\",\"of\":4,\"model_ns\":10,\"flops\":8,\"bytes\":16,"
        "\"model_start_ns\":11,\"model_end_ns\":13}\n"
        "{\"ev\":\"launch\",\"of\":5,\"model_ns\":11,\"model_start_ns\":13,\"model_end_ns\":14}\n"
        "{\"ev\":\"launch\",\"of\":4,\"model_ns\":12,\"flops\":2,\"bytes\":4,"
        "\"model_start_ns\":14,\"model_end_ns\":15}\n"
        "{\"ev\":\"launch\",\"of\":6,\"flops\":2,\"bytes\":4}\n"
        "{\"ev\":\"op\",\"op\":\"graph_replay\",\"number\":4,\"launches\":2}\n"
        "{\"ev\":\"op\",\"op\":\"graph_replay\",\"number\":5,\"launches\":2}\n"
        "{\"ev\":\"op\",\"op\":\"graph_replay\",\"number\":6,\"launches\":1}\n"
        "{\"ev\":\"op\",\"op\":\"graph_replay\",\"number\":4,\"launches\":2}\n";
    program_t program;
    write_file(text, strlen(text));
    assert_int_equal(program_read(path, 0, &program), FY_STATUS_OK);
    assert_int_equal(program.nlaunches, 2);
    const program_event_t *op = find(&program, PROGRAM_OP, 0);
    assert_int_equal(op->nlaunches, 2);
    const program_launch_t *launches = &program.launches[op->launches];
    assert_int_equal(launches[0].flops, 8);
    assert_int_equal(launches[0].model_ns, 10);
    assert_int_equal(launches[1].nbytes, 4);
    assert_int_equal(launches[1].end_ns, 15);
    for (size_t i = 1; i < 4; i++) assert_int_equal(find(&program, PROGRAM_OP, i)->nlaunches, 0);
    program_free(&program);
    refuse("{\"ev\":\"launch\",\"of\":1,\"model_start_ns\":9,\"model_end_ns\":1}",
           "before it starts");
}

/* Numbers of threads and streams grow in a long process; tables have only those in the file.
 * Lines with operands of two ops alternate. */
TS_TEST(test_late_numbers)
{
    static const char text[] = HEAD
        "{\"ev\":\"op\",\"op\":\"a\",\"number\":1,\"stream\":4294967296,\"thread\":99999999,"
        "\"src\":[1,0],\"dst\":[2,1]}\n"
        "{\"ev\":\"op\",\"op\":\"b\",\"number\":2,\"stream\":70000,\"thread\":1}\n"
        "{\"ev\":\"operands\",\"of\":1,\"src\":[3,0],\"dst\":[4,1]}\n"
        "{\"ev\":\"operands\",\"of\":2,\"src\":[4,1]}\n"
        "{\"ev\":\"operands\",\"of\":1,\"src\":[5,0]}\n";
    static const uint64_t storages[] = { 1, 3, 5, 2, 4 };
    program_t program;
    write_file(text, strlen(text));
    assert_int_equal(program_read(path, 0, &program), FY_STATUS_OK);
    assert_int_equal(program.nstreams, 2);
    const program_event_t *a = find(&program, PROGRAM_OP, 0), *b = find(&program, PROGRAM_OP, 1);
    assert_int_not_equal(a->thread, b->thread);
    assert_int_not_equal(a->stream, b->stream);
    assert_int_equal(a->nsrc, 3);
    assert_int_equal(a->ndst, 2);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(program.storages[program_operand(&program, a, i)->storage].id,
                         storages[i]);
    assert_int_equal(b->nsrc, 1);
    assert_int_equal(program_operand(&program, b, 0)->writer, a - program.events);
    program_free(&program);
}

/* Lines after the limit are neither taken nor looked at. */
TS_TEST(test_first_lines)
{
    char text[sizeof good + 16];
    program_t program;
    snprintf(text, sizeof text, "%s{damaged\n", good);
    write_file(text, strlen(text));
    assert_int_equal(program_read(path, NLINES, &program), FY_STATUS_OK);
    assert_true(program.is_cut);
    assert_false(program.is_whole);
    assert_int_equal(program.events[program.nevents - 1].line, NLINES);
    program_free(&program);
    assert_int_equal(program_read(path, 4, &program), FY_STATUS_OK);
    assert_true(program.is_cut);
    program_free(&program);
    ts_fails_with(program_read(path, NLINES + 2, &program), CORRUPT_DATA, "line", "is cut off");
    program_free(&program);
    write_file(good, strlen(good));
    assert_int_equal(program_read(path, NLINES + 2, &program), FY_STATUS_OK);
    assert_false(program.is_cut);
    program_free(&program);
}

TS_TEST(test_damage)
{
    refuse("{\"ev\":\"op\",\"thread\":1}", "no name of an op");
    refuse("{\"ev\":\"transfer\",\"direction\":\"up\"}", "no direction");
    refuse("{\"ev\":\"operands\",\"of\":3,\"src\":[]}", "continues an op");
    refuse("{\"ev\":\"op\",\"op\":\"a\",\"model_start_ns\":9,\"model_end_ns\":1}",
           "before it starts");
    refuse("{\"ev\":", "line 2");
    program_t program;
    assert_int_equal(program_read("/nonexistent/file", 0, &program), FY_STATUS_IO);
    program_free(&program);
}

/* Every prefix, and every byte replaced: each is read or refused. */
TS_TEST(test_any_bytes)
{
    static const char bytes[] = "\"9[{,:\n\1";
    char text[sizeof good];
    program_t program;
    for (size_t i = 0; i < strlen(good); i += 3) {
        write_file(good, i);
        (void)program_read(path, 0, &program);
        program_free(&program);
        memcpy(text, good, sizeof good);
        text[i] = bytes[i % (sizeof bytes - 1)];
        write_file(text, strlen(good));
        (void)program_read(path, 0, &program);
        program_free(&program);
    }
}

static fy_status_t run_steps(void *user, fy_device_t *device)
{
    (void)user;
    float data[16] = { 1 };
    fy_tensor_t *host, *x, *y;
    fy_download_t *answer;
    double value;
    FY_TRY(fy_tensor_wrap(fy_device_host(), FY_DTYPE_F32, FY_DIMS(16), data, NULL, NULL, &host));
    for (int i = 0; i < 3; i++) {
        fy_scope_t step = fy_scope_begin("step");
        FY_TRY(fy_tensor_upload(host, device, NULL, &x));
        FY_TRY(fy_add(x, x, &y));
        FY_TRY(fy_sum(y, FY_AXES(0), 0, &y));
        FY_TRY(fy_tensor_download(y, NULL, &answer));
        FY_TRY(fy_download_wait_f64(answer, FY_FOREVER, &value));
        fy_scope_end(step, 0, NULL);
    }
    return FY_STATUS_OK;
}

TS_TEST(test_recording)
{
    program_t program;
    record_run("sim:0?profile=t4", run_steps, NULL);
    assert_int_equal(program_read(path, 0, &program), FY_STATUS_OK);
    assert_true(program.is_whole);
    assert_string_equal(program.step_path, "run/step");
    assert_int_equal(program.nsteps, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_not_equal(program.scopes[program.steps[i]].end, PROGRAM_NONE);
    const program_event_t *add = find(&program, PROGRAM_OP, 0),
                          *upload = find(&program, PROGRAM_TRANSFER, 0);
    assert_string_equal(add->name, "add");
    assert_ptr_equal(&program.events[program_operand(&program, add, 0)->writer], upload);
    program_free(&program);
}

static int begin(void **state)
{
    make_good();
    return make_file(state);
}

TS_SUITE(.begin = begin, .end = remove_file);
