/* shm.h - named memory that outlives the process that filled it: blocks in the folder of POSIX shared memory, and the only
 * file that makes them. */
#ifndef TERN_IO_SHM_H
#define TERN_IO_SHM_H

#include "io/file.h"

struct tern_shm {
    char path[TERN_PATH_BYTES];
    uint8_t *data; /* shared, for reading and writing; NULL: closed */
    size_t bytes;
    int fd; /* holds a lock as long as the block is open: it is somebody's */
};

/* /dev/shm, unless TERN_SHM_DIR names another folder (tests: ranks that are to look like other hosts). */
const char *tern_shm_folder(void);
/* Bytes that the folder still has, and all of it. */
TERN_MUST_CHECK tern_status tern_shm_room(int64_t *free_out, int64_t *total_out);
/* Whose blocks these are: the same for two processes if and only if they see the same ones. */
TERN_MUST_CHECK tern_status tern_shm_place(uint64_t *out);
/* A new block of this user alone, cleared, with all its pages promised: writing to it never fails. What had the name
 * before goes. TERN_ERR_NO_SPACE when the folder has no room. Owned: close, which leaves the block in place. */
TERN_MUST_CHECK tern_status tern_shm_create(const char *name, size_t bytes, struct tern_shm *out);
void tern_shm_close(struct tern_shm *shm);
/* Takes the pages, so that the first write to them does not wait. */
void tern_shm_touch(uint8_t *data, size_t bytes);
/* The block is open in a process that lives. */
bool tern_shm_is_held(const char *path);
/* Removes it unless a process has it open; who makes a block at this moment notices and makes it again. */
TERN_MUST_CHECK tern_status tern_shm_remove_free(const char *path);
/* Of this user, a plain file: what anybody else put there under the name is not looked at. */
bool tern_shm_is_own(const char *path);

#endif
