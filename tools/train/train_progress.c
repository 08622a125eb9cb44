/* During a training: collects losses, draws a bar, prints a line for each epoch, and stops on
 * Ctrl-C and SIGTERM.
 * Not here: the output before and after (train_report.c). */
#include "tools/train/train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Ctrl-C and SIGTERM ---- */

static volatile int interrupted; /* the signal */
static struct sigaction before, before_term;

static void on_interrupt(int signal) { interrupted = signal; }

const volatile int *train_catch_interrupt(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = (int)SA_RESETHAND; /* a second one finds the usual action */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before);
    sigaction(SIGTERM, &action, &before_term);
    return &interrupted;
}

void train_release_interrupt(void)
{
    sigaction(SIGINT, &before, NULL);
    sigaction(SIGTERM, &before_term, NULL);
}

int train_interrupt_status(void)
{
    if (!interrupted) fprintf(stderr, "ferry: stopped, as another rank got a signal\n");
    return 128 + (interrupted ? interrupted : SIGTERM);
}

/* ---- the bar ---- */

enum { BAR = 24 };

/* "1.4 GiB" */
static void write_bytes(uint64_t nbytes, char *text, size_t room)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)nbytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 4) value /= 1024, unit++;
    snprintf(text, room, "%.*f %s", value < 10 && unit ? 1 : 0, value, units[unit]);
}

static void draw_bar(train_run_t *run, const fy_train_event_t *event)
{
    const double now = wall_ns();
    if (now - run->shown_ns < 1e8 || !isatty(STDERR_FILENO)) return;
    if (run->dist && run->dist->info.rank) return;
    run->shown_ns = now;
    const double batches = (double)(event->epochs * event->epoch_steps);
    double done = ((double)event->epoch * (double)event->epoch_steps + (double)event->epoch_step) /
                  batches;
    if (run->options.max_steps > 0)
        done = fmax(done, (double)event->step / (double)run->options.max_steps);
    const double left = done > 0 ? (now - run->begin_ns) * 1e-9 * (1 - done) / done : 0;
    fy_memory_stats_t memory = FY_MEMORY_STATS_INIT;
    char bar[BAR + 1], bytes[32] = "?", loss[32] = "-";
    for (int i = 0; i < BAR; i++) bar[i] = (double)i < done * BAR ? '#' : '.';
    bar[BAR] = 0;
    if (fy_memory_peek(run->session.device, &memory) == FY_STATUS_OK)
        write_bytes(memory.live, bytes, sizeof bytes);
    if (!isnan(event->loss)) snprintf(loss, sizeof loss, "%.4f", event->loss);
    fprintf(stderr, "\r\033[K[%s] epoch %lld/%lld  loss %s  %.0f samples/s  %d:%02d left  %s", bar,
            (long long)event->epoch + 1, (long long)event->epochs, loss, event->samples_per_s,
            (int)left / 60, (int)left % 60, bytes);
    fflush(stderr);
}

static void wipe_bar(const train_run_t *run)
{
    if (run->shown_ns > 0 && isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

/* ---- events ---- */

static void print_epoch(train_run_t *run, const fy_train_event_t *event)
{
    FILE *out = run->session.out;
    wipe_bar(run);
    if (!out) return;
    fprintf(out, "epoch %lld/%lld  step %lld  loss %.4f",
            (long long)(event->epoch_step ? event->epoch + 1 : event->epoch),
            (long long)event->epochs, (long long)event->step, event->loss);
    if (!isnan(event->test_loss)) fprintf(out, "  test loss %.4f", event->test_loss);
    if (!isnan(event->test_accuracy))
        fprintf(out, "  test accuracy %.2f %%", 100 * event->test_accuracy);
    fprintf(out, "  lr %.4g  %.0f samples/s\n", event->lr, event->samples_per_s);
    fflush(out);
}

static void add_loss(train_run_t *run, const fy_train_event_t *event)
{
    run->losses = tool_grow(run->losses, run->nlosses, sizeof *run->losses);
    run->loss_steps = tool_grow(run->loss_steps, run->nlosses, sizeof *run->loss_steps);
    run->loss_step = event->loss_step;
    run->losses[run->nlosses] = event->loss;
    run->loss_steps[run->nlosses++] = (double)event->loss_step;
}

fy_status_t train_on_event(void *user, const fy_train_event_t *event)
{
    train_run_t *run = user;
    if (event->loss_step != run->loss_step) add_loss(run, event);
    if (event->is_epoch_end)
        print_epoch(run, event);
    else
        draw_bar(run, event);
    return FY_STATUS_OK;
}
