/* watch.c - the watchdog's thread and its messages. */
#include "comm/nccl/watch.h"

#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TICKS_PER_LIMIT = 64,
    TICK_MS_MAX = 500,
    TICK_MS_MIN = 2,
    /* A pause of this thread beyond this is not held against the others: this process itself was stopped. */
    GAP_TICKS_MAX = 4,
    SEND_MS_MAX = 500 /* for what must arrive: a verdict, a farewell */
};

enum message_type {
    MESSAGE_STATE = 1, /* to a hub: place, and a sentence if something failed */
    MESSAGE_ALIVE,     /* of a hub */
    MESSAGE_VERDICT,   /* of a hub */
    MESSAGE_DONE,      /* to a hub: the verdict was carried out */
    MESSAGE_BYE,       /* both ways: a good end */
};

struct message {
    int32_t type;
    int32_t status;
    struct tern_place place;
    char text[TERN_JUDGE_SENTENCE_BYTES];
};

struct connection {
    int fd; /* -1: none */
    struct message in;
    size_t in_used;
    struct message out; /* the one that did not go out whole */
    size_t out_left;
    bool has_left, is_done;
    bool is_lost;
    int64_t lost_ns, silent_ns;
};

struct tern_watch {
    struct tern_watch_options options;
    int64_t tick_ns;
    int hub_index;                            /* which hub this rank is; -1: none */
    struct connection lines[TERN_WATCH_HUBS]; /* to the hubs; none to oneself */
    /* The opener connects while the thread already answers the others, and hands the sockets over; -1: none (yet). */
    _Atomic int new_lines[TERN_WATCH_HUBS];
    struct connection *peers;               /* (size): a hub's, by rank */
    struct tern_view *views;                /* (size): a hub's */
    char (*errors)[TERN_JUDGE_ERROR_BYTES]; /* (size): a hub's */
    struct pollfd *polled;                  /* (size + 2 + TERN_WATCH_HUBS) */
    struct tern_place place;                /* of this rank */
    char error[TERN_JUDGE_ERROR_BYTES];
    bool has_verdict;
    struct tern_verdict verdict;
    int verdict_line;    /* the hub that it came from; -1: this rank's own */
    int64_t agreeing_ns; /* how long the second hub has known better than the first */

    pthread_t thread;
    int wake;                            /* eventfd */
    _Atomic bool is_closing, is_dropped; /* the good end; one without a word */
    pthread_mutex_t lock;                /* over what follows */
    pthread_cond_t news;
    bool has_ended;
};

static struct connection *no_connection(struct connection *c)
{
    memset(c, 0, sizeof *c);
    c->fd = -1;
    return c;
}

static void lose(struct connection *c)
{
    if (c->fd >= 0) {
        close(c->fd);
        c->fd = -1;
        c->is_lost = !c->has_left;
    }
}

/* ---- sending ---- */

/* What is left of the last message; false while it does not fit. */
static bool flush(struct connection *c)
{
    while (c->out_left > 0) {
        const char *at = (const char *)&c->out + sizeof c->out - c->out_left;
        ssize_t n = send(c->fd, at, c->out_left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            c->out_left -= (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else {
            /* a broken connection is found by reading, which first gives what arrived */
            return false;
        }
    }
    return true;
}

/* States are dropped when the last one is still on its way: the next says it all. */
static void send_message(struct connection *c, const struct message *message)
{
    if (c->fd >= 0 && flush(c)) {
        c->out = *message;
        c->out_left = sizeof c->out;
        flush(c);
    }
}

/* Waits for room, a while. */
static void send_surely(struct connection *c, const struct message *message)
{
    int64_t until = tern_socket_now_ns() + (int64_t)SEND_MS_MAX * 1000000;
    while (c->fd >= 0 && !flush(c) && tern_socket_now_ns() < until) {
        struct pollfd p = {.fd = c->fd, .events = POLLOUT};
        if (poll(&p, 1, 10) < 0 || (p.revents & (POLLERR | POLLHUP)) != 0) {
            break;
        }
    }
    send_message(c, message);
    while (c->fd >= 0 && !flush(c) && tern_socket_now_ns() < until) {
        struct pollfd p = {.fd = c->fd, .events = POLLOUT};
        if (poll(&p, 1, 10) < 0 || (p.revents & (POLLERR | POLLHUP)) != 0) {
            break;
        }
    }
}

static void send_to_peers(struct tern_watch *w, const struct message *message, bool surely)
{
    for (int r = 0; w->hub_index >= 0 && r < w->options.size; r++) {
        (surely ? send_surely : send_message)(&w->peers[r], message);
    }
}

/* ---- receiving ---- */

static void take_verdict(struct tern_watch *w, const struct message *m, int line)
{
    if (!w->has_verdict) {
        w->has_verdict = true;
        w->verdict_line = line;
        w->verdict.status = (tern_status)m->status;
        snprintf(w->verdict.sentence, sizeof w->verdict.sentence, "%s", m->text);
    }
}

/* A message of a hub (line >= 0) or, to a hub, of a rank. */
static void take_message(struct tern_watch *w, struct connection *c, int line, int rank)
{
    struct message *m = &c->in;
    m->text[sizeof m->text - 1] = '\0';
    c->silent_ns = 0;
    if (m->type == MESSAGE_BYE) {
        c->has_left = true;
    } else if (m->type == MESSAGE_DONE) {
        c->is_done = true;
    } else if (m->type == MESSAGE_VERDICT && line >= 0) {
        take_verdict(w, m, line);
    } else if (m->type == MESSAGE_STATE && rank >= 0) {
        struct tern_view *view = &w->views[rank];
        view->place = m->place;
        if (m->text[0] != '\0' && view->error_ns < 0) {
            view->error_ns = 0;
            snprintf(w->errors[rank], sizeof w->errors[rank], "%.*s", TERN_JUDGE_ERROR_BYTES - 1,
                     m->text);
        }
    }
}

static void receive(struct tern_watch *w, struct connection *c, int line, int rank)
{
    while (c->fd >= 0) {
        ssize_t n =
            recv(c->fd, (char *)&c->in + c->in_used, sizeof c->in - c->in_used, MSG_DONTWAIT);
        if (n > 0) {
            c->in_used += (size_t)n;
            if (c->in_used == sizeof c->in) {
                c->in_used = 0;
                take_message(w, c, line, rank);
            }
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else {
            lose(c);
        }
    }
}

static void accept_all(struct tern_watch *w)
{
    const struct tern_endpoint *own = &w->options.hubs[w->hub_index];
    int fd = 0;
    while (fd >= 0) {
        int32_t rank = -1;
        if (tern_socket_accept(w->options.listener, own->token, &rank, &fd) != TERN_OK) {
            return;
        }
        if (fd >= 0 && (rank < 0 || rank >= w->options.size || w->peers[rank].fd >= 0)) {
            close(fd);
        } else if (fd >= 0) {
            no_connection(&w->peers[rank])->fd = fd;
        }
    }
}

static int add_polled(struct tern_watch *w, int count, int fd)
{
    w->polled[count] = (struct pollfd){.fd = fd, .events = POLLIN}; /* fd < 0: skipped by poll */
    return count + 1;
}

/* Waits for messages until the time and takes them. */
static void attend(struct tern_watch *w, int64_t until_ns)
{
    int count = add_polled(w, 0, w->wake);
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        count = add_polled(w, count, w->lines[i].fd);
    }
    if (w->hub_index >= 0) {
        count = add_polled(w, count, w->options.listener);
        for (int r = 0; r < w->options.size; r++) {
            count = add_polled(w, count, w->peers[r].fd);
        }
    }
    int64_t left = until_ns - tern_socket_now_ns();
    struct timespec span = {0};
    if (left > 0) {
        span = (struct timespec){.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    }
    if (ppoll(w->polled, (nfds_t)count, &span, NULL) <= 0) {
        return;
    }
    uint64_t ignored;
    if (w->polled[0].revents != 0 && read(w->wake, &ignored, sizeof ignored) < 0) {
        ignored = 0; /* somebody else's wake-up: nothing to do */
    }
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        receive(w, &w->lines[i], i, -1);
    }
    if (w->hub_index >= 0) {
        accept_all(w);
        for (int r = 0; r < w->options.size; r++) {
            receive(w, &w->peers[r], -1, r);
        }
    }
}

/* ---- judging ---- */

static void age(struct connection *c, int64_t gap_ns)
{
    c->silent_ns += gap_ns;
    c->lost_ns += c->is_lost ? gap_ns : 0;
}

static void update_views(struct tern_watch *w, int64_t gap_ns)
{
    for (int r = 0; r < w->options.size; r++) {
        struct tern_view *view = &w->views[r];
        struct connection *c = &w->peers[r];
        view->error_ns += view->error_ns >= 0 ? gap_ns : 0;
        if (r == w->options.rank) {
            view->place = w->place;
            if (w->error[0] != '\0' && view->error_ns < 0) {
                view->error_ns = 0;
                memcpy(w->errors[r], w->error, sizeof w->errors[r]);
            }
            continue;
        }
        age(c, gap_ns);
        view->silent_ns = c->silent_ns;
        view->lost_ns = c->is_lost ? c->lost_ns : -1;
        view->has_left = c->has_left;
    }
}

/* The second hub leaves it to the first, unless that is the one in question, or says nothing for too long. */
static bool is_my_turn(struct tern_watch *w, int64_t gap_ns)
{
    const struct tern_view *first = &w->views[w->options.hub_ranks[0]];
    w->agreeing_ns += gap_ns;
    return w->hub_index == 0 || first->lost_ns >= 0 || first->has_left ||
           first->silent_ns > w->options.limit_ns / 3 ||
           w->agreeing_ns > w->options.limit_ns / 32 + 2 * w->tick_ns;
}

static void judge_as_hub(struct tern_watch *w, int64_t gap_ns)
{
    struct tern_verdict verdict;
    update_views(w, gap_ns);
    if (w->has_verdict || !tern_judge(w->views, w->options.size, w->options.limit_ns, &verdict) ||
        !is_my_turn(w, gap_ns)) {
        return;
    }
    w->has_verdict = true;
    w->verdict = verdict;
    w->verdict_line = -1;
    struct message m = {.type = MESSAGE_VERDICT, .status = (int32_t)verdict.status};
    snprintf(m.text, sizeof m.text, "%s", verdict.sentence);
    send_to_peers(w, &m, true);
}

/* No hub is left that could judge. */
static void judge_alone(struct tern_watch *w)
{
    int64_t limit = w->options.limit_ns;
    char text[128] = "";
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        const struct connection *c = &w->lines[i];
        bool is_bad = c->is_lost ? c->lost_ns > 2 * tern_judge_settle_ns(limit)
                                 : !c->has_left && c->silent_ns > limit - limit / 16;
        if (!is_bad || w->has_verdict) {
            return;
        }
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s rank %d %s", i > 0 ? " and" : "",
                 w->options.hub_ranks[i], c->is_lost ? "is gone" : "is stopped or cut off");
    }
    w->has_verdict = true;
    w->verdict_line = -1;
    w->verdict.status = w->lines[0].is_lost ? TERN_ERR_PEER_LOST : TERN_ERR_TIMEOUT;
    snprintf(w->verdict.sentence, sizeof w->verdict.sentence,
             "%s (hosts %s and %s): nobody is left who knows where the others are; rank %d is in "
             "operation %llu, %llu bytes (limit %.1f s: TERN_COMM_TIMEOUT)",
             text + 1, w->options.hosts[w->options.hub_ranks[0]],
             w->options.hosts[w->options.hub_ranks[1]], w->options.rank,
             (unsigned long long)w->place.entered, (unsigned long long)w->place.bytes,
             (double)limit * 1e-9);
}

/* Once a tick: say where this rank is, and see what is to be made of the others. */
static void tick(struct tern_watch *w, int64_t gap_ns)
{
    struct tern_place before = w->place;
    w->options.look(w->options.owner, &w->place, w->error);
    bool is_same = w->place.kind != TERN_COLLECTIVE_NONE && before.kind == w->place.kind &&
                   before.serial == w->place.serial;
    w->place.waited_ns = is_same ? before.waited_ns + gap_ns : 0;
    struct message state = {.type = MESSAGE_STATE, .place = w->place};
    snprintf(state.text, sizeof state.text, "%s", w->error);
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        send_message(&w->lines[i], &state);
        age(&w->lines[i], w->lines[i].fd >= 0 || w->lines[i].is_lost ? gap_ns : 0);
    }
    if (w->hub_index >= 0) {
        struct message alive = {.type = MESSAGE_ALIVE};
        send_to_peers(w, &alive, false);
        judge_as_hub(w, gap_ns);
    } else {
        judge_alone(w);
    }
}

/* ---- the end ---- */

/* Whether everyone who can has carried out the verdict; for the others, whether the hub is gone. */
static bool is_carried_out(const struct tern_watch *w)
{
    if (w->verdict_line >= 0) {
        return w->lines[w->verdict_line].fd < 0;
    }
    for (int r = 0; w->hub_index >= 0 && r < w->options.size; r++) {
        const struct connection *c = &w->peers[r];
        bool is_heard = c->fd >= 0 && c->silent_ns <= w->options.limit_ns / 3;
        if (is_heard && !c->is_done && !c->has_left) {
            return false;
        }
    }
    return true;
}

/* All stop first and only then does anybody end: an end may make the launcher kill the rest, in the middle of their
 * words. */
static void carry_out(struct tern_watch *w)
{
    w->options.stop(w->options.owner, &w->verdict);
    struct message done = {.type = MESSAGE_DONE};
    if (w->verdict_line >= 0) {
        send_surely(&w->lines[w->verdict_line], &done);
    }
    int64_t until = tern_socket_now_ns() + tern_judge_settle_ns(w->options.limit_ns);
    while (!is_carried_out(w) && tern_socket_now_ns() < until) {
        attend(w, tern_socket_now_ns() + w->tick_ns);
    }
    w->options.leave(w->options.owner);
}

static bool all_have_left(const struct tern_watch *w)
{
    for (int r = 0; w->hub_index >= 0 && r < w->options.size; r++) {
        if (r != w->options.rank && !w->peers[r].has_left) {
            return false;
        }
    }
    return true;
}

static void say_bye(struct tern_watch *w)
{
    struct message bye = {.type = MESSAGE_BYE};
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        send_surely(&w->lines[i], &bye);
    }
}

static void take_lines(struct tern_watch *w)
{
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        int fd = atomic_exchange(&w->new_lines[i], -1);
        if (fd >= 0) {
            no_connection(&w->lines[i])->fd = fd;
        }
    }
}

static void run(struct tern_watch *w)
{
    int64_t before = tern_socket_now_ns();
    int64_t next = before;
    int64_t leave_at = INT64_MAX;
    while (!w->has_verdict && !atomic_load(&w->is_dropped)) {
        take_lines(w);
        attend(w, next);
        int64_t now = tern_socket_now_ns();
        if (leave_at == INT64_MAX && atomic_load(&w->is_closing)) {
            say_bye(w);
            leave_at = now + w->options.limit_ns;
        }
        if (leave_at != INT64_MAX && (all_have_left(w) || now > leave_at)) {
            struct message bye = {.type = MESSAGE_BYE};
            send_to_peers(w, &bye, true);
            return;
        }
        if (now >= next) {
            int64_t most = GAP_TICKS_MAX * w->tick_ns;
            tick(w, now - before < most ? now - before : most);
            before = now;
            next = now + w->tick_ns;
        }
    }
    if (w->has_verdict) {
        carry_out(w);
    }
}

static void *watch_main(void *arg)
{
    struct tern_watch *w = arg;
    run(w);
    pthread_mutex_lock(&w->lock);
    w->has_ended = true;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- open and close ---- */

static void watch_free(struct tern_watch *w)
{
    take_lines(w);
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        lose(&w->lines[i]);
    }
    for (int r = 0; w->peers != NULL && r < w->options.size; r++) {
        lose(&w->peers[r]);
    }
    if (w->options.listener >= 0) {
        close(w->options.listener);
    }
    if (w->wake >= 0) {
        close(w->wake);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->news);
    tern_free(w->peers);
    tern_free(w->views);
    tern_free(w->errors);
    tern_free(w->polled);
    tern_free(w);
}

static tern_status take_memory(struct tern_watch *w)
{
    size_t size = (size_t)w->options.size;
    w->polled = tern_alloc_zero("watch", size + 2 + TERN_WATCH_HUBS, sizeof *w->polled);
    bool is_good = w->polled != NULL;
    if (w->hub_index >= 0) {
        w->peers = tern_alloc_zero("watch", size, sizeof *w->peers);
        w->views = tern_alloc_zero("watch", size, sizeof *w->views);
        w->errors = tern_alloc_zero("watch", size, sizeof *w->errors);
        is_good = is_good && w->peers != NULL && w->views != NULL && w->errors != NULL;
    }
    if (!is_good) {
        return tern_fail(TERN_ERR_MEMORY, "watchdog: no memory for %zu ranks", size);
    }
    for (int r = 0; w->hub_index >= 0 && r < w->options.size; r++) {
        no_connection(&w->peers[r]);
        w->views[r] = (struct tern_view){.lost_ns = -1,
                                         .error_ns = -1,
                                         .host = w->options.hosts[r],
                                         .error = w->errors[r],
                                         .place.peer = -1};
    }
    return TERN_OK;
}

static tern_status start(struct tern_watch *w)
{
    int error = tern_thread_start(&w->thread, watch_main, w);
    return error == 0 ? TERN_OK : tern_fail_errno(TERN_ERR_MEMORY, error, "watchdog: no thread");
}

static void wake_up(struct tern_watch *w)
{
    uint64_t one = 1;
    if (write(w->wake, &one, sizeof one) < 0) {
        tern_log_debug("watchdog: %s", strerror(errno)); /* it looks at the next tick */
    }
}

static tern_status connect_lines(struct tern_watch *w)
{
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        if (w->options.hub_ranks[i] == w->options.rank) {
            continue;
        }
        int fd;
        tern_status status =
            tern_socket_connect(&w->options.hubs[i], w->options.rank, w->options.limit_ns, &fd);
        if (status != TERN_OK) {
            return tern_fail_prefix(status, "watchdog of rank %d: cannot reach rank %d (host %s)",
                                    w->options.rank, w->options.hub_ranks[i],
                                    w->options.hosts[w->options.hub_ranks[i]]);
        }
        atomic_store(&w->new_lines[i], fd);
    }
    wake_up(w);
    return TERN_OK;
}

static struct tern_watch *watch_new(const struct tern_watch_options *options)
{
    struct tern_watch *w = tern_alloc_zero("watch", 1, sizeof *w);
    if (w == NULL) {
        return NULL;
    }
    w->options = *options;
    int64_t most = (int64_t)TICK_MS_MAX * 1000000;
    int64_t least = (int64_t)TICK_MS_MIN * 1000000;
    w->tick_ns = options->limit_ns / TICKS_PER_LIMIT;
    w->tick_ns = w->tick_ns > most ? most : w->tick_ns;
    w->tick_ns = w->tick_ns < least ? least : w->tick_ns;
    w->hub_index = -1;
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        w->hub_index = options->hub_ranks[i] == options->rank ? i : w->hub_index;
        no_connection(&w->lines[i]);
        atomic_init(&w->new_lines[i], -1);
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->news, &attr);
    pthread_condattr_destroy(&attr);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return w;
}

tern_status tern_watch_open(const struct tern_watch_options *options, struct tern_watch **out)
{
    *out = NULL;
    TERN_CHECK(options->size >= 2 && options->hub_ranks[0] != options->hub_ranks[1]);
    struct tern_watch *w = watch_new(options);
    if (w == NULL) {
        if (options->listener >= 0) {
            close(options->listener);
        }
        return tern_fail(TERN_ERR_MEMORY, "watchdog: no memory for %zu bytes", sizeof *w);
    }
    tern_status status;
    if (w->wake < 0) {
        status = tern_fail_errno(TERN_ERR_IO, errno, "watchdog: eventfd");
        goto fail;
    }
    TERN_GOTO_IF_ERR(status, take_memory(w), fail);
    TERN_GOTO_IF_ERR(status, start(w), fail);
    TERN_GOTO_IF_ERR(status, connect_lines(w), drop);
    *out = w;
    return TERN_OK;
drop:
    atomic_store(&w->is_dropped, true);
    wake_up(w);
    pthread_join(w->thread, NULL);
fail:
    watch_free(w);
    return status;
}

void tern_watch_close(struct tern_watch *w, bool is_good)
{
    if (w == NULL) {
        return;
    }
    atomic_store(is_good ? &w->is_closing : &w->is_dropped, true);
    wake_up(w);
    pthread_join(w->thread, NULL);
    watch_free(w);
}

void tern_watch_wait_end(struct tern_watch *w, int64_t limit_ns)
{
    int64_t at = tern_socket_now_ns() + limit_ns;
    struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
    int error = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->has_ended && error != ETIMEDOUT) {
        error = pthread_cond_timedwait(&w->news, &w->lock, &until);
    }
    pthread_mutex_unlock(&w->lock);
}
