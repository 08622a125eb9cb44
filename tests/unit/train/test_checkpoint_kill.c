/* A training is killed (SIGKILL) at random moments and restarted from its folder, 200 times. After
 * each kill the folder has a complete checkpoint, equal byte for byte to that of an uninterrupted
 * training at the same step. Every training that ends has the same final file. The trainings are
 * this program, called with an argument, so each starts as a new process.
 * FERRY_SEED=n kills at other moments. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/unit/train/fixture.h"
#include "tests/unit/train/resume.h"

enum { STEPS = 20, KEEP = 3 };

/* A slow disk, so that many kills hit the middle of a file. The linker replaces the system's
 * function by this one (tests.cmake). */
static int is_child;
ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    if (is_child) nanosleep(&(struct timespec){ 0, 100000 }, NULL);
    return __real_write(fd, data, n);
}

/* Resumes the training in `folder`, with a checkpoint after each step. */
static int child(const char *path, int keep)
{
    fy_device_t *device;
    resume_t r;
    fy_status_t status = fy_device_open("sim:0", &device);
    if (status == FY_STATUS_OK) status = resume_begin(device, 1, &r);
    if (status != FY_STATUS_OK) return 2;
    status = fy_checkpoint_load(path, r.model, r.optimizer, &r.progress);
    if (status == FY_STATUS_UNAVAILABLE) status = FY_STATUS_OK;
    r.progress.note = NULL; /* use the model's note */
    while (status == FY_STATUS_OK && r.progress.step < STEPS) {
        status = resume_step(device, &r);
        if (status == FY_STATUS_OK)
            status = fy_checkpoint_save(path, r.model, r.optimizer, &r.progress, keep);
    }
    if (status != FY_STATUS_OK)
        fprintf(stderr, "%s: %s\n", fy_status_name(status), fy_error_get()->text);
    resume_end(&r);
    fy_device_close(device);
    return status == FY_STATUS_OK ? 0 : 1;
}

static pid_t start(const char *path, int keep)
{
    char keep_text[16];
    snprintf(keep_text, sizeof keep_text, "%d", keep);
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "child", "checkpoint_kill", path, keep_text, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns the highest step in the folder; -1: none. Counts left-over files. */
static int64_t newest(const char *path, int *left_overs)
{
    const struct dirent *entry;
    int64_t most = -1;
    DIR *open_folder = opendir(path);
    if (!open_folder) return -1;
    while ((entry = readdir(open_folder))) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".tmp") == 0) ++*left_overs;
        if (!end || strcmp(end, ".safetensors") != 0 || strncmp(entry->d_name, "step-", 5) != 0)
            continue;
        if (atoll(entry->d_name + 5) > most) most = atoll(entry->d_name + 5);
    }
    closedir(open_folder);
    return most;
}

static void assert_same_file(const char *a_folder, const char *b_folder, int64_t step)
{
    static char a[1 << 16], b[1 << 16];
    char path[2][128];
    size_t n[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/step-%08lld.safetensors", i ? b_folder : a_folder,
                 (long long)step);
        n[i] = read_file(path[i], i ? b : a, sizeof a);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(a, b, n[0]);
}

/* What the next start would do. */
static void assert_loadable(const char *path, fy_device_t *device, int64_t step)
{
    resume_t r;
    ts_ok(resume_begin(device, 77, &r));
    ts_ok(fy_checkpoint_load(path, r.model, r.optimizer, &r.progress));
    assert_int_equal(r.progress.step, step);
    resume_end(&r);
}

/* One of several trainings that run concurrently, each in its folder: most of the time they wait
 * for the disk. */
typedef struct lane {
    char folder[64];
    pid_t pid;
    uint64_t wait_ns;
} lane_t;

/* Starts all lanes and kills each after a random time of at most most_ns. */
static void start_and_kill(lane_t *lanes, int count, uint64_t *random, uint64_t most_ns)
{
    const uint64_t begin_ns = now_ns();
    for (int i = 0; i < count; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        lanes[i].wait_ns = (*random >> 33) % (most_ns + 1);
        lanes[i].pid = start(lanes[i].folder, KEEP);
    }
    for (int alive = count; alive; alive--) {
        int status;
        lane_t *next = NULL;
        for (int i = 0; i < count; i++)
            if (lanes[i].pid && (!next || lanes[i].wait_ns < next->wait_ns)) next = &lanes[i];
        const uint64_t gone_ns = now_ns() - begin_ns,
                       left_ns = next->wait_ns > gone_ns ? next->wait_ns - gone_ns : 0;
        nanosleep(
            &(struct timespec){ (time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u) },
            NULL);
        kill(next->pid, SIGKILL);
        assert_int_equal(waitpid(next->pid, &status, 0), next->pid);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        next->pid = 0;
    }
}

/* 1: the training had ended; its folder is empty now. */
static int check_lane(const lane_t *lane, const char *whole, fy_device_t *device, int *left_overs)
{
    const int64_t step = newest(lane->folder, left_overs);
    if (step < 0) return 0; /* killed before its first checkpoint */
    assert_loadable(lane->folder, device, step);
    assert_same_file(lane->folder, whole, step);
    if (step < STEPS) return 0;
    empty_folder(lane->folder);
    return 1;
}

static void train_to_the_end(const char *path, int keep)
{
    int status;
    assert_true(waitpid(start(path, keep), &status, 0) > 0 && WIFEXITED(status) &&
                WEXITSTATUS(status) == 0);
}

TS_TEST(killed_at_any_moment)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { ROUNDS = 20, LANES = 4 };
#else
    enum { ROUNDS = 200, LANES = 8 };
#endif
    char whole[64] = "/tmp/ferry-whole-XXXXXX";
    lane_t lanes[LANES] = { 0 };
    const char *seed = getenv("FERRY_SEED");
    uint64_t random = seed ? strtoull(seed, NULL, 10) : 1;
    int ends = 0, left_overs = 0;
    fy_device_t *device;
    assert_non_null(mkdtemp(whole));
    for (int i = 0; i < LANES; i++) {
        snprintf(lanes[i].folder, sizeof lanes[i].folder, "/tmp/ferry-kill-XXXXXX");
        assert_non_null(mkdtemp(lanes[i].folder));
    }
    uint64_t lasts = now_ns();
    train_to_the_end(whole, STEPS);
    lasts = now_ns() - lasts;
    ts_ok(fy_device_open("sim:0", &device));
    for (int round = 0; round < ROUNDS / LANES; round++) {
        start_and_kill(lanes, LANES, &random, lasts);
        for (int i = 0; i < LANES; i++) ends += check_lane(&lanes[i], whole, device, &left_overs);
    }
    /* Finally resumes one of them and runs it to the end. */
    train_to_the_end(lanes[0].folder, KEEP);
    assert_same_file(lanes[0].folder, whole, STEPS);
    print_message(
        "%d kills, %d trainings came to their end on the way, %d files were found half written\n",
        ROUNDS, ends, left_overs);
    fy_device_close(device);
    for (int i = 0; i < LANES; i++) {
        empty_folder(lanes[i].folder);
        rmdir(lanes[i].folder);
    }
    empty_folder(whole);
    rmdir(whole);
}

static int prepare(void)
{
    is_child = *ts_arguments != NULL;
    if (is_child) exit(child(ts_arguments[0], atoi(ts_arguments[1])));
    return 0;
}

TS_SUITE(.prepare = prepare);
