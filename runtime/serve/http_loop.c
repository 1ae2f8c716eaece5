/* http_loop.c - the server: sockets, the epoll loop, the list of replies with news, stopping. */
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/serve/http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    EVENTS_MAX = 256,
    ACCEPTS_MAX = 64, /* a turn of the loop */
    TICK_MS = 250,    /* deadlines are looked at so often */
    OTHER_FILES = 64, /* descriptors that are not connections */
};

static const int64_t ms_ns = 1000000;

const char *tern_http_date(void)
{
    static _Thread_local time_t made = -1;
    static _Thread_local char text[32];
    time_t now = time(NULL);
    if (now != made) {
        struct tm utc;
        gmtime_r(&now, &utc);
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
        made = now;
    }
    return text;
}

static void wake(struct tern_http *http)
{
    uint64_t one = 1;
    ssize_t written = write(http->wake_fd, &one, sizeof one);
    (void)written; /* full means that it is awake */
}

void tern_http_ready(struct tern_http *http, struct tern_http_reply *reply)
{
    pthread_mutex_lock(&http->ready_lock);
    reply->next = NULL;
    bool was_empty = http->ready_first == NULL;
    if (was_empty) {
        http->ready_first = reply;
    } else {
        http->ready_last->next = reply;
    }
    http->ready_last = reply;
    pthread_mutex_unlock(&http->ready_lock);
    if (was_empty) {
        wake(http);
    }
}

/* ---- setting up ---- */

static void fill_defaults(struct tern_http_options *options)
{
    options->host = options->host != NULL ? options->host : "127.0.0.1";
#define DEFAULT(field, value) options->field = options->field > 0 ? options->field : (value)
    DEFAULT(workers, 2);
    DEFAULT(connections_max, 3000);
    DEFAULT(headers_max, 100);
    DEFAULT(request_line_max, 8 << 10);
    DEFAULT(head_bytes_max, 16 << 10);
    DEFAULT(body_bytes_max, 4 << 20);
    DEFAULT(bodies_bytes_max, 256 << 20);
    DEFAULT(backlog_bytes_max, 256 << 10);
    DEFAULT(head_seconds, 10);
    DEFAULT(body_seconds, 20);
    DEFAULT(idle_seconds, 30);
    DEFAULT(write_seconds, 20);
    DEFAULT(ping_seconds, 15);
#undef DEFAULT
}

/* Options that accepted connections inherit. A peer that vanished without a FIN is noticed within 30 s. */
static void set_options(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {SOL_SOCKET, SO_REUSEADDR, 1},          {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},          {IPPROTO_TCP, TCP_KEEPIDLE, 15},
        {IPPROTO_TCP, TCP_KEEPINTVL, 5},        {IPPROTO_TCP, TCP_KEEPCNT, 3},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, 30000},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
    }
}

static int port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        return 0;
    }
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* One address; the port of those before it, if any was to be chosen. */
static tern_status listen_on(struct tern_http *http, struct addrinfo *info)
{
    const char *host = http->options.host;
    int one = 1;
    if (info->ai_family == AF_INET6) {
        ((struct sockaddr_in6 *)info->ai_addr)->sin6_port = htons((uint16_t)http->port);
    } else {
        ((struct sockaddr_in *)info->ai_addr)->sin_port = htons((uint16_t)http->port);
    }
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot make a socket for %s", host);
    }
    set_options(fd);
    if (info->ai_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    }
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        int error = errno;
        close(fd);
        return tern_fail_errno(TERN_ERR_IO, error, "cannot listen on %s port %d", host, http->port);
    }
    http->port = port_of(fd);
    http->listeners[http->listener_count++] = fd;
    return TERN_OK;
}

/* All addresses of the host; those that this machine lacks (a name's ::1 without IPv6) are passed over if one works. */
static tern_status listen_all(struct tern_http *http)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *infos;
    int error = getaddrinfo(http->options.host, NULL, &hints, &infos);
    if (error != 0) {
        return tern_fail(TERN_ERR_USAGE, "cannot find an address of host '%s': %s",
                         http->options.host, gai_strerror(error));
    }
    tern_status status = TERN_OK;
    for (struct addrinfo *info = infos; info != NULL; info = info->ai_next) {
        if (http->listener_count < TERN_HTTP_LISTENERS_MAX &&
            (info->ai_family == AF_INET || info->ai_family == AF_INET6)) {
            tern_status this_one = listen_on(http, info);
            status = this_one != TERN_OK ? this_one : status;
        }
    }
    freeaddrinfo(infos);
    return http->listener_count > 0 ? TERN_OK : status;
}

static tern_status watch(struct tern_http *http, int fd, void *mark)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = mark};
    return epoll_ctl(http->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0
               ? TERN_OK
               : tern_fail_errno(TERN_ERR_IO, errno, "cannot watch a socket");
}

/* Every connection is a descriptor: raises the process's own limit as far as it may, and says when that is too little. */
static void raise_limit(const struct tern_http *http)
{
    struct rlimit limit;
    rlim_t wanted = (rlim_t)http->options.connections_max + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted) {
        tern_log_warn("%d connections are allowed, but the limit of open files (ulimit -n) is %llu",
                      http->options.connections_max, (unsigned long long)limit.rlim_cur);
    }
}

static tern_status set_up(struct tern_http *http)
{
    const struct tern_http_options *options = &http->options;
    if ((options->cert_file == NULL) != (options->key_file == NULL)) {
        return tern_fail(TERN_ERR_USAGE, "TLS needs both a certificate file and a key file");
    }
    if (options->cert_file != NULL) {
        TERN_RETURN_IF_ERR(
            tern_http_tls_context_create(options->cert_file, options->key_file, &http->tls));
    }
    http->scratch = tern_alloc("http scratch", TERN_HTTP_SCRATCH_BYTES);
    if (http->scratch == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for an HTTP server");
    }
    if (getrandom(&http->id_seed, sizeof http->id_seed, 0) != sizeof http->id_seed) {
        return tern_fail_errno(TERN_ERR_IO, errno, "no random numbers");
    }
    http->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    http->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    http->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (http->epoll_fd < 0 || http->wake_fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot make an event loop");
    }
    raise_limit(http);
    TERN_RETURN_IF_ERR(listen_all(http));
    TERN_RETURN_IF_ERR(watch(http, http->wake_fd, &http->wake_fd));
    return tern_http_work_create(options->workers, &http->work);
}

tern_status tern_http_create(const struct tern_http_options *options, struct tern_http **out)
{
    struct tern_http *http = tern_alloc_zero("http server", 1, sizeof *http);
    *out = NULL;
    if (http == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for an HTTP server");
    }
    http->options = *options;
    fill_defaults(&http->options);
    http->head_limits = (struct tern_http_head_limits){.line_max = http->options.request_line_max,
                                                       .bytes_max = http->options.head_bytes_max,
                                                       .headers_max = http->options.headers_max};
    http->port = options->port;
    http->epoll_fd = http->wake_fd = http->spare_fd = -1;
    atomic_store(&http->stop_ns, INT64_MAX);
    pthread_mutex_init(&http->ready_lock, NULL);
    tern_status status = set_up(http);
    if (status != TERN_OK) {
        tern_http_destroy(http);
        return status;
    }
    *out = http;
    return TERN_OK;
}

static void close_listeners(struct tern_http *http)
{
    for (int i = 0; i < http->listener_count; i++) {
        close(http->listeners[i]);
    }
    http->listener_count = 0;
}

/* Frees the connections that died in this turn: no event can name them any more. */
static void bury(struct tern_http *http)
{
    while (http->dead != NULL) {
        struct tern_http_conn *conn = http->dead;
        http->dead = conn->next_dead;
        tern_free(conn);
    }
}

static void kill_all(struct tern_http *http)
{
    while (http->conns != NULL) {
        tern_http_conn_kill(http->conns);
    }
    bury(http);
}

/* The replies that have something new. */
static void serve_ready(struct tern_http *http)
{
    pthread_mutex_lock(&http->ready_lock);
    struct tern_http_reply *reply = http->ready_first;
    http->ready_first = http->ready_last = NULL;
    pthread_mutex_unlock(&http->ready_lock);
    while (reply != NULL) {
        struct tern_http_reply *next = reply->next;
        pthread_mutex_lock(&reply->lock);
        reply->is_ready = false; /* from here on it may come again, by `next` too */
        pthread_mutex_unlock(&reply->lock);
        if (reply->conn != NULL) {
            tern_http_conn_pump(reply->conn);
        }
        tern_http_reply_server_release(reply);
        reply = next;
    }
}

void tern_http_destroy(struct tern_http *http)
{
    if (http == NULL) {
        return;
    }
    kill_all(http);
    tern_http_work_destroy(http->work);
    serve_ready(http);
    close_listeners(http);
    int fds[] = {http->epoll_fd, http->wake_fd, http->spare_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    tern_http_tls_context_destroy(http->tls);
    tern_free(http->scratch);
    pthread_mutex_destroy(&http->ready_lock);
    tern_free(http);
}

int tern_http_port(const struct tern_http *http)
{
    return http->port;
}

/* ---- accepting ---- */

/* One too many: says so in one packet (a TLS client only sees the end) and closes. */
static void turn_away(struct tern_http *http, int fd)
{
    static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
                                 "Retry-After: 1\r\nConnection: close\r\n\r\n";
    if (http->tls == NULL) {
        (void)!send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
    }
    shutdown(fd, SHUT_WR);
    close(fd);
    atomic_fetch_add(&http->connections_refused, 1);
}

/* Out of descriptors: gives the spare one up to take a connection and turn it away; else it would stay in the backlog
 * and the loop would spin. False: not even that. */
static bool use_spare(struct tern_http *http, int listener)
{
    if (http->spare_fd < 0) {
        return false;
    }
    close(http->spare_fd);
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        turn_away(http, fd);
    }
    http->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return fd >= 0;
}

static void set_accepting(struct tern_http *http, bool is_accepting)
{
    for (int i = 0; i < http->listener_count && http->is_accepting != is_accepting; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &http->listeners[i]};
        (void)epoll_ctl(http->epoll_fd, is_accepting ? EPOLL_CTL_ADD : EPOLL_CTL_DEL,
                        http->listeners[i], &event);
    }
    http->is_accepting = is_accepting;
}

static void accept_some(struct tern_http *http, int listener)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && use_spare(http, listener)) {
            continue;
        }
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            set_accepting(http, false); /* until the next tick */
        }
        if (fd < 0) {
            return;
        }
        if (atomic_load(&http->connections) >= http->options.connections_max) {
            turn_away(http, fd);
        } else {
            tern_http_conn_open(http, fd);
        }
    }
}

/* ---- the loop ---- */

static void tick(struct tern_http *http)
{
    int64_t now = tern_clock_ns();
    for (struct tern_http_conn *conn = http->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        tern_http_conn_tick(conn, now);
    }
    set_accepting(http, !http->is_stopping);
}

static void begin_stopping(struct tern_http *http)
{
    http->is_stopping = true;
    close_listeners(http);
    for (struct tern_http_conn *conn = http->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        tern_http_conn_retire(conn);
    }
}

static int *listener_of(struct tern_http *http, void *mark)
{
    for (int i = 0; i < http->listener_count; i++) {
        if (mark == &http->listeners[i]) {
            return &http->listeners[i];
        }
    }
    return NULL;
}

static void serve_event(struct tern_http *http, const struct epoll_event *event)
{
    int *listener = listener_of(http, event->data.ptr);
    if (event->data.ptr == &http->wake_fd) {
        uint64_t count;
        (void)!read(http->wake_fd, &count, sizeof count);
    } else if (listener != NULL) {
        accept_some(http, *listener);
    } else {
        struct tern_http_conn *conn = event->data.ptr;
        if (!conn->is_dead) {
            tern_http_conn_event(conn, event->events);
        }
    }
}

/* Until stopped and empty, or cut. */
static tern_status loop(struct tern_http *http)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t tick_ns = 0;
    for (;;) {
        int64_t stop_ns = atomic_load(&http->stop_ns);
        if (stop_ns != INT64_MAX && !http->is_stopping) {
            begin_stopping(http);
            bury(http);
        }
        if (http->is_stopping && (http->conns == NULL || tern_clock_ns() >= stop_ns)) {
            return TERN_OK;
        }
        bool is_quiet = http->conns == NULL && http->is_accepting && !http->is_stopping;
        int count = epoll_wait(http->epoll_fd, events, EVENTS_MAX, is_quiet ? -1 : TICK_MS);
        if (count < 0 && errno != EINTR) {
            return tern_fail_errno(TERN_ERR_IO, errno, "the HTTP server cannot wait for events");
        }
        for (int i = 0; i < count; i++) {
            serve_event(http, &events[i]);
        }
        serve_ready(http);
        int64_t now = tern_clock_ns();
        if (now - tick_ns >= TICK_MS * ms_ns) {
            tick_ns = now;
            tick(http);
        }
        bury(http);
    }
}

tern_status tern_http_run(struct tern_http *http)
{
    /* OpenSSL writes without MSG_NOSIGNAL: a client that left must not end the process. */
    sigset_t pipe_only, before;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    set_accepting(http, true);
    tern_status status = loop(http);
    kill_all(http);
    if (sigismember(&before, SIGPIPE) == 0) {
        static const struct timespec at_once = {0};
        while (sigtimedwait(&pipe_only, NULL, &at_once) == SIGPIPE) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

void tern_http_stop(struct tern_http *http, double seconds)
{
    int saved = errno; /* of whom a signal handler interrupts */
    long long wanted = tern_clock_ns() + (int64_t)(seconds * 1e9);
    long long current = atomic_load(&http->stop_ns);
    while (wanted < current && !atomic_compare_exchange_weak(&http->stop_ns, &current, wanted)) {
    }
    wake(http);
    errno = saved;
}

void tern_http_stats(const struct tern_http *http, struct tern_http_stats *out)
{
    *out = (struct tern_http_stats){
        .connections = atomic_load(&http->connections),
        .connections_total = atomic_load(&http->connections_total),
        .connections_refused = atomic_load(&http->connections_refused),
        .requests_total = atomic_load(&http->requests_total),
        .errors_total = atomic_load(&http->errors_total),
        .gone_total = atomic_load(&http->gone_total),
        .body_bytes = atomic_load(&http->body_bytes),
    };
}
