/* tcp.c - messages over one socket a pair of ranks.
 *
 * A short message goes at once and, if nobody waits for it yet, is kept at the receiver. A long one is announced (ASK); the
 * receiver, when it has a place for it, lets it come (GRANT), and it goes straight there (DATA). So nothing long is ever
 * buffered, and messages of one context never hold up those of another on the same socket.
 * Everything is under one lock: the progress threads of several communicators share the sockets. */
#include "comm/tcp/tcp.h"

#include "comm/engine.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    EAGER_BYTES = 1024,
    ARRIVALS_PER_RANK = 16, /* kept messages that need no new memory */
};

enum frame_type {
    FRAME_EAGER = 1,
    FRAME_ASK,
    FRAME_GRANT,
    FRAME_DATA
};

struct frame {
    uint32_t type;
    int32_t context;
    uint64_t bytes;  /* of the message */
    uint64_t number; /* the sender's, of a long message */
};

/* A frame on its way out, and what follows it. */
struct outgoing {
    struct frame frame;
    const char *payload;
    size_t payload_bytes;
    size_t sent; /* of both */
    struct item *item;
    struct outgoing *next;
};

enum item_state {
    ITEM_POSTED,  /* receive: nothing came yet */
    ITEM_GRANTED, /* receive: its data are to come */
    ITEM_QUEUED,  /* send: short, or the data of a long one, in the queue */
    ITEM_ASKED,   /* send: announced */
    ITEM_DONE
};

/* One message of an operation. */
struct item {
    struct tern_transport_message m;
    int context;
    enum item_state state;
    uint64_t number;
    struct outgoing out;
    struct item *next; /* in the list of its peer that its state says */
};

struct op {
    struct item *items; /* (capacity) */
    int count, capacity;
};

/* A message, or the announcement of one, that came before its receive was posted. */
struct arrival {
    struct frame frame;
    struct arrival *next;
    char data[EAGER_BYTES];
};

struct peer {
    int fd; /* -1: oneself, or gone */
    bool is_gone;
    struct outgoing *first_out, **last_out;
    struct item *posted, **last_posted; /* receives, in order */
    struct item *granted;
    struct item *asked;
    struct arrival *arrivals, **last_arrival;
    uint64_t numbers; /* given to long messages to this peer */
    /* what is being read */
    struct frame in;
    size_t in_used; /* of the frame; whole: its payload comes */
    char *target;   /* where the payload goes */
    size_t target_left;
    struct item *receiver;    /* done when it is there; NULL: an arrival */
    struct arrival *arriving; /* joins the list when it is there */
};

struct tcp {
    struct tern_transport base; /* first */
    struct tern_tcp_meeting meeting;
    pthread_mutex_t lock;
    struct peer *peers;    /* (size) */
    struct pollfd *polled; /* (size) */
    struct arrival *spare; /* not in use */
};

static struct tcp *tcp_of(struct tern_transport *t)
{
    return (struct tcp *)t;
}

/* ---- lists ---- */

static void append_out(struct peer *p, struct outgoing *out)
{
    out->next = NULL;
    *p->last_out = out;
    p->last_out = &out->next;
}

static void append_item(struct item ***last, struct item *item)
{
    item->next = NULL;
    **last = item;
    *last = &item->next;
}

/* Takes the item out of the list, if it is there. */
static bool remove_item(struct item **list, const struct item *item)
{
    for (struct item **at = list; *at != NULL; at = &(*at)->next) {
        if (*at == item) {
            *at = item->next;
            return true;
        }
    }
    return false;
}

static void mend_posted(struct peer *p)
{
    p->last_posted = &p->posted;
    while (*p->last_posted != NULL) {
        p->last_posted = &(*p->last_posted)->next;
    }
}

static struct item *find_number(struct item *list, uint64_t number)
{
    while (list != NULL && list->number != number) {
        list = list->next;
    }
    return list;
}

static struct arrival *take_spare(struct tcp *tcp)
{
    struct arrival *a = tcp->spare;
    if (a == NULL) {
        return tern_alloc("comm tcp", sizeof *a);
    }
    tcp->spare = a->next;
    return a;
}

static void give_spare(struct tcp *tcp, struct arrival *a)
{
    a->next = tcp->spare;
    tcp->spare = a;
}

/* ---- matching ---- */

static tern_status fail_step(const struct tcp *tcp,
                             const struct item *item,
                             int peer,
                             uint64_t bytes)
{
    return tern_fail(TERN_ERR_STATE,
                     "rank %d expects %zu bytes from rank %d and gets %llu: out of step",
                     tcp->base.rank, item->m.bytes, peer, (unsigned long long)bytes);
}

static void send_frame(struct peer *p,
                       struct item *item,
                       enum frame_type type,
                       const void *payload,
                       size_t payload_bytes)
{
    item->out = (struct outgoing){
        .frame = {type, item->context, item->m.bytes, item->number},
        .payload = payload,
        .payload_bytes = payload_bytes,
        .item = item,
    };
    append_out(p, &item->out);
}

static void grant(struct peer *p, struct item *item, uint64_t number)
{
    item->state = ITEM_GRANTED;
    item->number = number;
    item->next = p->granted;
    p->granted = item;
    send_frame(p, item, FRAME_GRANT, NULL, 0);
}

/* A receive is posted: perhaps its message is here. */
static tern_status post_receive(struct tcp *tcp, struct item *item)
{
    struct peer *p = &tcp->peers[item->m.peer];
    struct arrival **at = &p->arrivals;
    while (*at != NULL && (*at)->frame.context != item->context) {
        at = &(*at)->next;
    }
    struct arrival *a = *at;
    if (a == NULL) {
        item->state = ITEM_POSTED;
        append_item(&p->last_posted, item);
        return TERN_OK;
    }
    *at = a->next;
    if (p->last_arrival == &a->next) {
        p->last_arrival = at;
    }
    tern_status status = TERN_OK;
    if (a->frame.bytes != item->m.bytes) {
        item->state = ITEM_DONE;
        status = fail_step(tcp, item, item->m.peer, a->frame.bytes);
    } else if (a->frame.type == FRAME_EAGER) {
        memcpy(item->m.data, a->data, item->m.bytes);
        item->state = ITEM_DONE;
    } else {
        grant(p, item, a->frame.number);
    }
    give_spare(tcp, a);
    return status;
}

static void post_send(struct tcp *tcp, struct item *item)
{
    struct peer *p = &tcp->peers[item->m.peer];
    if (item->m.bytes <= EAGER_BYTES) {
        item->state = ITEM_QUEUED;
        send_frame(p, item, FRAME_EAGER, item->m.data, item->m.bytes);
        return;
    }
    item->number = ++p->numbers;
    item->state = ITEM_ASKED;
    item->next = p->asked;
    p->asked = item;
    send_frame(p, item, FRAME_ASK, NULL, 0);
}

/* ---- reading ---- */

static void lose(struct peer *p)
{
    close(p->fd);
    p->fd = -1;
    p->is_gone = true;
}

static tern_status fail_garbled(const struct tcp *tcp, int peer, const struct frame *f)
{
    return tern_fail(TERN_ERR_STATE,
                     "rank %d: rank %d sends what is no message (type %u, %llu bytes)",
                     tcp->base.rank, peer, f->type, (unsigned long long)f->bytes);
}

/* A message or its announcement: to whoever waits for it, else kept. */
static tern_status begin_message(struct tcp *tcp, int rank)
{
    struct peer *p = &tcp->peers[rank];
    struct item **at = &p->posted;
    while (*at != NULL && (*at)->context != p->in.context) {
        at = &(*at)->next;
    }
    struct item *item = *at;
    bool is_eager = p->in.type == FRAME_EAGER;
    if (is_eager && p->in.bytes > EAGER_BYTES) {
        return fail_garbled(tcp, rank, &p->in);
    }
    if (item != NULL) {
        if (p->in.bytes != item->m.bytes) {
            return fail_step(tcp, item, rank, p->in.bytes);
        }
        *at = item->next;
        mend_posted(p);
        if (is_eager) {
            item->state = ITEM_GRANTED;
            p->receiver = item;
            p->target = item->m.data;
            p->target_left = item->m.bytes;
        } else {
            grant(p, item, p->in.number);
        }
        return TERN_OK;
    }
    struct arrival *a = take_spare(tcp);
    if (a == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "tcp: no memory for a message of rank %d", rank);
    }
    a->frame = p->in;
    a->next = NULL;
    p->arriving = a;
    p->target = a->data;
    p->target_left = is_eager ? p->in.bytes : 0;
    return TERN_OK;
}

/* The frame is whole: where its payload goes, if it has one. */
static tern_status begin_frame(struct tcp *tcp, int rank)
{
    struct peer *p = &tcp->peers[rank];
    p->receiver = NULL;
    p->arriving = NULL;
    p->target_left = 0;
    struct item *item;
    switch (p->in.type) {
    case FRAME_EAGER:
    case FRAME_ASK:
        return begin_message(tcp, rank);
    case FRAME_GRANT:
        item = find_number(p->asked, p->in.number);
        if (item != NULL) { /* else it was cancelled: the group is dead */
            remove_item(&p->asked, item);
            item->state = ITEM_QUEUED;
            send_frame(p, item, FRAME_DATA, item->m.data, item->m.bytes);
        }
        return TERN_OK;
    case FRAME_DATA:
        item = find_number(p->granted, p->in.number);
        if (item == NULL || item->m.bytes != p->in.bytes) {
            return fail_garbled(tcp, rank, &p->in);
        }
        remove_item(&p->granted, item);
        p->receiver = item;
        p->target = item->m.data;
        p->target_left = item->m.bytes;
        return TERN_OK;
    default:
        return fail_garbled(tcp, rank, &p->in);
    }
}

static void end_frame(struct peer *p)
{
    if (p->receiver != NULL) {
        p->receiver->state = ITEM_DONE;
    }
    if (p->arriving != NULL) {
        *p->last_arrival = p->arriving;
        p->last_arrival = &p->arriving->next;
    }
    p->receiver = NULL;
    p->arriving = NULL;
    p->in_used = 0;
}

/* All that is there. */
static tern_status read_peer(struct tcp *tcp, int rank)
{
    struct peer *p = &tcp->peers[rank];
    while (p->fd >= 0) {
        bool is_head = p->in_used < sizeof p->in;
        char *at = is_head ? (char *)&p->in + p->in_used : p->target;
        size_t wanted = is_head ? sizeof p->in - p->in_used : p->target_left;
        ssize_t n = recv(p->fd, at, wanted, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return TERN_OK;
        }
        if (n <= 0) {
            lose(p);
            return TERN_OK;
        }
        if (is_head) {
            p->in_used += (size_t)n;
            if (p->in_used < sizeof p->in) {
                continue;
            }
            TERN_RETURN_IF_ERR(begin_frame(tcp, rank));
        } else {
            p->target += n;
            p->target_left -= (size_t)n;
        }
        if (p->target_left == 0) {
            end_frame(p);
        }
    }
    return TERN_OK;
}

/* ---- writing ---- */

static void end_out(struct peer *p)
{
    struct outgoing *out = p->first_out;
    p->first_out = out->next;
    if (p->first_out == NULL) {
        p->last_out = &p->first_out;
    }
    if (out->frame.type == FRAME_EAGER || out->frame.type == FRAME_DATA) {
        out->item->state = ITEM_DONE;
    }
}

static void write_peer(struct peer *p)
{
    while (p->fd >= 0 && p->first_out != NULL) {
        struct outgoing *out = p->first_out;
        size_t head = sizeof out->frame;
        size_t head_left = out->sent < head ? head - out->sent : 0;
        size_t body_done = out->sent > head ? out->sent - head : 0;
        struct iovec parts[2] = {
            {(char *)&out->frame + (head - head_left), head_left},
            {(char *)(uintptr_t)out->payload + body_done, out->payload_bytes - body_done},
        };
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        ssize_t n = sendmsg(p->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0) {
            lose(p);
            return;
        }
        out->sent += (size_t)n;
        if (out->sent == head + out->payload_bytes) {
            end_out(p);
        }
    }
}

static tern_status progress(struct tcp *tcp)
{
    int size = tcp->base.size;
    for (int r = 0; r < size; r++) {
        struct peer *p = &tcp->peers[r];
        write_peer(p);
        tcp->polled[r] = (struct pollfd){.fd = p->fd, .events = POLLIN};
    }
    int ready = poll(tcp->polled, (nfds_t)size, 0);
    for (int r = 0; r < size && ready > 0; r++) {
        if (tcp->polled[r].revents != 0) {
            TERN_RETURN_IF_ERR(read_peer(tcp, r));
            write_peer(&tcp->peers[r]); /* grants, and what was granted */
        }
    }
    return TERN_OK;
}

/* ---- the table ---- */

static tern_status take_memory(struct tcp *tcp)
{
    size_t size = (size_t)tcp->meeting.size;
    tcp->peers = tern_alloc_zero("comm tcp", size, sizeof *tcp->peers);
    tcp->polled = tern_alloc_zero("comm tcp", size, sizeof *tcp->polled);
    bool is_good = tcp->peers != NULL && tcp->polled != NULL;
    for (size_t i = 0; i < size * ARRIVALS_PER_RANK && is_good; i++) {
        struct arrival *a = tern_alloc("comm tcp", sizeof *a);
        is_good = a != NULL;
        if (is_good) {
            give_spare(tcp, a);
        }
    }
    for (size_t r = 0; r < size && is_good; r++) {
        struct peer *p = &tcp->peers[r];
        p->fd = -1;
        p->last_out = &p->first_out;
        p->last_posted = &p->posted;
        p->last_arrival = &p->arrivals;
    }
    return is_good
               ? TERN_OK
               : tern_fail(TERN_ERR_MEMORY, "tcp: no memory for the messages of %zu ranks", size);
}

static tern_status tcp_start(struct tern_transport *t)
{
    struct tcp *tcp = tcp_of(t);
    t->rank = tcp->meeting.rank;
    t->size = tcp->meeting.size;
    TERN_RETURN_IF_ERR(take_memory(tcp));
    int *fds = tern_alloc("comm tcp", (size_t)t->size * sizeof *fds);
    if (fds == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "tcp: no memory for %d ranks", t->size);
    }
    tern_status status = tern_tcp_meet(&tcp->meeting, fds);
    for (int r = 0; r < t->size && status == TERN_OK; r++) {
        tcp->peers[r].fd = fds[r];
    }
    tern_free(fds);
    return status;
}

static void tcp_stop(struct tern_transport *t, bool clean)
{
    (void)clean;
    struct tcp *tcp = tcp_of(t);
    for (int r = 0; r < t->size; r++) {
        if (tcp->peers[r].fd >= 0) {
            close(tcp->peers[r].fd);
            tcp->peers[r].fd = -1;
        }
    }
}

/* There is no launcher to tell: the peers see the sockets close. */
static void tcp_abort(struct tern_transport *t, int exit_code)
{
    (void)t;
    _exit(exit_code);
}

static void free_arrivals(struct arrival *a)
{
    while (a != NULL) {
        struct arrival *next = a->next;
        tern_free(a);
        a = next;
    }
}

static void tcp_destroy(struct tern_transport *t)
{
    struct tcp *tcp = tcp_of(t);
    for (int r = 0; tcp->peers != NULL && r < t->size; r++) {
        free_arrivals(tcp->peers[r].arrivals);
        free_arrivals(tcp->peers[r].arriving);
    }
    free_arrivals(tcp->spare);
    tern_free(tcp->peers);
    tern_free(tcp->polled);
    pthread_mutex_destroy(&tcp->lock);
    tern_free(tcp);
}

static tern_status tcp_op_open(struct tern_transport *t, void **op_out)
{
    (void)t;
    struct op *op = tern_alloc_zero("comm tcp op", 1, sizeof *op);
    *op_out = op;
    return op != NULL ? TERN_OK
                      : tern_fail(TERN_ERR_MEMORY, "tcp: no memory for %zu bytes", sizeof *op);
}

static void tcp_op_close(struct tern_transport *t, void *arg)
{
    (void)t;
    struct op *op = arg;
    tern_free(op->items);
    tern_free(op);
}

/* Nothing of the operation is under way: its memory may move. */
static tern_status reserve(struct op *op, int count)
{
    if (count <= op->capacity) {
        return TERN_OK;
    }
    int capacity = count < 64 ? 64 : count;
    struct item *items = tern_alloc("comm tcp op", (size_t)capacity * sizeof *items);
    if (items == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "tcp: no memory for %d messages", count);
    }
    tern_free(op->items);
    op->items = items;
    op->capacity = capacity;
    return TERN_OK;
}

static tern_status tcp_begin(struct tern_transport *t,
                             void *arg,
                             int context,
                             const struct tern_transport_message *messages,
                             int count)
{
    struct tcp *tcp = tcp_of(t);
    struct op *op = arg;
    TERN_RETURN_IF_ERR(reserve(op, count));
    op->count = count;
    tern_status status = TERN_OK;
    pthread_mutex_lock(&tcp->lock);
    for (int i = 0; i < count; i++) {
        op->items[i] = (struct item){.m = messages[i], .context = context, .state = ITEM_DONE};
    }
    /* receives first: what is here already goes straight where it belongs */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count && status == TERN_OK; i++) {
            struct item *item = &op->items[i];
            if (item->m.is_send == (pass == 1)) {
                if (item->m.is_send) {
                    post_send(tcp, item);
                } else {
                    status = post_receive(tcp, item);
                }
            }
        }
    }
    if (status == TERN_OK) {
        status = progress(tcp);
    }
    pthread_mutex_unlock(&tcp->lock);
    return status;
}

static tern_status tcp_test(struct tern_transport *t, void *arg, int *left_out)
{
    struct tcp *tcp = tcp_of(t);
    const struct op *op = arg;
    pthread_mutex_lock(&tcp->lock);
    tern_status status = progress(tcp);
    int left = 0;
    for (int i = 0; i < op->count && status == TERN_OK; i++) {
        const struct item *item = &op->items[i];
        bool is_done = item->state == ITEM_DONE;
        left += !is_done;
        if (!is_done && tcp->peers[item->m.peer].is_gone) {
            status = tern_fail(TERN_ERR_PEER_LOST, "rank %d is gone: the connection broke",
                               item->m.peer);
        }
    }
    pthread_mutex_unlock(&tcp->lock);
    *left_out = left;
    return status;
}

/* A message that is half on its way cannot be taken back, only its connection given up. */
static void cancel_item(struct tcp *tcp, struct item *item)
{
    struct peer *p = &tcp->peers[item->m.peer];
    remove_item(&p->posted, item);
    mend_posted(p);
    remove_item(&p->asked, item);
    /* its data are on their way */
    bool is_half = remove_item(&p->granted, item) || p->receiver == item;
    p->receiver = is_half ? NULL : p->receiver;
    for (struct outgoing **at = &p->first_out; *at != NULL;) {
        if (*at == &item->out) {
            is_half = is_half || item->out.sent > 0;
            *at = item->out.next;
        } else {
            at = &(*at)->next;
        }
    }
    p->last_out = &p->first_out;
    while (*p->last_out != NULL) {
        p->last_out = &(*p->last_out)->next;
    }
    if (is_half && p->fd >= 0) {
        lose(p);
    }
}

static void tcp_cancel(struct tern_transport *t, void *arg)
{
    struct tcp *tcp = tcp_of(t);
    struct op *op = arg;
    pthread_mutex_lock(&tcp->lock);
    for (int i = 0; i < op->count; i++) {
        if (op->items[i].state != ITEM_DONE) {
            cancel_item(tcp, &op->items[i]);
        }
    }
    op->count = 0;
    pthread_mutex_unlock(&tcp->lock);
}

static int tcp_first_left(struct tern_transport *t, void *arg)
{
    struct tcp *tcp = tcp_of(t);
    const struct op *op = arg;
    pthread_mutex_lock(&tcp->lock);
    int i = 0;
    while (i < op->count - 1 && op->items[i].state == ITEM_DONE) {
        i++;
    }
    pthread_mutex_unlock(&tcp->lock);
    return i;
}

static const struct tern_transport_table g_tcp = {
    .name = "tcp",
    .leaves_together = true, /* who closes with something unread takes back what it sent last */
    .start = tcp_start,
    .stop = tcp_stop,
    .abort = tcp_abort,
    .destroy = tcp_destroy,
    .op_open = tcp_op_open,
    .op_close = tcp_op_close,
    .begin = tcp_begin,
    .test = tcp_test,
    .cancel = tcp_cancel,
    .first_left = tcp_first_left,
};

tern_status tern_tcp_create(const struct tern_tcp_meeting *meeting, struct tern_transport **out)
{
    *out = NULL;
    if (meeting->size < 1 || meeting->rank < 0 || meeting->rank >= meeting->size) {
        return tern_fail(TERN_ERR_CONFIG, "rank %d of %d ranks, expected 0 to %d", meeting->rank,
                         meeting->size, meeting->size - 1);
    }
    struct tcp *tcp = tern_alloc_zero("comm tcp", 1, sizeof *tcp);
    if (tcp == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "tcp: no memory for %zu bytes", sizeof *tcp);
    }
    tern_transport_init(&tcp->base, &g_tcp);
    tcp->meeting = *meeting;
    pthread_mutex_init(&tcp->lock, NULL);
    *out = &tcp->base;
    return TERN_OK;
}
