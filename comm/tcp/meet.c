/* meet.c - how ranks that only know where rank 0 is come to know each other.
 *
 * Every rank but 0 calls rank 0 and says where it listens itself; when all have called, rank 0 tells everyone where
 * everyone is; then each rank calls those below it.
 *
 * The file. One that an earlier launch left must not lead anybody astray. Rank 0 puts a fresh random token into it, and whoever
 * calls shows the token and gets it back, so an old file leads to nobody, or to a stranger who does not answer; the caller then
 * reads the file again, until the new one is there (rank 0 replaces it by rename). What is left is an earlier launch that is
 * still alive, waiting for ranks that will never come, and would take the new ones for its own: so the launch's number is in
 * the file too where the launcher gives one, and rank 0, before it lets anybody go on, looks whether the file is still its
 * own: if not it ends, and its callers go back to the file. In the end rank 0 removes it. */
#include "comm/tcp/tcp.h"
#include "runtime/base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FILE_MAGIC = 0x7465726e,
    POLL_MS = 20,
    CALL_MS_MAX = 2000 /* how long one try to reach rank 0 lasts before the file is read again */
};

/* The file, as bytes: all ranks are of one build. */
struct note {
    uint32_t magic;
    int32_t size; /* of the world */
    uint64_t launch;
    struct tern_endpoint endpoint;
};

/* What a caller tells rank 0. */
struct card {
    int32_t rank, size;
    uint64_t launch;
    struct tern_endpoint endpoint;
};

struct meeting {
    const struct tern_tcp_meeting *m;
    int64_t until_ns;
    int listener;
    struct tern_endpoint own;
    struct tern_endpoint *all; /* (size) */
    int *fds;                  /* (size) */
};

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

static bool is_late(const struct meeting *x)
{
    return tern_socket_now_ns() > x->until_ns;
}

/* Two launches on one address must not mix. */
static uint64_t launch_token(uint64_t launch)
{
    return (launch ^ 0x7465726e2d746370u) * 0x9e3779b97f4a7c15u;
}

/* ---- the file ---- */

static tern_status write_note(const struct meeting *x)
{
    const char *path = x->m->file;
    struct note note = {FILE_MAGIC, x->m->size, x->m->launch, x->own};
    char fresh[TERN_TCP_PATH_BYTES + 32];
    snprintf(fresh, sizeof fresh, "%s.%016llx", path, (unsigned long long)x->own.token);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "TERN_RENDEZVOUS: cannot write %s", fresh);
    }
    bool is_good = write(fd, &note, sizeof note) == (ssize_t)sizeof note;
    is_good = fsync(fd) == 0 && is_good;
    is_good = close(fd) == 0 && is_good;
    if (!is_good || rename(fresh, path) != 0) {
        int error = errno;
        unlink(fresh);
        return tern_fail_errno(TERN_ERR_IO, error, "TERN_RENDEZVOUS: cannot write %s", path);
    }
    return TERN_OK;
}

/* False while there is none, or none of this launch. */
static bool read_note(const struct meeting *x, struct note *note)
{
    int fd = open(x->m->file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool is_good = read(fd, note, sizeof *note) == (ssize_t)sizeof *note;
    close(fd);
    return is_good && note->magic == FILE_MAGIC && note->launch == x->m->launch &&
           note->size == x->m->size && note->endpoint.count >= 0 &&
           note->endpoint.count <= TERN_SOCKET_ADDRESSES_MAX;
}

static bool is_own_note(const struct meeting *x)
{
    struct note note;
    return read_note(x, &note) && note.endpoint.token == x->own.token;
}

/* ---- rank 0 ---- */

static tern_status check_card(const struct meeting *x, int rank, const struct card *card)
{
    int size = x->m->size;
    if (card->size != size) {
        return tern_fail(TERN_ERR_CONFIG,
                         "rank %d says that there are %d ranks, rank 0 was told %d", rank,
                         card->size, size);
    }
    if (rank < 1 || rank >= size || card->rank != rank) {
        return tern_fail(TERN_ERR_CONFIG, "a process says that it is rank %d, expected 1 to %d",
                         rank, size - 1);
    }
    if (x->fds[rank] >= 0) {
        return tern_fail(TERN_ERR_CONFIG, "two processes say that they are rank %d", rank);
    }
    return TERN_OK;
}

static tern_status take_call(struct meeting *x, int *count)
{
    int32_t rank = -1;
    int fd;
    struct card card;
    TERN_RETURN_IF_ERR(tern_socket_accept(x->listener, x->own.token, &rank, &fd));
    if (fd < 0) {
        pause_ms(POLL_MS / 10);
        return TERN_OK;
    }
    int64_t until = tern_socket_now_ns() + (int64_t)CALL_MS_MAX * 1000000;
    if (!tern_socket_move(fd, &card, sizeof card, false, until) || card.launch != x->m->launch) {
        close(fd);
        return TERN_OK; /* it will call again, or is of another launch */
    }
    tern_status status = check_card(x, rank, &card);
    if (status != TERN_OK) {
        close(fd);
        return status;
    }
    x->all[rank] = card.endpoint;
    x->fds[rank] = fd;
    (*count)++;
    return TERN_OK;
}

static tern_status fail_absent(const struct meeting *x)
{
    int first = -1;
    int count = 0;
    for (int r = 1; r < x->m->size; r++) {
        if (x->fds[r] < 0) {
            first = first < 0 ? r : first;
            count++;
        }
    }
    return tern_fail(TERN_ERR_TIMEOUT,
                     "%d of %d ranks, the first of them rank %d, have not called within %.1f s "
                     "(limit: TERN_COMM_TIMEOUT)",
                     count, x->m->size, first, (double)x->m->limit_ns * 1e-9);
}

/* A caller that went away meanwhile may be one who follows another launch's file: it has to call again. */
static bool is_gone(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static tern_status gather_calls(struct meeting *x)
{
    int count = 0;
    while (count < x->m->size - 1) {
        if (is_late(x)) {
            return fail_absent(x);
        }
        TERN_RETURN_IF_ERR(take_call(x, &count));
        for (int r = 1; r < x->m->size; r++) {
            if (x->fds[r] >= 0 && is_gone(x->fds[r])) {
                close(x->fds[r]);
                x->fds[r] = -1;
                count--;
            }
        }
    }
    return TERN_OK;
}

static tern_status lead(struct meeting *x)
{
    bool has_file = x->m->file[0] != '\0';
    if (has_file) {
        TERN_RETURN_IF_ERR(write_note(x));
    } else {
        x->own.token = launch_token(x->m->launch);
    }
    TERN_RETURN_IF_ERR(gather_calls(x));
    if (has_file) {
        if (!is_own_note(x)) {
            return tern_fail(TERN_ERR_BUSY,
                             "TERN_RENDEZVOUS: another launch has taken over %s: give each its own",
                             x->m->file);
        }
        unlink(x->m->file);
    }
    for (int r = 1; r < x->m->size; r++) {
        if (!tern_socket_move(x->fds[r], x->all, (size_t)x->m->size * sizeof *x->all, true,
                              x->until_ns)) {
            return tern_fail(TERN_ERR_PEER_LOST, "rank %d went away while the ranks met", r);
        }
    }
    return TERN_OK;
}

/* ---- the others ---- */

/* The numeric addresses of the name. */
static tern_status resolve(const struct meeting *x, struct tern_endpoint *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    *out = (struct tern_endpoint){.token = launch_token(x->m->launch), .port = x->m->port};
    int error = getaddrinfo(x->m->host, NULL, &hints, &found);
    if (error != 0) {
        return tern_fail(TERN_ERR_CONFIG, "the address of rank 0, '%s': %s", x->m->host,
                         gai_strerror(error));
    }
    for (struct addrinfo *i = found; i != NULL && out->count < TERN_SOCKET_ADDRESSES_MAX;
         i = i->ai_next) {
        out->count += getnameinfo(i->ai_addr, i->ai_addrlen, out->addresses[out->count],
                                  TERN_SOCKET_ADDRESS_BYTES, NULL, 0, NI_NUMERICHOST) == 0;
    }
    freeaddrinfo(found);
    return TERN_OK;
}

/* One try: calls rank 0, tells it about this rank, and waits for the list. -1: try again. */
static tern_status call_leader(struct meeting *x, const struct tern_endpoint *leader)
{
    int64_t now = tern_socket_now_ns();
    int64_t try_ns = (int64_t)CALL_MS_MAX * 1000000;
    try_ns = x->until_ns - now < try_ns ? x->until_ns - now : try_ns;
    TERN_RETURN_IF_ERR(tern_socket_connect(leader, x->m->rank, try_ns, &x->fds[0]));
    struct card card = {x->m->rank, x->m->size, x->m->launch, x->own};
    if (tern_socket_move(x->fds[0], &card, sizeof card, true, x->until_ns) &&
        tern_socket_move(x->fds[0], x->all, (size_t)x->m->size * sizeof *x->all, false,
                         x->until_ns)) {
        return TERN_OK;
    }
    close(x->fds[0]);
    x->fds[0] = -1;
    return tern_fail(TERN_ERR_PEER_LOST,
                     "rank 0 ended, or has heard of another rank %d, while the ranks met",
                     x->m->rank);
}

static tern_status follow(struct meeting *x)
{
    bool has_file = x->m->file[0] != '\0';
    struct tern_endpoint leader;
    tern_status status = TERN_ERR_TIMEOUT;
    if (!has_file) {
        TERN_RETURN_IF_ERR(resolve(x, &leader));
    }
    while (status != TERN_OK) {
        struct note note;
        bool is_known = !has_file || read_note(x, &note);
        if (is_known) {
            status = call_leader(x, has_file ? &note.endpoint : &leader);
        }
        if (status != TERN_OK && is_late(x)) {
            return is_known ? status
                            : tern_fail(TERN_ERR_TIMEOUT,
                                        "rank %d: no file %s of this launch within %.1f s (limit: "
                                        "TERN_COMM_TIMEOUT): do all ranks see the same folder?",
                                        x->m->rank, x->m->file, (double)x->m->limit_ns * 1e-9);
        }
        if (status != TERN_OK) {
            pause_ms(POLL_MS);
        }
    }
    return TERN_OK;
}

/* Calls the ranks below, then is called by those above. */
static tern_status connect_rest(struct meeting *x)
{
    int rank = x->m->rank;
    for (int r = 1; r < rank; r++) {
        int64_t left = x->until_ns - tern_socket_now_ns();
        tern_status status = tern_socket_connect(&x->all[r], rank, left > 0 ? left : 0, &x->fds[r]);
        if (status != TERN_OK) {
            return tern_fail_prefix(status, "rank %d cannot reach rank %d", rank, r);
        }
    }
    int missing = rank > 0 ? x->m->size - 1 - rank : 0;
    while (missing > 0) {
        int32_t peer = -1;
        int fd;
        TERN_RETURN_IF_ERR(tern_socket_accept(x->listener, x->own.token, &peer, &fd));
        if (fd >= 0 && peer > rank && peer < x->m->size && x->fds[peer] < 0) {
            x->fds[peer] = fd;
            missing--;
        } else if (fd >= 0) {
            close(fd);
        } else if (is_late(x)) {
            return tern_fail(TERN_ERR_TIMEOUT, "rank %d: %d ranks have not called within %.1f s",
                             rank, missing, (double)x->m->limit_ns * 1e-9);
        } else {
            pause_ms(1);
        }
    }
    return TERN_OK;
}

tern_status tern_tcp_meet(const struct tern_tcp_meeting *m, int *fds_out)
{
    struct meeting x = {.m = m, .listener = -1, .fds = fds_out};
    /* rank 0 knows who is missing: it speaks first */
    x.until_ns = tern_socket_now_ns() + m->limit_ns - (m->rank == 0 ? m->limit_ns / 4 : 0);
    for (int r = 0; r < m->size; r++) {
        fds_out[r] = -1;
    }
    x.all = tern_alloc_zero("comm tcp", (size_t)m->size, sizeof *x.all);
    if (x.all == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "tcp: no memory for the addresses of %d ranks", m->size);
    }
    bool is_known_port = m->rank == 0 && m->file[0] == '\0';
    tern_status status = tern_socket_listen(is_known_port ? m->port : 0, &x.listener, &x.own);
    if (status == TERN_OK) {
        status = m->rank == 0 ? lead(&x) : follow(&x);
    }
    if (status == TERN_OK) {
        status = connect_rest(&x);
    }
    if (x.listener >= 0) {
        close(x.listener);
    }
    for (int r = 0; status != TERN_OK && r < m->size; r++) {
        if (fds_out[r] >= 0) {
            close(fds_out[r]);
            fds_out[r] = -1;
        }
    }
    tern_free(x.all);
    return status;
}
