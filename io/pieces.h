/* pieces.h - one new file written at any place by several threads, durable under its name when it is
 * whole and not there before. */
#ifndef TERN_IO_PIECES_H
#define TERN_IO_PIECES_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_pieces;

/* Makes a temporary file beside path (path + ".tmp-" + a number), with room for `bytes`, and the
 * folders above it. Owned: finish or abandon. */
TERN_MUST_CHECK tern_status tern_pieces_create(const char *path,
                                               int64_t bytes,
                                               struct tern_pieces **out);
/* Any thread. */
TERN_MUST_CHECK tern_status tern_pieces_write(struct tern_pieces *pieces,
                                              int64_t offset,
                                              const void *data,
                                              size_t bytes);
/* Sync, rename, sync of the folder. is_new: TERN_ERR_BUSY if path is there already. The object is
 * gone afterwards, and the temporary file too. */
TERN_MUST_CHECK tern_status tern_pieces_finish(struct tern_pieces *pieces, bool is_new);
/* Removes the temporary file. NULL is fine. */
void tern_pieces_abandon(struct tern_pieces *pieces);
/* Is this the name of a temporary file of pieces? */
bool tern_pieces_is_temporary(const char *name);

#endif
