/* Work of the advice on many findings: allocated bytes, and calls of the functions that its loops
 * call, grow as the number of findings does. Not here: the rules (tests/advisor/). */

#include <stdlib.h>

#include "tests/unit/tools/recording.h"
#include "tools/advise/advice.h"

static size_t work;

#define COUNTED(result, name, parameters, arguments, amount) \
    result __real_##name parameters;                         \
    result __wrap_##name parameters;                         \
    result __wrap_##name parameters                          \
    {                                                        \
        work += (amount);                                    \
        return __real_##name arguments;                      \
    }
COUNTED(void *, calloc, (size_t count, size_t size), (count, size), count *size)
COUNTED(int, strcmp, (const char *a, const char *b), (a, b), 1)
COUNTED(facts_engine_t, facts_engine, (const facts_t *facts, uint32_t event), (facts, event), 1)

#define EVENT "{\"ev\":\"%s\",\"t_ns\":%d,\"model_ns\":%d,\"thread\":1,\"scope\":\"%s\""

/* The same bytes are uploaded `count` times, each time at another call site or, without sites, in
 * another scope. The link is busy for nine tenths of the time. */
static void write_uploads(int count, bool has_sites)
{
    static const char *const head[] = {
        "'ev':'ferry','version':1,'library':'0.1.0'",
        "'ev':'device','t_ns':0,'device':'sim:0','backend':'sim','profile':'t4','bytes':1024",
        "'ev':'stream','t_ns':0,'stream':1,'device':'sim:0','name':'compute'",
        "'ev':'stream','t_ns':0,'stream':2,'device':'sim:0','name':'upload'",
        "'ev':'storage','t_ns':0,'storage':6,'device':'host','bytes':400",
        "'ev':'storage','t_ns':0,'storage':7,'device':'sim:0','bytes':400",
    };
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) {
        fputc('{', file);
        for (const char *s = head[i]; *s; s++) fputc(*s == '\'' ? '"' : *s, file);
        fputs("}\n", file);
    }
    for (int i = 0; i < count; i++) {
        char scope[20] = "", site[40] = "";
        const int ns = 10 * i + 5;
        snprintf(has_sites ? site : scope, sizeof scope, has_sites ? "f+0x%x" : "s%d", i);
        fprintf(file,
                EVENT ",\"direction\":\"upload\",\"path\":\"staged\",\"contract\":\"copy\","
                      "\"device\":\"sim:0\",\"stream\":2,\"seq\":%d,\"bytes\":400,\"site\":\"%s\","
                      "\"src\":[6,0],\"dst\":[7,%d],\"model_start_ns\":%d,\"model_end_ns\":%d}\n",
                "transfer", ns, ns, scope, i + 1, site, i, ns, ns + 9);
        fprintf(file,
                EVENT ",\"number\":%d,\"op\":\"neg\",\"device\":\"sim:0\",\"stream\":1,\"seq\":%d,"
                      "\"src\":[[7,%d]],\"dst\":[[8,%d]],\"model_start_ns\":%d,"
                      "\"model_end_ns\":%d}\n",
                "op", ns + 1, ns + 1, scope, i + 1, i + 1, i, i, ns + 9, ns + 10);
    }
    assert_int_equal(fclose(file), 0);
}

/* Work of the advice about `count` uploads. */
static size_t work_of(int count, bool has_sites)
{
    program_t program;
    facts_t facts;
    advice_t advice;
    write_uploads(count, has_sites);
    assert_int_equal(program_read(path, 0, &program), FY_STATUS_OK);
    facts_create(&program, &facts);
    work = 0;
    advice_create(&facts, NULL, &advice);
    const size_t done = work;
    assert_in_range(advice.nfindings, count / 2, 2 * count);
    advice_free(&advice);
    facts_free(&facts);
    program_free(&program);
    return done;
}

TS_TEST(grows_linearly)
{
    for (int has_sites = 0; has_sites < 2; has_sites++) {
        const size_t few = work_of(1024, has_sites), many = work_of(4096, has_sites);
        if (many > 6 * few)
            fail_msg("advice about 1024 findings takes %zu units of work, about 4096 %zu", few,
                     many);
    }
}

TS_SUITE(FILE_OF_SUITE);
