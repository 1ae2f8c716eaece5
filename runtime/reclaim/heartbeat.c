/* heartbeat.c - the thread, who is connected, the end; what is made of it all is pulse.c's.
 *
 * Rank 0 listens, the others connect, each message is where its sender is. Times are each rank's own and are counted in ticks
 * of its thread, so that a pause of the whole process (a suspended job) is held against nobody. */
#include "runtime/reclaim/heartbeat.h"

#include "comm/socket.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/reclaim/line.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    TICKS_PER_LIMIT = 80,
    TICK_MS_MIN = 5,
    TICK_MS_MAX = 500,
    GAP_TICKS_MAX = 4,   /* a longer pause of this thread is not held against the others */
    LEAVE_MS_MAX = 1000, /* how long rank 0 waits for the others to go first */
    CONNECT_SECONDS_MAX = 10,
    USUAL_STEPS_MIN = 3, /* before the time of a step is usual; the first is not */
    USUAL_MEMORY = 16,   /* steps that its mean remembers */
    USUAL_TIMES_MAX = 4, /* of the mean: longer ones count as this long */
    WARN_SECONDS = 60    /* between two warnings of a slow step */
};

struct tern_heartbeat {
    struct tern_heartbeat_options options;
    int64_t tick_ns;
    int listener; /* rank 0's */
    uint64_t token;
    int wake;
    char (*hosts)[TERN_PULSE_HOST_BYTES]; /* (size) */
    struct tern_line *lines;              /* (size): rank 0's to all, the others' to rank 0 */
    struct tern_pulse_view *views;        /* (size) */
    struct pollfd *polled;                /* (size + 2) */
    struct tern_pulse pulse;              /* of this rank, as the thread counts */
    uint64_t phase_serial, step_serial;   /* of the last tick */
    int64_t warned_ns;                    /* since the last warning */
    bool has_verdict;
    struct tern_pulse_verdict verdict;
    pthread_t thread;
    _Atomic bool is_closing, is_resting, is_over;
    _Atomic int new_line; /* handed to the thread by the opener; -1: none */
    /* what mark says */
    _Atomic int phase;
    _Atomic int64_t step;
    _Atomic uint64_t phases, steps; /* count the calls, and those that began a step */
    _Atomic bool is_in_step;
    _Atomic int64_t usual_ns; /* of a step, 0 not known */
    int64_t step_began_ns;    /* the marking thread's own */
    int64_t steps_timed;
};

/* ---- where this rank is ---- */

static void time_step(struct tern_heartbeat *h, int64_t now)
{
    int64_t took = now - h->step_began_ns;
    int64_t usual = atomic_load(&h->usual_ns);
    h->steps_timed++;
    if (h->steps_timed < USUAL_STEPS_MIN) {
        return;
    }
    if (usual == 0) {
        usual = took;
    }
    took = took < USUAL_TIMES_MAX * usual ? took : USUAL_TIMES_MAX * usual;
    usual += (took - usual) / USUAL_MEMORY;
    atomic_store(&h->usual_ns, usual > 0 ? usual : 1);
}

void tern_heartbeat_mark(struct tern_heartbeat *h, enum tern_phase phase, int64_t step)
{
    if (h == NULL) {
        return;
    }
    bool is_inside = phase == TERN_PHASE_COMPUTE || phase == TERN_PHASE_REDUCE;
    bool begins = phase == TERN_PHASE_DATA;
    if (!is_inside) {
        int64_t now = tern_socket_now_ns();
        if (atomic_load(&h->is_in_step)) {
            time_step(h, now);
        }
        h->step_began_ns = now;
        atomic_store(&h->is_in_step, begins);
        atomic_fetch_add(&h->steps, begins);
    }
    atomic_store(&h->step, step);
    atomic_store(&h->phase, (int)phase);
    atomic_fetch_add(&h->phases, 1);
}

/* Once a tick: time goes on only while the rank stays where it was. */
static void take_pulse(struct tern_heartbeat *h, int64_t gap_ns)
{
    struct tern_pulse *pulse = &h->pulse;
    uint64_t phases = atomic_load(&h->phases);
    uint64_t steps = atomic_load(&h->steps);
    const struct tern_comm_counters *counters = &h->options.comm->counters;
    pulse->phase_ns = phases == h->phase_serial ? pulse->phase_ns + gap_ns : 0;
    pulse->step_ns = steps == h->step_serial ? pulse->step_ns + gap_ns : 1;
    pulse->step_ns = atomic_load(&h->is_in_step) ? pulse->step_ns : 0;
    h->phase_serial = phases;
    h->step_serial = steps;
    pulse->phase = atomic_load(&h->phase);
    pulse->step = atomic_load(&h->step);
    pulse->exchanges = atomic_load(&counters->exchanges);
    pulse->bytes = atomic_load(&counters->bytes_sent) + atomic_load(&counters->bytes_received);
    pulse->has_left = atomic_load(&h->is_resting);
    struct tern_pulse_view *own = &h->views[h->options.comm->rank];
    own->pulse = *pulse;
    own->silent_ns = 0;
}

/* ---- messages ---- */

static void take_message(struct tern_heartbeat *h, const struct tern_line_message *m, int rank)
{
    struct tern_pulse_view *view = &h->views[rank];
    view->pulse = m->pulse;
    view->silent_ns = 0;
    if (m->has_verdict && rank == 0 && !h->has_verdict) {
        h->has_verdict = true;
        h->verdict.status = m->status == TERN_ERR_PEER_LOST ? TERN_ERR_PEER_LOST : TERN_ERR_TIMEOUT;
        snprintf(h->verdict.sentence, sizeof h->verdict.sentence, "%.*s",
                 TERN_PULSE_SENTENCE_BYTES - 1, m->text);
    }
}

static void receive(struct tern_heartbeat *h, int rank)
{
    struct tern_line *line = &h->lines[rank];
    while (tern_line_receive(line)) {
        take_message(h, &line->in, rank);
    }
}

static void accept_all(struct tern_heartbeat *h)
{
    int fd = 0;
    while (fd >= 0) {
        int32_t rank = -1;
        if (tern_socket_accept(h->listener, h->token, &rank, &fd) != TERN_OK) {
            return;
        }
        if (fd >= 0 && (rank <= 0 || rank >= h->options.comm->size || h->lines[rank].fd >= 0)) {
            close(fd);
        } else if (fd >= 0) {
            h->lines[rank].fd = fd;
            h->lines[rank].is_lost = false;
            h->views[rank].is_watched = true;
        }
    }
}

/* Waits for messages until the time and takes them. */
static void attend(struct tern_heartbeat *h, int64_t until_ns)
{
    int size = h->options.comm->size;
    int count = 0;
    int64_t left = until_ns - tern_socket_now_ns();
    struct timespec span = {0};
    h->polled[count++] = (struct pollfd){.fd = h->wake, .events = POLLIN};
    h->polled[count++] = (struct pollfd){.fd = h->listener, .events = POLLIN};
    for (int r = 0; r < size; r++) {
        h->polled[count++] = (struct pollfd){.fd = h->lines[r].fd, .events = POLLIN};
    }
    if (left > 0) {
        span = (struct timespec){.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    }
    if (ppoll(h->polled, (nfds_t)count, &span, NULL) <= 0) {
        return;
    }
    uint64_t ignored;
    if (h->polled[0].revents != 0 && read(h->wake, &ignored, sizeof ignored) < 0) {
        ignored = 0; /* somebody else's wake-up: nothing to do */
    }
    for (int r = 0; r < size; r++) {
        receive(h, r);
    }
    if (h->listener >= 0) {
        accept_all(h);
    }
}

/* ---- judging ---- */

static void age(struct tern_heartbeat *h, int64_t gap_ns)
{
    for (int r = 0; r < h->options.comm->size; r++) {
        struct tern_pulse_view *view = &h->views[r];
        if (r == h->options.comm->rank) {
            continue;
        }
        view->silent_ns += gap_ns;
        view->lost_ns = h->lines[r].is_lost ? (view->lost_ns < 0 ? 0 : view->lost_ns + gap_ns) : -1;
    }
}

static void warn_late(struct tern_heartbeat *h, int64_t gap_ns)
{
    char sentence[TERN_PULSE_SENTENCE_BYTES];
    h->warned_ns += gap_ns;
    if (h->warned_ns > (int64_t)WARN_SECONDS * 1000000000 &&
        tern_pulse_is_late(h->views, h->options.comm->size, atomic_load(&h->usual_ns), sentence)) {
        h->warned_ns = 0;
        tern_log_warn("%s", sentence);
    }
}

/* Rank 0 for all; the others, a little later, only of rank 0. */
static void judge(struct tern_heartbeat *h, int64_t gap_ns)
{
    const struct tern_comm *comm = h->options.comm;
    int64_t limit = h->options.limit_ns;
    bool is_head = comm->rank == 0;
    age(h, gap_ns);
    if (is_head) {
        warn_late(h, gap_ns);
    }
    h->has_verdict =
        h->has_verdict ||
        tern_pulse_judge(h->views, is_head ? comm->size : 1, is_head ? limit : limit + limit / 8,
                         is_head ? atomic_load(&h->usual_ns) : 0, &h->verdict);
}

static void beat(struct tern_heartbeat *h, int64_t gap_ns)
{
    take_pulse(h, gap_ns);
    struct tern_line_message message = {.pulse = h->pulse};
    for (int r = 0; r < h->options.comm->size; r++) {
        tern_line_post(&h->lines[r], &message);
    }
}

static void tick(struct tern_heartbeat *h, int64_t gap_ns)
{
    int fd = atomic_exchange(&h->new_line, -1);
    if (fd >= 0) {
        h->lines[0].fd = fd;
        h->views[0].is_watched = true;
    }
    beat(h, gap_ns);
    judge(h, gap_ns);
}

/* ---- the end ---- */

static bool has_lines(const struct tern_heartbeat *h)
{
    for (int r = 0; r < h->options.comm->size; r++) {
        if (h->lines[r].fd >= 0 && h->views[r].silent_ns < h->options.limit_ns / 2) {
            return true;
        }
    }
    return false;
}

/* The record first, then the others are told, and only then does anybody end: an end may make the launcher kill the rest. */
static void carry_out(struct tern_heartbeat *h)
{
    struct tern_line_message m = {
        .has_verdict = 1, .status = (int32_t)h->verdict.status, .pulse = h->pulse};
    snprintf(m.text, sizeof m.text, "%s", h->verdict.sentence);
    atomic_store(&h->is_over, true);
    h->options.farewell(h->options.context, h->verdict.sentence);
    for (int r = 0; h->options.comm->rank == 0 && r < h->options.comm->size; r++) {
        tern_line_post_surely(&h->lines[r], &m);
    }
    int64_t until = tern_socket_now_ns() + (int64_t)LEAVE_MS_MAX * 1000000;
    while (h->options.comm->rank == 0 && has_lines(h) && tern_socket_now_ns() < until) {
        attend(h, tern_socket_now_ns() + h->tick_ns);
    }
    tern_comm_abort(h->options.comm, TERN_EXIT_PEER_LOST);
}

static void *heartbeat_main(void *arg)
{
    struct tern_heartbeat *h = arg;
    int64_t before = tern_socket_now_ns();
    int64_t next = before;
    bool has_rested = false;
    while (!atomic_load(&h->is_closing) && !h->has_verdict) {
        attend(h, next);
        int64_t now = tern_socket_now_ns();
        bool rests = atomic_load(&h->is_resting);
        if (now >= next || rests != has_rested || atomic_load(&h->new_line) >= 0) {
            int64_t most = GAP_TICKS_MAX * h->tick_ns;
            tick(h, now - before < most ? now - before : most);
            has_rested = rests;
            before = now;
            next = now + h->tick_ns;
        }
    }
    if (h->has_verdict && !atomic_load(&h->is_closing)) {
        carry_out(h);
    } else if (!has_rested && atomic_load(&h->is_resting)) {
        beat(h, 0); /* the good end came at once */
    }
    return NULL;
}

/* ---- open and close ---- */

static void wake_up(struct tern_heartbeat *h)
{
    uint64_t one = 1;
    if (write(h->wake, &one, sizeof one) < 0) {
        tern_log_debug("heartbeat: %s", strerror(errno)); /* it looks at the next tick */
    }
}

static void heartbeat_free(struct tern_heartbeat *h)
{
    int fd = atomic_exchange(&h->new_line, -1);
    if (fd >= 0) {
        close(fd);
    }
    for (int r = 0; h->lines != NULL && r < h->options.comm->size; r++) {
        tern_line_lose(&h->lines[r]);
    }
    if (h->listener >= 0) {
        close(h->listener);
    }
    if (h->wake >= 0) {
        close(h->wake);
    }
    tern_free(h->hosts);
    tern_free(h->lines);
    tern_free(h->views);
    tern_free(h->polled);
    tern_free(h);
}

static tern_status heartbeat_new(const struct tern_heartbeat_options *options,
                                 struct tern_heartbeat **out)
{
    size_t size = (size_t)options->comm->size;
    struct tern_heartbeat *h = tern_alloc_zero("heartbeat", 1, sizeof *h);
    if (h == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "heartbeat: no memory");
    }
    int64_t tick = options->limit_ns / TICKS_PER_LIMIT;
    int64_t most = (int64_t)TICK_MS_MAX * 1000000;
    int64_t least = (int64_t)TICK_MS_MIN * 1000000;
    h->options = *options;
    h->tick_ns = tick > most ? most : tick < least ? least : tick;
    h->listener = -1;
    atomic_init(&h->new_line, -1);
    h->warned_ns = (int64_t)WARN_SECONDS * 1000000000;
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->hosts = tern_alloc_zero("heartbeat", size, sizeof *h->hosts);
    h->lines = tern_alloc_zero("heartbeat", size, sizeof *h->lines);
    h->views = tern_alloc_zero("heartbeat", size, sizeof *h->views);
    h->polled = tern_alloc_zero("heartbeat", size + 2, sizeof *h->polled);
    if (h->wake < 0 || h->hosts == NULL || h->lines == NULL || h->views == NULL ||
        h->polled == NULL) {
        heartbeat_free(h);
        return tern_fail(TERN_ERR_MEMORY, "heartbeat: no memory for %zu ranks", size);
    }
    for (size_t r = 0; r < size; r++) {
        h->lines[r].fd = -1;
        h->views[r].lost_ns = -1;
        h->views[r].host = h->hosts[r];
    }
    h->views[options->comm->rank].is_watched = true;
    *out = h;
    return TERN_OK;
}

/* Where rank 0 listens, as all learn it. */
struct invitation {
    int32_t is_there;
    struct tern_endpoint endpoint;
};

static void invite(struct tern_heartbeat *h, struct invitation *out)
{
    if (tern_socket_listen(0, &h->listener, &out->endpoint) != TERN_OK) {
        tern_log_warn("no heartbeat between the ranks: %s", tern_detail());
        h->listener = -1;
        return;
    }
    h->token = out->endpoint.token;
    out->is_there = 1;
}

static void join(struct tern_heartbeat *h, const struct invitation *invitation)
{
    int64_t limit = (int64_t)CONNECT_SECONDS_MAX * 1000000000;
    int fd;
    if (tern_socket_connect(&invitation->endpoint, h->options.comm->rank, limit, &fd) != TERN_OK) {
        tern_log_warn(
            "no heartbeat between this rank and rank 0 (host %s): %s; should it hang, only "
            "TERN_COMM_TIMEOUT ends the run",
            h->hosts[0], tern_detail());
        return;
    }
    atomic_store(&h->new_line, fd);
    wake_up(h);
}

static tern_status open_lines(struct tern_heartbeat *h, bool *has_thread_out)
{
    struct tern_comm *comm = h->options.comm;
    struct invitation invitation = {0};
    char host[TERN_PULSE_HOST_BYTES] = "";
    gethostname(host, sizeof host - 1);
    TERN_RETURN_IF_ERR(tern_comm_all_gather(comm, host, sizeof host, h->hosts));
    if (comm->rank == 0) {
        invite(h, &invitation);
    }
    TERN_RETURN_IF_ERR(tern_comm_broadcast(comm, &invitation, sizeof invitation, 0));
    if (!invitation.is_there) {
        return TERN_OK;
    }
    int error = tern_thread_start(&h->thread, heartbeat_main, h);
    if (error != 0) {
        tern_log_warn("this rank has no heartbeat: no thread: %s", strerror(error));
        return TERN_OK;
    }
    *has_thread_out = true;
    if (comm->rank != 0) {
        join(h, &invitation);
    }
    return TERN_OK;
}

tern_status tern_heartbeat_open(const struct tern_heartbeat_options *options,
                                struct tern_heartbeat **out)
{
    *out = NULL;
    if (options->comm->size == 1) {
        return TERN_OK;
    }
    struct tern_heartbeat *h = NULL;
    int64_t is_bad = heartbeat_new(options, &h) != TERN_OK;
    if (is_bad) {
        tern_log_warn("no heartbeat between the ranks: %s", tern_detail());
    }
    bool has_thread = false;
    tern_status status = tern_comm_all_reduce_max_i64(options->comm, &is_bad, 1);
    if (status == TERN_OK && !is_bad) {
        status = open_lines(h, &has_thread);
    }
    if (has_thread) {
        *out = h;
    } else if (h != NULL) {
        heartbeat_free(h);
    }
    return status;
}

const char *tern_heartbeat_host(const struct tern_heartbeat *h, int rank)
{
    return h != NULL ? h->hosts[rank] : "";
}

bool tern_heartbeat_is_over(const struct tern_heartbeat *h)
{
    return h != NULL && atomic_load(&h->is_over);
}

void tern_heartbeat_rest(struct tern_heartbeat *h)
{
    if (h != NULL) {
        atomic_store(&h->is_resting, true);
        wake_up(h);
    }
}

void tern_heartbeat_close(struct tern_heartbeat *h)
{
    if (h == NULL) {
        return;
    }
    atomic_store(&h->is_closing, true);
    wake_up(h);
    pthread_join(h->thread, NULL);
    heartbeat_free(h);
}
