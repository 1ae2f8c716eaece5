/* transport.h - what the progress engine needs of a backend: start messages between the ranks of the
 * world, and say when they are done. Everything else (jobs, tickets, time limits, groups, collectives)
 * is built on these few calls.
 *
 * It is also the seam of the MPI plugin, which links nothing of tern: what it needs comes by `host`. */
#ifndef TERN_COMM_TRANSPORT_H
#define TERN_COMM_TRANSPORT_H

#include "runtime/base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Counted up with any change of this file or of the numbers in status.h. */
enum {
    TERN_TRANSPORT_VERSION = 2
};

/* Services of the program for a plugin; `fail` records the sentence for the calling thread. */
struct tern_transport_host {
    void *(*alloc)(const char *tag, size_t bytes);
    void (*free)(void *block);
    tern_status (*fail)(tern_status status, const char *format, ...) TERN_PRINTF(2, 3);
};

/* One message; `peer` is a rank of the world, never the caller; bytes > 0. Between two ranks and within
 * one context, messages match in the order of posting, and both sides give the same size. */
struct tern_transport_message {
    int peer;
    bool is_send;
    void *data;
    size_t bytes;
};

struct tern_transport;

struct tern_transport_table {
    const char *name;
    bool
        leaves_together; /* stop waits for peers without a limit, so a clean one needs a barrier first */
    /* First call, on the world's progress thread; sets rank and size. */
    tern_status (*start)(struct tern_transport *);
    /* Last call of that thread. clean: all ranks are here and nothing is under way; else touch no peer. */
    void (*stop)(struct tern_transport *, bool clean);
    /* From any thread, at any time. May not return. */
    void (*abort)(struct tern_transport *, int exit_code);
    /* After stop, or instead of start: frees the transport. */
    void (*destroy)(struct tern_transport *);
    /* An operation holds the messages of one exchange at a time; only its owner's thread touches it. */
    tern_status (*op_open)(struct tern_transport *, void **op_out);
    void (*op_close)(struct tern_transport *, void *op);
    /* Posts the messages and returns; their memory stays in use until test says done. */
    tern_status (*begin)(struct tern_transport *,
                         void *op,
                         int context,
                         const struct tern_transport_message *messages,
                         int count);
    /* Never blocks. left_out: messages (or pieces of them) not done, 0 = all done. */
    tern_status (*test)(struct tern_transport *, void *op, int *left_out);
    /* After a failure: the caller's memory is not touched any more, as far as the backend can help it. */
    void (*cancel)(struct tern_transport *, void *op);
    /* Index of the first message that is not done, for the sentence of a time-out. */
    int (*first_left)(struct tern_transport *, void *op);
};

/* The world as one rank sees it. Backends embed it as their first member. */
struct tern_transport {
    const struct tern_transport_table *table;
    const struct tern_transport_host *host;
    int rank, size;
    int context_max;          /* largest usable context */
    _Atomic int context_next; /* contexts below it were given out (engine) */
    _Atomic int users;        /* communicators on it (engine) */
    /* Set once by whoever finds out that a peer is gone; then nobody makes progress any more (engine). */
    _Atomic int death; /* 0 alive, 1 being written, 2 dead: the two below can be read */
    tern_status death_status;
    char death_detail[TERN_DETAIL_BYTES];
};

/* The only symbol of libtern_mpi.so, by the name TERN_MPI_PLUGIN_SYMBOL. */
struct tern_mpi_plugin {
    uint32_t version;         /* TERN_TRANSPORT_VERSION */
    uint32_t transport_bytes; /* sizeof (struct tern_transport): a guard against a mixed build */
    /* Name and version of the MPI library, e.g. "Open MPI v4.1.4"; before MPI_Init. Static. */
    const char *(*library)(void);
    /* piece_bytes: longest single MPI message. */
    tern_status (*create)(const struct tern_transport_host *host,
                          size_t piece_bytes,
                          struct tern_transport **out);
};
#define TERN_MPI_PLUGIN_SYMBOL "tern_mpi_plugin"

#endif
