/* tfevents.c - Event messages by hand, framed as TFRecords, appended from a fixed buffer. */
#include "runtime/observe/tfevents.h"

#include "io/file.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 64 << 10,
    RECORD_BYTES_MAX = 4 << 10, /* an event of TERN_TFEVENTS_SCALARS_MAX scalars is shorter */
    FRAME_BYTES = 16,           /* length, its checksum, the data's checksum */
    HOST_BYTES = 64,
    SESSION_START = 1
};
static const double FLUSH_SECONDS = 1;

struct tern_tfevents {
    char prefix[TERN_PATH_BYTES]; /* RUN/events.out.tfevents.TIME.HOST.PID */
    int file;                     /* which one of the launch */
    int64_t step;                 /* of the newest event */
    bool is_lost;                 /* the last append failed */
    double flushed;               /* clock */
    size_t used;
    unsigned char buffer[BUFFER_BYTES];
};

/* ---- CRC-32C, reflected, a nibble at a time ---- */

uint32_t tern_crc32c(const void *data, size_t bytes)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const unsigned char *at = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < bytes; i++) {
        crc = table[(crc ^ at[i]) & 15] ^ crc >> 4;
        crc = table[(crc ^ (uint32_t)at[i] >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
}

uint32_t tern_crc32c_masked(const void *data, size_t bytes)
{
    uint32_t crc = tern_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- protocol buffers, as little of them as this needs ---- */

struct writer {
    unsigned char *at;
};

static void put_bytes(struct writer *w, const void *data, size_t bytes)
{
    memcpy(w->at, data, bytes);
    w->at += bytes;
}

static void put_varint(struct writer *w, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        *w->at++ = (unsigned char)(value | 128);
    }
    *w->at++ = (unsigned char)value;
}

enum wire {
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5
};

static void put_key(struct writer *w, unsigned field, enum wire wire)
{
    put_varint(w, field << 3 | (unsigned)wire);
}

static void put_field(struct writer *w, unsigned field, const void *data, size_t bytes)
{
    put_key(w, field, WIRE_BYTES);
    put_varint(w, bytes);
    put_bytes(w, data, bytes);
}

/* Little-endian, whatever the machine. */
static void put_fixed(struct writer *w, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        *w->at++ = (unsigned char)(value >> 8 * i);
    }
}

/* wall_time and step of an Event. */
static void put_head(struct writer *w, int64_t step)
{
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &seconds, sizeof bits);
    put_key(w, 1, WIRE_64);
    put_fixed(w, bits, 8);
    put_key(w, 2, WIRE_VARINT);
    put_varint(w, (uint64_t)step);
}

/* ---- records ---- */

static void flush(struct tern_tfevents *e);

/* The whole message as one record. */
static void add_record(struct tern_tfevents *e, const unsigned char *message, size_t bytes)
{
    if (e->used + bytes + FRAME_BYTES > sizeof e->buffer) {
        flush(e);
    }
    struct writer w = {e->buffer + e->used};
    unsigned char *length = w.at;
    put_fixed(&w, bytes, 8);
    put_fixed(&w, tern_crc32c_masked(length, 8), 4);
    put_bytes(&w, message, bytes);
    put_fixed(&w, tern_crc32c_masked(message, bytes), 4);
    e->used = (size_t)(w.at - e->buffer);
}

/* What every file begins with. */
static void begin_file(struct tern_tfevents *e)
{
    static const char version[] = "brain.Event:2";
    static const unsigned char session[] = {1 << 3 | WIRE_VARINT, SESSION_START};
    unsigned char message[RECORD_BYTES_MAX];
    struct writer w = {message};
    e->used = 0;
    put_head(&w, 0);
    put_field(&w, 3, version, sizeof version - 1);
    add_record(e, message, (size_t)(w.at - message));
    w.at = message;
    put_head(&w, e->step + 1); /* the first that may be there already, from an earlier launch */
    put_field(&w, 7, session, sizeof session);
    add_record(e, message, (size_t)(w.at - message));
}

/* A record that went out in part makes the rest of its file unreadable: the next ones go to another. */
static void flush(struct tern_tfevents *e)
{
    char path[TERN_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s.%d", e->prefix, e->file);
    e->flushed = tern_clock_seconds();
    bool is_good =
        tern_file_append_whole(path, e->buffer, e->used, TERN_FAULT_OBSERVE_APPEND) == TERN_OK;
    if (is_good) {
        e->used = 0;
    } else {
        if (!e->is_lost) {
            tern_log_warn("%s: TensorBoard's events are lost until it can be written again",
                          tern_detail());
        }
        e->file++;
        begin_file(e);
    }
    e->is_lost = !is_good;
}

void tern_tfevents_add(struct tern_tfevents *e,
                       int64_t step,
                       const struct tern_tfevents_scalar *scalars,
                       int count)
{
    unsigned char message[RECORD_BYTES_MAX];
    unsigned char summary[RECORD_BYTES_MAX / 2];
    if (e == NULL) {
        return;
    }
    TERN_CHECK(count <= TERN_TFEVENTS_SCALARS_MAX);
    struct writer w = {summary};
    for (int i = 0; i < count; i++) {
        size_t length = strlen(scalars[i].tag);
        TERN_CHECK(length <= TERN_TFEVENTS_TAG_BYTES_MAX);
        float value = (float)scalars[i].value;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        put_key(&w, 1, WIRE_BYTES);
        put_varint(&w, 2 + length + 5); /* tags and floats: lengths are one byte */
        put_field(&w, 1, scalars[i].tag, length);
        put_key(&w, 2, WIRE_32);
        put_fixed(&w, bits, 4);
    }
    struct writer whole = {message};
    put_head(&whole, step);
    put_field(&whole, 5, summary, (size_t)(w.at - summary));
    add_record(e, message, (size_t)(whole.at - message));
    e->step = step;
    if (tern_clock_seconds() - e->flushed >= FLUSH_SECONDS) {
        flush(e);
    }
}

/* ---- open and close ---- */

tern_status tern_tfevents_open(const char *run_dir, int64_t step, struct tern_tfevents **out)
{
    char name[HOST_BYTES + 64];
    char host[HOST_BYTES] = "";
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%d", (long long)time(NULL), host,
             (int)getpid());
    struct tern_tfevents *e = tern_alloc_zero("tfevents", 1, sizeof *e);
    if (e == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes for TensorBoard's events",
                         sizeof *e);
    }
    tern_status status = tern_path_join(e->prefix, run_dir, name);
    if (status != TERN_OK) {
        tern_free(e);
        return status;
    }
    e->step = step;
    begin_file(e);
    *out = e;
    return TERN_OK;
}

void tern_tfevents_flush(struct tern_tfevents *e)
{
    if (e != NULL && e->used > 0) {
        flush(e);
    }
}

void tern_tfevents_close(struct tern_tfevents *e)
{
    tern_tfevents_flush(e);
    tern_free(e);
}
