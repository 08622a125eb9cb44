/* Tests of backends/sim/profile_file.c: a good file gives exactly its figures, and each kind of
 * malformed file is refused with a text that names the position and the error. */
#include "tests/unit/sim/fixture.h"

#include <stdlib.h>
#include <unistd.h>

#include "backends/sim/profile_file.h"

static char path[] = "profile_file_XXXXXX.json";

static int make_path(void **state)
{
    (void)state;
    const int file = mkstemps(path, 5);
    return file < 0 || close(file) != 0 ? -1 : open_backend(state);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const char *text, size_t nbytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

#define FIGURE(key, value, unit)                            \
    "\"" key "\": {\"value\": " value ", \"unit\": \"" unit \
    "\", \"spread\": 0.01, \"how\": \"a \\\"test\\\"\"}"
#define HEAD              "{\"ferry_profile\": 1, \"name\": \"mine\", \"date\": \"today\",\n"
#define MEMORY            FIGURE("memory_bytes", "2097152", "bytes")
#define FLOPS(key, value) FIGURE(key "_flops_per_s", value, "flop/s")
#define BYTES(key, value) FIGURE(key "_bytes_per_s", value, "bytes/s")
#define NS(key, value)    FIGURE(key "_ns", value, "ns")
#define HALVES            FLOPS("f16", "103") "," FLOPS("bf16", "104")
#define LINKS             BYTES("pinned", "106") "," BYTES("pageable", "107")
#define RATES \
    FLOPS("f32", "101") "," FLOPS("f64", "102") "," HALVES "," BYTES("memory", "105") "," LINKS
#define PEER       BYTES("peer", "108")
#define SUBMITS    NS("launch_submit", "9") "," NS("copy_submit", "10")
#define LATENCIES  SUBMITS "," NS("poll", "11") "," NS("wake", "12") "," NS("kernel", "13")
#define SETUP      NS("copy_setup", "14")
#define HOST_RATES FLOPS("host", "15") "," BYTES("host", "16")
#define HOST       HOST_RATES "," NS("host_op", "17") "," BYTES("host_copy", "18")
#define WHOLE \
    HEAD "\"figures\": {" MEMORY "," RATES "," PEER "," LATENCIES "," SETUP ",\n" HOST "}}\n"

static char facts[2048];

static void note_fact(void *user, const char *key, const char *value)
{
    (void)user;
    size_t used = strlen(facts);
    snprintf(facts + used, sizeof facts - used, "%s=%s ", key, value);
}

static void assert_facts(const char *expected)
{
    char option[64];
    void *dev;
    snprintf(option, sizeof option, "profile=./%s", path);
    if (try_open(3, &dev, (const char *[]){ option, NULL }) != FY_STATUS_OK) fail_msg("%s", said);
    facts[0] = '\0';
    sim_ok(sim->describe(dev, note_fact, NULL));
    assert_string_equal(facts, expected);
    fy_backend_info_t info;
    sim_ok(sim->device_query(dev, &info));
    assert_string_equal(info.model, "mine profile");
    sim->device_close(dev);
}

TS_TEST(a_complete_file_gives_its_figures)
{
    write_file(WHOLE, strlen(WHOLE));
    assert_facts("profile=mine memory_bytes=2097152 f32_flops_per_s=101 f64_flops_per_s=102 "
                 "f16_flops_per_s=103 bf16_flops_per_s=104 "
                 "memory_bytes_per_s=105 pinned_bytes_per_s=106 pageable_bytes_per_s=107 "
                 "peer_bytes_per_s=108 launch_submit_ns=9 "
                 "copy_submit_ns=10 poll_ns=11 wake_ns=12 kernel_ns=13 copy_setup_ns=14 "
                 "host_flops_per_s=15 host_bytes_per_s=16 "
                 "host_op_ns=17 host_copy_bytes_per_s=18 segments=fixed chains=host ");
}

TS_TEST(a_base_profile_gives_the_missing_figures)
{
    static const char text[] = HEAD "\"base\": \"t4\", \"figures\": {" HOST "}}";
    write_file(text, strlen(text));
    assert_facts(
        "profile=mine memory_bytes=16106127360 f32_flops_per_s=8100000000000 "
        "f64_flops_per_s=253000000000 "
        "f16_flops_per_s=65000000000000 bf16_flops_per_s=8100000000000 "
        "memory_bytes_per_s=320000000000 "
        "pinned_bytes_per_s=12000000000 pageable_bytes_per_s=8000000000 "
        "peer_bytes_per_s=12000000000 launch_submit_ns=1700 "
        "copy_submit_ns=7000 poll_ns=200 wake_ns=11000 kernel_ns=2000 copy_setup_ns=2000 "
        "host_flops_per_s=15 "
        "host_bytes_per_s=16 host_op_ns=17 host_copy_bytes_per_s=18 segments=fixed chains=host ");
}

/* The figures are used: the host time and the submission time of a launch follow them. */
TS_TEST(times_follow_the_file)
{
    char option[64];
    void *dev;
    fy_backend_clock_t before, after;
    write_file(WHOLE, strlen(WHOLE));
    snprintf(option, sizeof option, "profile=./%s", path);
    sim_ok(try_open(3, &dev, (const char *[]){ option, NULL }));
    sim->clock(dev, &before);
    sim->host_work(dev, 30, 0);
    sim->clock(dev, &after);
    assert_int_equal(after.now_ns - before.now_ns, 2000000000 + 17);
    sim->host_copy(dev, 36);
    sim->clock(dev, &before);
    assert_int_equal(before.now_ns - after.now_ns, 2000000000);
    sim->device_close(dev);
}

typedef struct wrong {
    const char *text, *says;
} wrong_t;

static const wrong_t wrongs[] = {
    { "", "line 1: this is no profile, or no JSON: a '{' was expected" },
    { "[]", "no JSON" },
    { "not JSON at all", "no JSON" },
    { "{}", "a text was expected" },
    { "{\"name\": \"x\"}", "the first member must be \"ferry_profile\"" },
    { "{\"ferry_profile\": 2, \"name\": \"x\"}", "version 2 of the form; this Ferry reads 1" },
    { "{\"ferry_profile\": 1}", "there is no name" },
    { HEAD "\"name\": \"again\"}", "line 2: 'name' is unknown, or appears twice" },
    { HEAD "\"colour\": \"red\"}", "line 2: 'colour' is unknown" },
    { HEAD "\"base\": \"b200\"}", "base is 'b200', which is no built-in profile" },
    { HEAD "\"base\": \"t4\"}", "there are no figures" },
    { HEAD "\"figures\": {" HOST "}, \"base\": \"t4\"}", "base must precede the figures" },
    { "{\"ferry_profile\": 1, \"name\": \"\"}", "name must have 1 to 31" },
    { "{\"ferry_profile\": 1, \"name\": \"01234567890123456789012345678901\"}",
      "name must have 1 to 31" },
    { "{\"ferry_profile\": 1, \"name\": \"a\\x\"}", "name: an unknown escape" },
    { "{\"ferry_profile\": 1, \"name\": \"a", "name: a text without an end" },
    { "{\"ferry_profile\": 1, \"name\": \"a\nb\"}", "name: a control character in a text" },
    { "{\"ferry_profile\": 1, \"name\": \"a\\nb\"}", "name must have 1 to 31 plain" },
    { "{\"ferry_profile\": 1, \"name\": \"a\\", "name: a text without an end" },
    { HEAD "\"figures\": {" MEMORY "," RATES "," LATENCIES "," SETUP "," HOST "}}",
      "peer_bytes_per_s is missing, and no base" },
    { HEAD "\"figures\": {" MEMORY "," RATES "," PEER "," LATENCIES "," HOST "}}",
      "copy_setup_ns is missing" },
    { HEAD "\"figures\": {" MEMORY ",\n" MEMORY "}}", "line 3: memory_bytes appears twice" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "-1", "bytes") "}}",
      "memory_bytes: a whole number, 0 or more, was expected" },
    { HEAD "\"figures\": {" FIGURE("f32_flops_per_s", "0", "flop/s") "}}",
      "f32_flops_per_s is 0; it may be from 1 to" },
    { HEAD "\"figures\": {" FIGURE("f64_flops_per_s", "0", "flop/s") "}}", "f64_flops_per_s is 0" },
    { HEAD "\"figures\": {" FIGURE("pinned_bytes_per_s", "0", "bytes/s") "}}",
      "pinned_bytes_per_s is 0" },
    { HEAD "\"figures\": {" FIGURE("host_bytes_per_s", "0", "bytes/s") "}}",
      "host_bytes_per_s is 0" },
    { HEAD "\"figures\": {" FIGURE("poll_ns", "0", "ns") "}}", "poll_ns is 0; it may be from 1" },
    { HEAD "\"figures\": {" FIGURE("wake_ns", "1000000001", "ns") "}}",
      "wake_ns is 1000000001; it may be from 0 to 1000000000 ns" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "1048575", "bytes") "}}",
      "memory_bytes is 1048575" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "70368744177665", "bytes") "}}",
      "memory_bytes is 70368744177665" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "18446744073709551616", "bytes") "}}",
      "memory_bytes: a number past 2^64 - 1" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "1e9", "bytes") "}}",
      "memory_bytes: a number with a point or an exponent" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "2097152.5", "bytes") "}}",
      "memory_bytes: a number with a point or an exponent" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "02097152", "bytes") "}}",
      "memory_bytes: a number that begins with 0" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "\"2097152\"", "bytes") "}}",
      "memory_bytes: a whole number, 0 or more, was expected" },
    { HEAD "\"figures\": {" FIGURE("memory_bytes", "2097152", "MiB") "}}",
      "the unit of memory_bytes is bytes, not 'MiB'" },
    { HEAD "\"figures\": {" FIGURE("memory_mib", "2", "MiB") "}}",
      "'memory_mib' is no figure of a profile" },
    { HEAD "\"figures\": {\"poll_ns\": 200}}", "poll_ns: a '{' was expected" },
    { HEAD "\"figures\": {\"poll_ns\": {\"value\": 200}}}", "poll_ns has no unit" },
    { HEAD "\"figures\": {\"poll_ns\": {\"unit\": \"ns\"}}}", "poll_ns has no value" },
    { HEAD "\"figures\": {\"poll_ns\": {\"value\": 200, \"value\": 200}}}",
      "poll_ns has 'value' twice" },
    { HEAD "\"figures\": {\"poll_ns\": {\"median\": 200}}}",
      "poll_ns has 'median' twice, or it is unknown" },
    { HEAD "\"figures\": {\"poll_ns\": {\"value\": 200, \"spread\": -1}}}", "spread is negative" },
    { HEAD "\"figures\": {}}", "figures: a text was expected" },
    { HEAD "\"figures\": {\"poll_ns\": {\"value\": 200", "',' or '}'" },
    { WHOLE "x", "line 4: there is text after the profile's end" },
};

static void refused(const char *value, const char *says)
{
    fy__sim_figures_t figures = { .name = "untouched" };
    sim_fails(fy__sim_profile_read("sim:3", value, &figures), INVALID_ARGUMENT);
    if (!strstr(said, says) || !strstr(said, value) || !strstr(said, "sim:3"))
        fail_msg("'%s' does not say '%s'", said, says);
    assert_string_equal(figures.name, "untouched");
}

TS_TEST(wrong_files_are_refused)
{
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        write_file(wrongs[i].text, strlen(wrongs[i].text));
        refused(path, wrongs[i].says);
    }
    write_file(WHOLE "\0", strlen(WHOLE) + 1);
    refused(path, "zero byte");
    static char large[FY__SIM_PROFILE_FILE_NBYTES + 2];
    memset(large, ' ', sizeof large);
    for (size_t i = 0; i < strlen(WHOLE); i++) large[i] = WHOLE[i];
    write_file(large, FY__SIM_PROFILE_FILE_NBYTES); /* trailing spaces are allowed */
    fy__sim_figures_t figures;
    sim_ok(fy__sim_profile_read("sim:3", path, &figures));
    write_file(large, FY__SIM_PROFILE_FILE_NBYTES + 1);
    refused(path, "has 65537 bytes, more than 65536: that is no profile");
    refused("./nowhere.json", "No such file");
    refused("/", "directory");
}

/* Every prefix of a file is refused, and no byte after its end is read (AddressSanitizer checks
 * that). */
TS_TEST(every_prefix_is_refused)
{
    for (size_t n = 0; n + 2 < strlen(WHOLE); n++) {
        fy__sim_figures_t figures;
        write_file(WHOLE, n);
        sim_fails(fy__sim_profile_read("sim:3", path, &figures), INVALID_ARGUMENT);
    }
}

TS_SUITE(.begin = make_path, .end = remove_path);
