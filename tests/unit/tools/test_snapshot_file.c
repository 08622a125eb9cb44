/* The reader of snapshots: a snapshot written by the library is read back unchanged; inconsistent
 * files are refused with a text that names the position; no bytes crash it. Not here: JSON itself
 * (test_json_tree.c). */

#include "tests/unit/tools/recording.h"
#include "tools/cli/snapshot_file.h"

static char *json; /* a valid snapshot */

/* Two segments; live, pending, free and cached bytes; a limit. */
static void make_good(void)
{
    static fy__snapshot_block_t blocks[] = {
        { .offset = 0,
          .nbytes = 512,
          .requested = 400,
          .id = 7,
          .scope = "train/\"step\"\n",
          .state = FY__SNAPSHOT_LIVE,
          .category = FY_CATEGORY_WEIGHTS },
        { .offset = 512,
          .nbytes = 512,
          .state = FY__SNAPSHOT_PENDING,
          .nstreams = 2,
          .streams = { 3, 12 },
          .category = FY__SNAPSHOT_NO_CATEGORY },
        { .offset = 0,
          .nbytes = 256,
          .requested = 256,
          .id = 9,
          .state = FY__SNAPSHOT_LIVE,
          .category = FY_CATEGORY_STAGING },
        { .offset = 256,
          .nbytes = 1792,
          .state = FY__SNAPSHOT_FREE,
          .category = FY__SNAPSHOT_NO_CATEGORY },
    };
    static fy__snapshot_segment_t segments[] = { { 0x1000, 1024, 0, 2 },
                                                 { 0x7f0000000000, 2048, 2, 2 } };
    static fy__snapshot_pool_t pool = { .name = "sim:0",
                                        .stats = { .live = 768 + 64,
                                                   .requested = 656 + 64,
                                                   .cached = 2304,
                                                   .pending = 512,
                                                   .reserved = 3072 + 64,
                                                   .peak_live = 3000,
                                                   .peak_reserved = 4000,
                                                   .largest_free = 1792,
                                                   .device_allocs = 2,
                                                   .limit = 5000,
                                                   .by_category = { 64, 512, 0, 0, 0, 256 },
                                                   .peak_by_category = { 1, 2, 3, 4, 5, 6 } },
                                        .in_place = 64,
                                        .alloc_stats = { .ready = 5, .verdicts = 1 },
                                        .first_segment = 0,
                                        .nsegments = 2 };
    static const fy__snapshot_t good = { .device = "sim:0",
                                         .model = "h200 profile",
                                         .process = 17,
                                         .unix_ns = 1234567890123456789u,
                                         .npools = 1,
                                         .nsegments = 2,
                                         .nblocks = 4,
                                         .pools = &pool,
                                         .segments = segments,
                                         .blocks = blocks };
    size_t nbytes;
    FILE *file = open_memstream(&json, &nbytes);
    fy__snapshot_write_json(&good, file);
    fclose(file);
}

static fy_status_t read_text(const char *text, size_t nbytes, snapshot_file_t *out_file)
{
    write_file(text, nbytes);
    return snapshot_file_open(path, out_file);
}

TS_TEST(a_snapshot_is_read_back_unchanged)
{
    snapshot_file_t file;
    char *again;
    size_t nbytes;
    assert_int_equal(read_text(json, strlen(json), &file), FY_STATUS_OK);
    assert_int_equal(file.snapshot.nblocks, 4);
    assert_string_equal(file.snapshot.blocks[0].scope, "train/\"step\"\n");
    assert_int_equal(file.snapshot.blocks[1].streams[1], 12);
    assert_true(file.snapshot.segments[1].address == 0x7f0000000000);
    FILE *out = open_memstream(&again, &nbytes);
    fy__snapshot_write_json(&file.snapshot, out);
    fclose(out);
    assert_string_equal(again, json); /* to the byte */
    free(again);
    snapshot_file_close(&file);
}

/* Returns the valid snapshot with the first `from` replaced. */
static void refused(const char *from, const char *to, const char *why)
{
    snapshot_file_t file;
    char changed[16384];
    const char *at = strstr(json, from);
    if (!at) fail_msg("the snapshot has no '%s'", from);
    const int n = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - json), json, to,
                           at + strlen(from));
    const fy_status_t status = read_text(changed, (size_t)n, &file);
    if (status != FY_STATUS_CORRUPT_DATA || !strstr(fy_error_get()->text, why))
        fail_msg("'%s' for '%s': %s, %s", to, from, fy_status_name(status),
                 status ? fy_error_get()->text : "");
    snapshot_file_close(&file);
}

TS_TEST(inconsistent_files_are_refused)
{
    snapshot_file_t file;
    refused("\"snapshot\": 1", "\"snapshot\": 2", "version 2; this command reads version 1");
    refused("\"snapshot\": 1", "\"snapshot\": -1", "version of its format");
    refused("\"snapshot\"", "\"snapshop\"", "version of its format");
    refused("\"pools\": [", "\"pools\": 5, \"x\": [", "no \"pools\"");
    refused("\"device\"", "\"divice\"", "no \"device\"");
    refused("\"pool\": \"sim:0\"", "\"pool\": 5", "has no name");
    refused("\"kind\": \"device\"", "\"kind\": \"disk\"", "sim:0: its \"kind\"");
    refused("\"live_bytes\": 832", "\"live_bytes\": 833", "add up to 768 live");
    refused("\"live_bytes\": 832", "\"live_bytes\": 832.5", "no \"live_bytes\"");
    refused("\"cached_bytes\": 2304", "\"cached_bytes\": 2303", "and 2304 other bytes");
    refused("\"reserved_bytes\": 3136", "\"reserved_bytes\": 18446744073709551615",
            "no \"reserved_bytes\"");
    refused("\"largest_free_bytes\": 1792", "\"largest_free_bytes\": 2305",
            "more of it is pending or free than is cached");
    refused("\"pending_bytes\": 512", "\"pending_bytes\": 2305",
            "more of it is pending or free than is cached");
    refused("\"verdicts\": 1", "\"verdicts\": 18446744073709551615",
            "no count of its \"verdicts\"");
    refused("\"live_bytes\": 64", "\"live_bytes\": 18446744073709551615",
            "no figures of \"activations\"");
    refused("\"limit_bytes\": 5000", "\"limit_bytes\": \"none\"", "limit_bytes");
    refused("\"address\": \"0x1000\"", "\"address\": \"4096\"", "address");
    refused("\"address\": \"0x1000\"", "\"address\": \"0xfffffffffffffffff\"", "address");
    refused("\"bytes\": 1024", "\"bytes\": 0", "no \"bytes\"");
    refused("\"bytes\": 1024", "\"bytes\": 1025", "do not fill it");
    refused("\"offset\": 512", "\"offset\": 511", "at offset 511 where one at 512 must be");
    refused("\"bytes\": 1792", "\"bytes\": 1793", "1792 are left of its segment");
    refused("\"bytes\": 1792", "\"bytes\": 0", "0 bytes");
    refused("\"state\": \"free\"", "\"state\": \"gone\"", "no \"state\"");
    refused("\"requested_bytes\": 400", "\"requested_bytes\": 513", "more was asked for");
    refused("\"block\": 7", "\"blok\": 7", "no \"block\"");
    refused("\"streams\": [3, 12]", "\"streams\": [3, 4, 5, 6, 7, 8]", "streams");
    refused("\"streams\": [3, 12]", "\"streams\": [70000]", "streams");
    refused("]}", "]", "as JSON it has, on line ");
    assert_int_equal(snapshot_file_open("/nowhere/at/all", &file), FY_STATUS_IO);
    snapshot_file_close(&file);
    assert_int_equal(snapshot_file_open("/tmp", &file), FY_STATUS_IO);
    snapshot_file_close(&file);
    assert_int_equal(read_text("{}\0{}", 5, &file), FY_STATUS_CORRUPT_DATA);
    snapshot_file_close(&file);
}

/* Keys that a later version may add are no reason to refuse. */
TS_TEST(unknown_keys_are_skipped)
{
    snapshot_file_t file;
    char changed[16384];
    const char *at = strstr(json, "\"category\": \"weights\"");
    const int n =
        snprintf(changed, sizeof changed,
                 "{\"new\": [[1], {\"x\": null}],%.*s\"category\": \"dreams\", \"more\": 1.5%s",
                 (int)(at - json - 1), json + 1, at + 21);
    assert_int_equal(read_text(changed, (size_t)n, &file), FY_STATUS_OK);
    assert_int_equal(file.snapshot.blocks[0].category, FY__SNAPSHOT_NO_CATEGORY);
    assert_string_equal(file.snapshot.blocks[0].scope, "train/\"step\"\n");
    snapshot_file_close(&file);
}

/* Truncated at any position, or with a few bytes changed: the file is refused or accepted, without
 * a crash. An accepted file can be drawn. */
TS_TEST(garbage_is_refused)
{
    snapshot_file_t file;
    const size_t length = strlen(json);
    char *copy = malloc(length);
    unsigned seed = 1;
    for (size_t n = 0; n + 2 < length; n += 3) {
        assert_int_equal(read_text(json, n, &file), FY_STATUS_CORRUPT_DATA);
        snapshot_file_close(&file);
    }
    for (int i = 0; i < 3000; i++) {
        memcpy(copy, json, length);
        for (int k = 0; k < 1 + i % 3; k++) {
            seed = seed * 1103515245u + 12345u;
            copy[(seed >> 8) % length] = i % 2 ? (char)('0' + (seed >> 4) % 10)
                                               : (char)(seed >> 20);
        }
        const fy_status_t status = read_text(copy, length, &file);
        assert_true(status == FY_STATUS_OK || status == FY_STATUS_CORRUPT_DATA);
        if (status == FY_STATUS_OK)
            assert_int_equal(snapshot_file_draw(&file, "/dev/null"), FY_STATUS_OK);
        snapshot_file_close(&file);
    }
    free(copy);
}

TS_TEST(drawing_fails_with_a_reason)
{
    snapshot_file_t file;
    assert_int_equal(read_text(json, strlen(json), &file), FY_STATUS_OK);
    ts_fails_with(snapshot_file_draw(&file, "/nowhere/at/all.svg"), IO, "No such file");
    ts_fails_with(snapshot_file_draw(&file, "/dev/full"), IO, "No space left");
    snapshot_file_close(&file);
}

static int begin(void **state)
{
    make_good();
    return make_file(state);
}

static int end(void **state)
{
    free(json);
    return remove_file(state);
}

TS_SUITE(.begin = begin, .end = end);
