/* store_folder.c - file://: a folder as a store, perhaps on a network file system. */
#include "io/file.h"
#include "io/pieces.h"
#include "io/source.h"
#include "io/store_parts.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* prefix: the folder, absolute, with '/' at its end; keys are paths. */
static tern_status open_folder(struct tern_store *store)
{
    size_t length = strlen(store->prefix);
    if (store->prefix[0] != '/') {
        return tern_fail(TERN_ERR_CONFIG, "expected file:///FOLDER, an absolute path");
    }
    while (length > 1 && store->prefix[length - 1] == '/') {
        store->prefix[--length] = '\0';
    }
    if (length > 1 && length + 1 < sizeof store->prefix) {
        strcat(store->prefix, "/");
    }
    return strstr(store->prefix, "/../") == NULL
               ? TERN_OK
               : tern_fail(TERN_ERR_CONFIG, "expected a path without '..'");
}

static tern_status put(struct tern_store *store,
                       struct tern_store_conn *conn,
                       const char *key,
                       const void *data,
                       size_t bytes,
                       bool is_new)
{
    (void)conn;
    struct tern_pieces *pieces;
    int error = tern_file_fault(TERN_FAULT_STORE_PUT);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s'", key);
    }
    TERN_RETURN_IF_ERR(tern_pieces_create(key, (int64_t)bytes, &pieces));
    if (store->rate != NULL) {
        tern_http_rate_take(store->rate, bytes, &store->is_cancelled);
    }
    tern_status status = tern_pieces_write(pieces, 0, data, bytes);
    if (status != TERN_OK) {
        tern_pieces_abandon(pieces);
        return status;
    }
    return tern_pieces_finish(pieces, is_new);
}

static tern_status describe(const char *key, struct tern_store_info *out)
{
    struct stat about;
    if (stat(key, &about) != 0 || !S_ISREG(about.st_mode)) {
        int error = errno == ENOTDIR || errno == 0 ? ENOENT : errno;
        return tern_fail_errno(TERN_ERR_IO, error, "cannot read '%s'", key);
    }
    out->bytes = about.st_size;
    snprintf(out->etag, sizeof out->etag, "%llx-%llx-%llx", (unsigned long long)about.st_ino,
             (unsigned long long)about.st_mtim.tv_sec * 1000000000 +
                 (unsigned long long)about.st_mtim.tv_nsec,
             (unsigned long long)about.st_size);
    return TERN_OK;
}

static tern_status head(struct tern_store *store,
                        struct tern_store_conn *conn,
                        const char *key,
                        struct tern_store_info *out)
{
    (void)store;
    (void)conn;
    errno = 0;
    return describe(key, out);
}

static tern_status get(struct tern_store *store,
                       struct tern_store_conn *conn,
                       const char *key,
                       int64_t offset,
                       size_t bytes,
                       const char *etag,
                       void *dst)
{
    struct tern_store_info info;
    struct tern_source *source;
    int error = tern_file_fault(TERN_FAULT_STORE_GET);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot read '%s'", key);
    }
    TERN_RETURN_IF_ERR(head(store, conn, key, &info));
    if (etag != NULL && etag[0] != '\0' && strcmp(etag, info.etag) != 0) {
        return tern_fail(TERN_ERR_CORRUPT, "'%s' was replaced while it was being read", key);
    }
    TERN_RETURN_IF_ERR(tern_source_open(key, &source));
    tern_status status = tern_source_read(source, offset, dst, bytes);
    tern_source_close(source);
    if (status == TERN_OK && store->rate != NULL) {
        tern_http_rate_take(store->rate, bytes, &store->is_cancelled);
    }
    return status;
}

/* Folders that become empty go, too: a store has none. */
static tern_status remove_key(struct tern_store *store,
                              struct tern_store_conn *conn,
                              const char *key)
{
    (void)conn;
    char folder[TERN_STORE_KEY_BYTES];
    TERN_RETURN_IF_ERR(tern_file_remove(key));
    snprintf(folder, sizeof folder, "%s", key);
    for (;;) {
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < strlen(store->prefix)) {
            return TERN_OK;
        }
        *slash = '\0';
        if (remove(folder) != 0) {
            return TERN_OK;
        }
    }
}

/* ---- walks ---- */

struct walk {
    const char *prefix; /* of the keys asked for */
    tern_store_visit visit;
    void *context;
    bool is_temporary; /* visits what is under way instead of what is there */
};

static tern_status visit_file(const struct walk *walk, const char *path, const char *name)
{
    struct tern_store_info info;
    if (strncmp(path, walk->prefix, strlen(walk->prefix)) != 0 ||
        tern_pieces_is_temporary(name) != walk->is_temporary) {
        return TERN_OK;
    }
    errno = 0;
    tern_status status = describe(path, &info);
    if (status == TERN_ERR_NOT_FOUND) { /* gone since it was listed */
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(status);
    return walk->visit(walk->context, path, &info);
}

/* Depth first; a folder that is gone meanwhile has nothing. */
static tern_status walk_folder(const struct walk *walk, const char *folder)
{
    char **names;
    int count;
    if (!tern_file_is_folder(folder)) {
        return TERN_OK;
    }
    tern_status status = tern_file_list(folder, &names, &count);
    if (status == TERN_ERR_NOT_FOUND) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(status);
    for (int i = 0; i < count && status == TERN_OK; i++) {
        char path[TERN_PATH_BYTES];
        status = tern_path_join(path, folder, names[i]);
        if (status == TERN_OK) {
            status = tern_file_is_folder(path) ? walk_folder(walk, path)
                                               : visit_file(walk, path, names[i]);
        }
    }
    tern_free(names);
    return status;
}

static tern_status walk(const char *prefix,
                        tern_store_visit visit,
                        void *context,
                        bool is_temporary)
{
    char folder[TERN_STORE_KEY_BYTES];
    struct walk how = {prefix, visit, context, is_temporary};
    snprintf(folder, sizeof folder, "%s", prefix);
    char *slash = strrchr(folder, '/');
    if (slash != NULL && slash != folder) {
        *slash = '\0';
    }
    return walk_folder(&how, folder);
}

static tern_status list(struct tern_store *store,
                        struct tern_store_conn *conn,
                        const char *prefix,
                        tern_store_visit visit,
                        void *context)
{
    (void)store;
    (void)conn;
    return walk(prefix, visit, context, false);
}

struct sweep {
    struct tern_store *store;
    int removed;
};

static tern_status remove_one(void *context, const char *key, const struct tern_store_info *info)
{
    struct sweep *sweep = context;
    (void)info;
    sweep->removed++;
    return remove_key(sweep->store, NULL, key);
}

static tern_status remove_uploads(struct tern_store *store,
                                  struct tern_store_conn *conn,
                                  const char *prefix,
                                  int *removed_out)
{
    (void)conn;
    struct sweep sweep = {store, 0};
    TERN_RETURN_IF_ERR(walk(prefix, remove_one, &sweep, true));
    *removed_out = sweep.removed;
    return TERN_OK;
}

/* ---- parts: written to their places in one temporary file ---- */

static tern_status begin(struct tern_store *store,
                         struct tern_store_conn *conn,
                         struct tern_store_upload *upload,
                         struct tern_store_part *parts,
                         int capacity)
{
    (void)store;
    (void)conn;
    (void)parts;
    (void)capacity;
    struct tern_pieces *pieces;
    TERN_RETURN_IF_ERR(tern_pieces_create(upload->key, upload->bytes, &pieces));
    upload->state = pieces;
    return TERN_OK;
}

static tern_status put_part(struct tern_store *store,
                            struct tern_store_conn *conn,
                            const struct tern_store_upload *upload,
                            struct tern_store_part *part,
                            const void *data)
{
    (void)conn;
    int error = tern_file_fault(TERN_FAULT_STORE_PART);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s'", upload->key);
    }
    if (store->rate != NULL) {
        tern_http_rate_take(store->rate, (size_t)part->bytes, &store->is_cancelled);
    }
    return tern_pieces_write(upload->state, (part->number - 1) * upload->part_bytes, data,
                             (size_t)part->bytes);
}

static tern_status complete(struct tern_store *store,
                            struct tern_store_conn *conn,
                            struct tern_store_upload *upload,
                            const struct tern_store_part *parts,
                            int count)
{
    (void)store;
    (void)conn;
    (void)parts;
    (void)count;
    struct tern_pieces *pieces = upload->state;
    int error = tern_file_fault(TERN_FAULT_STORE_COMPLETE);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s'", upload->key);
    }
    upload->state = NULL;
    return tern_pieces_finish(pieces, false);
}

static void drop(struct tern_store_upload *upload)
{
    tern_pieces_abandon(upload->state);
    upload->state = NULL;
}

const struct tern_store_backend tern_store_folder = {
    .scheme = "file",
    .open = open_folder,
    .put = put,
    .get = get,
    .head = head,
    .remove = remove_key,
    .list = list,
    .begin = begin,
    .part = put_part,
    .complete = complete,
    .uploads = remove_uploads,
    .drop = drop,
    .part_bytes_min = 1,
};
