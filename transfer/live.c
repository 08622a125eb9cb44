/* The thread and the page of FERRY_WATCH; see live.h. The file has mode 0600 and is removed when
 * the process exits. A process that is killed leaves it; the next one with its number replaces it,
 * and `ferry watch` removes it. */
#include "transfer/live.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ferry/ledger.h>
#include <ferry/memory.h>

#include "runtime/base/c_locale.h"
#include "runtime/base/environment.h"
#include "runtime/base/fail.h"
#include "runtime/device/registry.h"
#include "runtime/record/notes.h"
#include "runtime/thread/guard.h"

enum { PERIOD_NS = 100000000, EXIT_WAIT_S = 1 };

/* Guards `page` and `ending`. The thread holds it only to sleep. */
pthread_mutex_t fy__live_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static fy__live_page_t *page; /* NULL: nothing is shared */
static bool ending;
static pthread_t thread;
static char path[64];
static struct stat made_file; /* of `page` */

bool fy__live_value_is_good(const char *value)
{
    return (value[0] == '0' || value[0] == '1') && !value[1];
}

/* ---- figures ---- */

static fy__live_traffic_t traffic_of(const fy_traffic_t *t)
{
    return (fy__live_traffic_t){ t->count, t->nbytes, t->host_blocked_ns };
}

static void add_device(fy__live_figures_t *f, const fy_device_t *device)
{
    fy_memory_stats_t stats = FY_MEMORY_STATS_INIT;
    if (f->ndevices == FY__LIVE_DEVICES || fy_memory_peek(device, &stats) != FY_STATUS_OK) return;
    fy__live_device_t *d = &f->devices[f->ndevices++];
    snprintf(d->name, sizeof d->name, "%s", fy_device_name(device));
    d->live = stats.live;
    d->reserved = stats.reserved;
    d->peak_live = stats.peak_live;
}

static void collect(fy__live_figures_t *f)
{
    fy_ledger_totals_t totals = FY_LEDGER_TOTALS_INIT;
    const fy_device_t *host = fy__device_host_if_open();
    if (fy_ledger_query(NULL, &totals) != FY_STATUS_OK) return; /* without memory: later */
    f->at_ns = fy__now_ns();
    f->updates++;
    f->upload = traffic_of(&totals.upload);
    f->download = traffic_of(&totals.download);
    f->peer = traffic_of(&totals.peer);
    f->requests = totals.requests;
    f->syncs = totals.syncs;
    f->sync_ns = totals.sync_ns;
    f->throttles = totals.throttles;
    f->throttle_ns = totals.throttle_ns;
    f->device_allocs = totals.device_allocs;
    f->refusals = fy__notes_copy(f->notes);
    f->ndevices = 0;
    if (host) add_device(f, host);
    for (uint32_t i = 1; i < FY__MAX_DEVICES; i++) {
        fy_device_t *device = fy__device_use_at(i);
        if (!device) continue;
        add_device(f, device);
        fy__device_unuse(device);
    }
}

/* ---- the thread ---- */

static void *share(void *user)
{
    fy__live_page_t *shared = user;
    fy__live_figures_t figures = { 0 };
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    pthread_mutex_lock(&fy__live_lock);
    while (!ending) {
        pthread_mutex_unlock(&fy__live_lock);
        collect(&figures);
        fy__live_write(shared, &figures);
        at.tv_nsec += PERIOD_NS;
        at.tv_sec += at.tv_nsec / 1000000000;
        at.tv_nsec %= 1000000000;
        pthread_mutex_lock(&fy__live_lock);
        while (!ending && pthread_cond_timedwait(&changed, &fy__live_lock, &at) == 0) continue;
    }
    pthread_mutex_unlock(&fy__live_lock);
    collect(&figures);
    fy__live_write(shared, &figures);
    return NULL;
}

/* ---- begin and end ---- */

/* Returns 0 or the errno. A file of that name is of an ended process that had this number. */
static int make_page(void)
{
    snprintf(path, sizeof path, FY__LIVE_FOLDER "/" FY__LIVE_PREFIX "%ld", (long)getpid());
    (void)unlink(path);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return errno;
    void *made = MAP_FAILED;
    int error = fstat(fd, &made_file) ? errno : 0;
    if (!error) error = posix_fallocate(fd, 0, sizeof *page); /* or writing could be a SIGBUS */
    if (!error) {
        made = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (made == MAP_FAILED) error = errno;
    }
    close(fd);
    if (error) {
        (void)unlink(path);
        return error;
    }
    page = made;
    page->nbytes = sizeof *page;
    page->pid = (uint64_t)getpid();
    page->started = fy__live_started(page->pid);
    page->period_ns = PERIOD_NS;
    page->magic = FY__LIVE_MAGIC;
    return 0;
}

/* Another process of that number, in another container with this folder, may have replaced it. */
static void remove_page(void)
{
    struct stat now;
    if (!lstat(path, &now) && now.st_dev == made_file.st_dev && now.st_ino == made_file.st_ino)
        (void)unlink(path);
    (void)munmap(page, sizeof *page);
    page = NULL;
}

static void begin(void)
{
    const char *value = fy__env_file("FERRY_WATCH");
    if (!value || strcmp(value, "0") == 0) return;
    if (!fy__live_value_is_good(value)) {
        fy_log_write(FY_LOG_WARNING, "FERRY_WATCH=%.100s: it may be 1 or 0; nothing is shared",
                     value);
        return;
    }
    pthread_mutex_lock(&fy__live_lock);
    int error = make_page();
    if (!error) {
        fy__notes_enable(true);
        error = fy__thread_start(&thread, share, page);
        if (error) {
            fy__notes_enable(false);
            remove_page();
        }
    }
    pthread_mutex_unlock(&fy__live_lock);
    if (error)
        fy_log_write(FY_LOG_WARNING, "FERRY_WATCH=1: nothing is shared: %s", fy__strerror(error));
}

void fy__live_from_environment(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
}

/* At exit and dlclose. If the thread waits for a lock that an exiting thread holds, it is left. */
__attribute__((destructor)) static void end_at_exit(void)
{
    struct timespec until;
    if (pthread_mutex_trylock(&fy__live_lock) != 0) return;
    fy__live_page_t *shared = page;
    ending = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&fy__live_lock);
    if (!shared) return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += EXIT_WAIT_S;
    const bool is_over = pthread_timedjoin_np(thread, NULL, &until) == 0;
    atomic_store(&shared->ended, 1);
    (void)unlink(path);
    if (is_over) (void)munmap(shared, sizeof *shared);
}

/* ---- fork ---- */

void fy__live_fork_child(void)
{
    if (page) {
        fy__notes_enable(false);
        (void)munmap(page, sizeof *page); /* the file is the parent's */
        page = NULL;
    }
    pthread_mutex_unlock(&fy__live_lock);
}
