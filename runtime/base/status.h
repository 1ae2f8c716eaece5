/* status.h - what a call can answer, how much is lost with it, and the sentence that explains it.
 *
 * A function that can fail returns `tern_status`. The first function that decides that something is wrong
 * calls tern_fail(), which stores a sentence for this thread; the ones above forward the code in silence,
 * or put a place in front of the sentence with tern_fail_prefix(). main() prints the sentence. */
#ifndef TERN_RUNTIME_BASE_STATUS_H
#define TERN_RUNTIME_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#define TERN_MUST_CHECK        __attribute__((warn_unused_result))
#define TERN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

typedef enum tern_status {
    TERN_OK = 0,
    /* CALL: this call failed, everything else is as it was. */
    TERN_ERR_USAGE,       /* command line: unknown option, missing value */
    TERN_ERR_CONFIG,      /* configuration file or combination */
    TERN_ERR_INPUT,       /* an input file or request is malformed */
    TERN_ERR_ARGUMENT,    /* a value out of range from inside the program */
    TERN_ERR_NOT_FOUND,   /* no such file, tensor, name */
    TERN_ERR_UNSUPPORTED, /* valid, but this build or machine cannot do it */
    TERN_ERR_MEMORY,      /* host memory exhausted or over budget */
    TERN_ERR_IO,          /* the operating system refused I/O */
    TERN_ERR_NO_SPACE,    /* disk or quota full */
    TERN_ERR_CORRUPT,     /* stored data fails its checksum or its format */
    TERN_ERR_BUSY,        /* somebody else holds it */
    TERN_ERR_CANCELLED,   /* asked to stop */
    TERN_ERR_AGAIN,       /* not ready yet: poll again */
    /* DEVICE: the device context is lost. */
    TERN_ERR_DEVICE,
    /* GROUP: the communicator is lost; the process can still commit what it holds. */
    TERN_ERR_PEER_LOST,
    TERN_ERR_TIMEOUT,
    /* JOB: the state must not be trusted or saved. */
    TERN_ERR_NONFINITE,
    TERN_ERR_STATE,
    TERN_STATUS_COUNT
} tern_status;

enum tern_blast {
    TERN_BLAST_NONE,
    TERN_BLAST_CALL,
    TERN_BLAST_DEVICE,
    TERN_BLAST_GROUP,
    TERN_BLAST_JOB,
};

/* Room for the sentence; a configuration reports all its problems in one, a line each. */
enum {
    TERN_DETAIL_BYTES = 8192
};

/* Process exit codes: an interface (see README). */
enum tern_exit {
    TERN_EXIT_OK = 0,
    TERN_EXIT_FAILED = 1,
    TERN_EXIT_USAGE = 2,
    TERN_EXIT_RECLAIMED = 33,
    TERN_EXIT_PEER_LOST = 34,
};

/* Name of a status, e.g. "corrupt". Static storage. */
const char *tern_status_name(tern_status status);
enum tern_blast tern_status_blast(tern_status status);
/* The exit code a command ends with when this status reaches main(). */
int tern_status_exit_code(tern_status status);

/* Records the sentence for this thread and returns `status`. */
tern_status tern_fail(tern_status status, const char *format, ...) TERN_PRINTF(2, 3);
/* As tern_fail with ": strerror(error)" appended; ENOSPC and EDQUOT become TERN_ERR_NO_SPACE, ENOENT
 * TERN_ERR_NOT_FOUND, otherwise `status`. */
tern_status tern_fail_errno(tern_status status, int error, const char *format, ...)
    TERN_PRINTF(3, 4);
/* Puts "prefix: " in front of the recorded sentence; returns `status` unchanged. */
tern_status tern_fail_prefix(tern_status status, const char *format, ...) TERN_PRINTF(2, 3);
/* The sentence of this thread's last failure; "" if none. Valid until the next failure on this thread. */
const char *tern_detail(void);
/* Moves a failure from one thread to another: the worker copies tern_detail(), the waiter sets it again. */
void tern_detail_set(const char *sentence);

#define TERN_RETURN_IF_ERR(expr) \
    do { \
        tern_status tern_status_ = (expr); \
        if (tern_status_ != TERN_OK) { \
            return tern_status_; \
        } \
    } while (0)

#define TERN_GOTO_IF_ERR(status, expr, label) \
    do { \
        (status) = (expr); \
        if ((status) != TERN_OK) { \
            goto label; \
        } \
    } while (0)

#endif
