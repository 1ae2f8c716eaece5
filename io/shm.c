/* shm.c - named memory: made whole or not at all, locked by whoever has it open. */
#include "io/shm.h"

#include "io/hash.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 4096,
    TRIES_MAX = 8,
    BOOT_ID_BYTES_MAX = 128
};

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

const char *tern_shm_folder(void)
{
    const char *folder = getenv("TERN_SHM_DIR");
    return folder != NULL && folder[0] != '\0' ? folder : "/dev/shm";
}

tern_status tern_shm_room(int64_t *free_out, int64_t *total_out)
{
    struct statvfs info;
    if (statvfs(tern_shm_folder(), &info) != 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot read the size of '%s'",
                               tern_shm_folder());
    }
    *free_out = (int64_t)info.f_bavail * (int64_t)info.f_frsize;
    *total_out = (int64_t)info.f_blocks * (int64_t)info.f_frsize;
    return TERN_OK;
}

/* Two machines have folders with the same numbers; no two starts of a machine have the same id. */
tern_status tern_shm_place(uint64_t *out)
{
    struct stat info;
    char *boot = NULL;
    size_t bytes = 0;
    if (stat(tern_shm_folder(), &info) != 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot look at '%s'", tern_shm_folder());
    }
    TERN_RETURN_IF_ERR(tern_file_read(BOOT_ID, BOOT_ID_BYTES_MAX, &boot, &bytes));
    const uint64_t numbers[2] = {(uint64_t)info.st_dev, (uint64_t)info.st_ino};
    *out = tern_hash_u64(boot, bytes, tern_hash_u64(numbers, sizeof numbers, 0));
    tern_free(boot);
    return TERN_OK;
}

/* The path still leads to this file: nobody tidied it away before it was locked. */
static bool is_in_place(const struct tern_shm *shm)
{
    struct stat mine, there;
    return fstat(shm->fd, &mine) == 0 && lstat(shm->path, &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* A new file that only this user can open, locked and in its place. */
static tern_status open_locked(struct tern_shm *shm)
{
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        (void)!unlink(shm->path);
        shm->fd = open(shm->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (shm->fd < 0) {
            return tern_fail_errno(TERN_ERR_IO, errno, "cannot make '%s'", shm->path);
        }
        if (flock(shm->fd, LOCK_EX) == 0 && is_in_place(shm)) {
            return TERN_OK;
        }
        close(shm->fd);
        shm->fd = -1;
    }
    return tern_fail(TERN_ERR_BUSY, "'%s' is taken away again and again", shm->path);
}

/* Every page of it promised. */
static tern_status make(struct tern_shm *shm)
{
    char size[TERN_TEXT_BYTES_BYTES];
    TERN_RETURN_IF_ERR(open_locked(shm));
    int error;
    do { /* a signal ends it early */
        error = posix_fallocate(shm->fd, 0, (off_t)shm->bytes);
    } while (error == EINTR);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot take %s for '%s'",
                               tern_text_bytes((int64_t)shm->bytes, size), shm->path);
    }
    void *data = mmap(NULL, shm->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd, 0);
    if (data == MAP_FAILED) {
        return tern_fail_errno(TERN_ERR_MEMORY, errno, "cannot map '%s'", shm->path);
    }
    shm->data = data;
    return TERN_OK;
}

tern_status tern_shm_create(const char *name, size_t bytes, struct tern_shm *out)
{
    *out = (struct tern_shm){.bytes = bytes, .fd = -1};
    TERN_RETURN_IF_ERR(tern_path_join(out->path, tern_shm_folder(), name));
    tern_status status = make(out);
    if (status != TERN_OK && out->fd >= 0) {
        (void)!unlink(out->path);
        close(out->fd);
    }
    return status;
}

void tern_shm_close(struct tern_shm *shm)
{
    if (shm->data == NULL) {
        return;
    }
    munmap(shm->data, shm->bytes);
    close(shm->fd);
    shm->data = NULL;
}

void tern_shm_touch(uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += PAGE_BYTES) {
        ((volatile uint8_t *)data)[i] = 0;
    }
}

bool tern_shm_is_held(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool is_held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return is_held;
}

tern_status tern_shm_remove_free(const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? TERN_OK
                               : tern_fail_errno(TERN_ERR_IO, errno, "cannot open '%s'", path);
    }
    tern_status status = TERN_OK;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && unlink(path) != 0 && errno != ENOENT) {
        status = tern_fail_errno(TERN_ERR_IO, errno, "cannot remove '%s'", path);
    }
    close(fd);
    return status;
}

bool tern_shm_is_own(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
}
