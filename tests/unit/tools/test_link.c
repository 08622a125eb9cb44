/* The link experiment on the model clock, whose times are the same on every machine: transfers
 * overlap with computing, and the figures of each row add up. */
#include <math.h>
#include <unistd.h>

#include "tests/support/harness.h"
#include "tools/experiments/parts.h"

#define PLAN "sim:0?profile=h200&numerics=off" /* the same clock, without computing */

static overlap_t overlap_on(const char *spec, int64_t steps, int64_t products)
{
    session_t session;
    overlap_t o = { 0 };
    const effort_t once = { .rounds = 1 };
    const common_t common = { .device = spec };
    assert_int_equal(session_begin(&session, &common, "test", "experiment", "link"), FY_STATUS_OK);
    assert_int_equal(link_overlap_measure(&session, steps, products, &once, &o), FY_STATUS_OK);
    assert_int_equal(session_end(&session, FY_STATUS_OK), STATUS_OK);
    return o;
}

static double longest_of(const overlap_t *o)
{
    return fmax(fmax(o->upload_ns.median, o->compute_ns.median), o->download_ns.median);
}

TS_TEST(transfers_overlap_with_computing)
{
    static const struct {
        const char *spec;
        int64_t products;
    } cases[] = { { PLAN, 0 },
                  { PLAN, 1 },                             /* the transfer is the longest part */
                  { PLAN, 8 },                             /* computing is the longest part */
                  { "sim:1?profile=k80&numerics=off", 0 }, /* slow in every part */
                  { "sim:2?profile=rtx4090&numerics=off", 0 }, /* computes fast, an older link */
                  { "sim:4?profile=v100&numerics=off", 0 } };  /* nearly equal parts */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const overlap_t o = overlap_on(cases[i].spec, 48, cases[i].products);
        const double sum = o.upload_ns.median + o.compute_ns.median + o.download_ns.median;
        assert_int_equal(o.steps, 48);
        if (cases[i].products) assert_int_equal(o.products, cases[i].products);
        assert_true(o.upload_ns.median > 0 && o.compute_ns.median > 0 && o.download_ns.median > 0);
        if (!(o.pipelined_ns_per_step.median <= 1.02 * longest_of(&o)) ||
            !(o.pipelined_ns_per_step.median >= 0.999 * longest_of(&o)))
            fail_msg(
                "%s, %lld products: a step takes %.0f ns; upload %.0f, compute %.0f, download %.0f",
                cases[i].spec, (long long)o.products, o.pipelined_ns_per_step.median,
                o.upload_ns.median, o.compute_ns.median, o.download_ns.median);
        assert_true(o.serial_ns_per_step.median >= sum &&
                    /* plus the cost of submitting and waking up */
                    o.serial_ns_per_step.median <= 1.25 * sum);
    }
}

TS_TEST(computing_is_chosen_to_last_as_long_as_the_upload)
{
    const overlap_t o = overlap_on(PLAN, 8, 0);
    assert_true(o.compute_ns.median > 0.5 * o.upload_ns.median &&
                o.compute_ns.median < 1.5 * o.upload_ns.median);
}

/* The experiment compares every downloaded byte with the result of its step. */
TS_TEST(results_are_those_of_their_steps)
{
    overlap_on("sim:3?profile=h200", 4, 1);
    overlap_on("host", 2, 1);
}

/* ---- rows ---- */

typedef struct row {
    char mode[32], direction[8], clock[8];
    long long nbytes, pieces, copies;
    double ns, bytes_per_s;
} row_t;

enum { MAX_ROWS = 64 };

/* Runs `ferry experiment link` with --csv and reads the rows. */
static size_t rows_of(const char *spec, const char *sizes, const char *pieces, row_t rows[MAX_ROWS])
{
    char path[] = "/tmp/ferry-link-XXXXXX", line[512], words[6][64];
    int fd = mkstemp(path);
    size_t count = 0;
    assert_true(fd >= 0);
    snprintf(words[0], 64, "link");
    snprintf(words[1], 64, "--device=%s", spec);
    snprintf(words[2], 64, "--sizes=%s", sizes);
    snprintf(words[3], 64, "--pieces=%s", pieces);
    snprintf(words[4], 64, "--csv=%s", path);
    snprintf(words[5], 64, "--rounds=5");
    char *argv[] = { words[0], words[1], words[2], words[3], words[4], words[5], NULL };
    assert_int_equal(exp_link(6, argv), STATUS_OK);
    FILE *file = fdopen(fd, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(
        line, "mode,direction,nbytes,pieces,ns,ns_q1,ns_q3,ns_low,ns_high,ns_half_percent,"
              "bytes_per_s,gbytes_per_s,copies,clock,rounds\r\n");
    while (count < MAX_ROWS && fgets(line, sizeof line, file)) {
        row_t *r = &rows[count++];
        int rounds = 0;
        double half;
        assert_int_equal(sscanf(line,
                                "%31[^,],%7[^,],%lld,%lld,%lf,%*f,%*f,%*f,%*f,%lf,%lf,%*f,%lld,"
                                "%7[a-z],%d",
                                r->mode, r->direction, &r->nbytes, &r->pieces, &r->ns, &half,
                                &r->bytes_per_s, &r->copies, r->clock, &rounds),
                         10);
        assert_true(rounds == 5 && half >= 0);
    }
    fclose(file);
    unlink(path);
    return count;
}

static const row_t *find(const row_t *rows, size_t count, const char *mode, const char *direction,
                         long long nbytes)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rows[i].mode, mode) == 0 && strcmp(rows[i].direction, direction) == 0 &&
            rows[i].nbytes == nbytes)
            return &rows[i];
    fail_msg("no row %s %s %lld", mode, direction, nbytes);
    return NULL;
}

TS_TEST(rows_count_the_transferred_bytes)
{
    row_t rows[MAX_ROWS];
    const size_t count = rows_of(PLAN, "4,4096,16MiB", "256", rows);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(rows[i].clock, "model");
        assert_true(rows[i].ns > 0);
        assert_true(fabs(rows[i].bytes_per_s * rows[i].ns * 1e-9 / (double)rows[i].nbytes - 1) <
                    1e-6);
    }
    assert_int_equal(find(rows, count, "pinned", "up", 4)->copies, 1);
    assert_int_equal(find(rows, count, "pinned", "down", 16 << 20)->copies, 1);
    assert_true(find(rows, count, "staged", "up", 16 << 20)->copies > 1);
    assert_true(find(rows, count, "staged", "down", 16 << 20)->copies > 1);
    const row_t *loop = find(rows, count, "loop", "up", 256 * 4096);
    assert_int_equal(loop->pieces, 256);
    assert_int_equal(loop->copies, 256);
    assert_int_equal(find(rows, count, "loop", "down", 256 * 4096)->copies, 256);
    const row_t *coalesced = find(rows, count, "coalesced", "up", 256 * 4096);
    assert_int_equal(coalesced->pieces, 256);
    assert_int_equal(coalesced->copies, 1);
    assert_true(8 * coalesced->ns <= loop->ns);
    assert_int_equal(find(rows, count, "coalesced", "down", 256 * 4096)->copies, 1);
    assert_true(8 * find(rows, count, "coalesced", "down", 256 * 4096)->ns <=
                find(rows, count, "loop", "down", 256 * 4096)->ns);
}

/* The bandwidth of a profile is that of large transfers without set-up and wake-up; the ring adds
 * little. */
TS_TEST(large_transfers_reach_the_profile)
{
    row_t rows[MAX_ROWS];
    const size_t count = rows_of(PLAN, "64MiB", "1", rows);
    const row_t *up = find(rows, count, "pinned", "up", 64 << 20);
    assert_true(up->bytes_per_s > 0.98 * 52e9 && up->bytes_per_s < 52e9);
    assert_true(find(rows, count, "staged", "up", 64 << 20)->bytes_per_s >= 0.85 * up->bytes_per_s);
    assert_true(find(rows, count, "staged", "down", 64 << 20)->bytes_per_s >=
                0.85 * up->bytes_per_s);
}

TS_TEST(on_the_host_there_are_rows_too)
{
    row_t rows[MAX_ROWS];
    const size_t count = rows_of("host", "4,64KiB", "3", rows);
    assert_string_equal(find(rows, count, "pinned", "up", 4)->clock, "wall");
    assert_int_equal(find(rows, count, "staged", "up", 64 << 10)->pieces, 1);
}

static void refused(const char *first, const char *second)
{
    char name[] = "link", words[2][32], *argv[] = { name, words[0], words[1], NULL };
    snprintf(words[0], sizeof words[0], "%s", first);
    snprintf(words[1], sizeof words[1], "%s", second);
    assert_int_equal(exp_link(3, argv), STATUS_USAGE);
}

TS_TEST(sizes_are_read_or_refused)
{
    static const char *const bad[] = { "--sizes=0",    "--sizes=4,,8", "--sizes=4;8",
                                       "--sizes=5GiB", "--sizes=-4",   "--sizes=1x" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) refused(bad[i], "--device=host");
}

TS_TEST(options_of_the_other_form_are_refused)
{
    refused("--steps=5", "--device=host");
    refused("--compute=2", "--device=host");
    refused("--overlap", "--sizes=4");
    refused("--overlap", "--pieces=1");
}
