/* direct.h - writes one file from front to back around the page cache, behind the caller, hashing
 * it on the way.
 *
 * A thread writes 4 MiB blocks with O_DIRECT while the caller fills the next; where O_DIRECT is
 * refused it writes through the page cache and starts the write-back as it goes. The first error
 * sticks: what comes later is dropped and finish reports it. Every write and sync passes its fault
 * point. */
#ifndef TERN_IO_DIRECT_H
#define TERN_IO_DIRECT_H

#include "io/hash.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_direct;

struct tern_direct_stats {
    int64_t bytes;
    double write_seconds; /* spent in write calls and the sync */
    bool is_direct;       /* O_DIRECT was used to the end */
};

/* Makes or empties the file. wants_hash: hash what is appended (only when nothing will be patched).
 */
TERN_MUST_CHECK tern_status tern_direct_create(const char *path,
                                               bool wants_hash,
                                               struct tern_direct **out);
/* Asks the file system for the space at once: a full disk is known before anything is written. */
TERN_MUST_CHECK tern_status tern_direct_reserve(struct tern_direct *direct, int64_t bytes);
/* The next bytes of the file. data NULL: zeros. */
void tern_direct_append(struct tern_direct *direct, const void *data, int64_t bytes);
int64_t tern_direct_position(const struct tern_direct *direct); /* bytes appended */
/* Writes out all that was appended; from then on only patches. */
void tern_direct_drain(struct tern_direct *direct);
/* Overwrites or extends, through the page cache; after drain. */
void tern_direct_patch(struct tern_direct *direct, int64_t offset, const void *data, size_t bytes);
/* The first error so far: 0 or an errno. */
int tern_direct_error(struct tern_direct *direct);
/* Drains, cuts the file to `bytes`, syncs and closes it. hash_out may be NULL. The object is gone
 * afterwards, whatever the answer; the file stays (the caller removes it after a failure). */
TERN_MUST_CHECK tern_status tern_direct_finish(struct tern_direct *direct,
                                               int64_t bytes,
                                               char hash_out[TERN_HASH_HEX_BYTES],
                                               struct tern_direct_stats *stats_out);
/* Closes without syncing. NULL is fine. */
void tern_direct_abandon(struct tern_direct *direct);

#endif
