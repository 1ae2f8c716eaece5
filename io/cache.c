/* cache.c - entries that appear by a rename when they are whole, and go by age. */
#include "io/cache.h"

#include "io/hash.h"
#include "io/store.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    OBJECTS_MAX = 100000, /* below one prefix */
    WAIT_NS = 100000000   /* between two tries of the lock */
};

static const int64_t CACHE_BYTES = (int64_t)100 << 30;

/* What a URL stands for. */
struct wanted {
    struct tern_store *store;
    char base[TERN_STORE_URL_BYTES]; /* of the store: the URL less its last name */
    char name[TERN_STORE_KEY_BYTES]; /* the last name */
    bool is_folder;
    struct tern_text keys; /* key NUL key NUL ... : below base */
    int count;
    int64_t bytes;
    struct tern_hash *hash; /* of URL, keys, sizes, versions */
};

/* ---- what there is ---- */

static tern_status split(const char *url, struct wanted *wanted)
{
    size_t length = strlen(url);
    while (length > 0 && url[length - 1] == '/') {
        length--;
    }
    const char *host = strstr(url, "://");
    size_t last = length;
    while (last > 0 && url[last - 1] != '/') {
        last--;
    }
    if (length >= sizeof wanted->base || host == NULL || url + last <= host + 3 ||
        length - last >= sizeof wanted->name || length == last) {
        return tern_fail(TERN_ERR_INPUT,
                         "'%.200s': expected the URL of an object, such as "
                         "s3://BUCKET/NAME",
                         url);
    }
    snprintf(wanted->base, sizeof wanted->base, "%.*s", (int)last - 1, url);
    snprintf(wanted->name, sizeof wanted->name, "%.*s", (int)(length - last), url + last);
    return TERN_OK;
}

static tern_status note(struct wanted *wanted, const char *key, const struct tern_store_info *info)
{
    char line[TERN_STORE_KEY_BYTES + TERN_STORE_ETAG_BYTES + 32];
    if (++wanted->count > OBJECTS_MAX) {
        return tern_fail(TERN_ERR_INPUT, "more than %d objects below it", OBJECTS_MAX);
    }
    snprintf(line, sizeof line, "%s\n%" PRId64 "\n%s\n", key, info->bytes, info->etag);
    tern_hash_update(wanted->hash, line, strlen(line));
    wanted->bytes += info->bytes;
    return tern_text_append(&wanted->keys, key, strlen(key) + 1);
}

static bool is_safe(const char *key)
{
    return key[0] != '/' && strstr(key, "//") == NULL && strncmp(key, "../", 3) != 0 &&
           strstr(key, "/../") == NULL && key[strlen(key) - 1] != '/';
}

static tern_status note_listed(void *context, const char *key, const struct tern_store_info *info)
{
    return is_safe(key) ? note(context, key, info) : TERN_OK; /* "folder/" of some consoles */
}

static tern_status look(const char *url, struct wanted *wanted)
{
    char prefix[TERN_STORE_KEY_BYTES + 1];
    struct tern_store_info info;
    TERN_RETURN_IF_ERR(split(url, wanted));
    TERN_RETURN_IF_ERR(tern_hash_create(&wanted->hash));
    tern_hash_update(wanted->hash, wanted->base, strlen(wanted->base));
    TERN_RETURN_IF_ERR(tern_store_open(wanted->base, NULL, &wanted->store));
    tern_status status = tern_store_head(wanted->store, wanted->name, &info);
    if (status == TERN_OK) {
        return note(wanted, wanted->name, &info);
    }
    if (status != TERN_ERR_NOT_FOUND) {
        return status;
    }
    wanted->is_folder = true;
    snprintf(prefix, sizeof prefix, "%s/", wanted->name);
    TERN_RETURN_IF_ERR(tern_store_list(wanted->store, prefix, note_listed, wanted));
    return wanted->count > 0
               ? TERN_OK
               : tern_fail(TERN_ERR_NOT_FOUND, "there is no such object, and none below it");
}

/* ---- the folder ---- */

static tern_status find_root(char root[TERN_PATH_BYTES], int64_t *limit)
{
    const char *given = getenv("TERN_CACHE_DIR");
    const char *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    const char *bytes = getenv("TERN_CACHE_BYTES");
    bool has_xdg = xdg != NULL && xdg[0] != '\0';
    *limit = CACHE_BYTES;
    if (bytes != NULL && bytes[0] != '\0' && (!tern_text_to_bytes(bytes, limit) || *limit < 1)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "environment TERN_CACHE_BYTES: found '%.40s', expected a size such as "
                         "100G",
                         bytes);
    }
    if (given != NULL && given[0] != '\0') {
        snprintf(root, TERN_PATH_BYTES, "%.4000s", given);
    } else if (has_xdg || (home != NULL && home[0] != '\0')) {
        snprintf(root, TERN_PATH_BYTES, "%.4000s%s/tern", has_xdg ? xdg : home,
                 has_xdg ? "" : "/.cache");
    } else {
        return tern_fail(TERN_ERR_CONFIG,
                         "set TERN_CACHE_DIR: there is no HOME to keep a cache in");
    }
    return tern_file_make_folder(root);
}

/* Waits while another process fetches or removes. */
static tern_status take_lock(const char *root, struct tern_lock *lock)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(path, root, "lock"));
    for (;;) {
        tern_status status = tern_lock_take(path, lock);
        if (status != TERN_ERR_BUSY) {
            return status;
        }
        tern_clock_sleep_ns(WAIT_NS);
    }
}

static int64_t bytes_below(const char *folder)
{
    char **names;
    int count;
    int64_t sum = 0;
    if (tern_file_list(folder, &names, &count) != TERN_OK) {
        return 0;
    }
    for (int i = 0; i < count; i++) {
        char path[TERN_PATH_BYTES];
        int64_t bytes;
        if (tern_path_join(path, folder, names[i]) != TERN_OK) {
            continue;
        }
        if (tern_file_is_folder(path)) {
            sum += bytes_below(path);
        } else if (tern_file_size(path, &bytes) == TERN_OK) {
            sum += bytes;
        }
    }
    tern_free(names);
    return sum;
}

/* The entry that was not used for longest; "" if there is none. *sum_out: bytes of all. */
static tern_status find_oldest(const char *root, char oldest[TERN_PATH_BYTES], int64_t *sum_out)
{
    char **names;
    int count;
    struct timespec when = {0};
    oldest[0] = '\0';
    *sum_out = 0;
    TERN_RETURN_IF_ERR(tern_file_list(root, &names, &count));
    for (int i = 0; i < count; i++) {
        char path[TERN_PATH_BYTES];
        struct stat about;
        if (tern_path_join(path, root, names[i]) != TERN_OK || stat(path, &about) != 0 ||
            !S_ISDIR(about.st_mode)) {
            continue;
        }
        *sum_out += bytes_below(path);
        bool is_older = about.st_mtim.tv_sec != when.tv_sec ? about.st_mtim.tv_sec < when.tv_sec
                                                            : about.st_mtim.tv_nsec < when.tv_nsec;
        if (oldest[0] == '\0' || is_older) {
            when = about.st_mtim;
            memcpy(oldest, path, sizeof path);
        }
    }
    tern_free(names);
    return TERN_OK;
}

static tern_status make_room(const char *root, int64_t wanted, int64_t limit)
{
    char oldest[TERN_PATH_BYTES], size[TERN_TEXT_BYTES_BYTES], most[TERN_TEXT_BYTES_BYTES];
    int64_t sum;
    if (wanted > limit) {
        return tern_fail(TERN_ERR_NO_SPACE,
                         "it has %s, and the cache '%s' may hold %s: raise TERN_CACHE_BYTES",
                         tern_text_bytes(wanted, size), root, tern_text_bytes(limit, most));
    }
    for (;;) {
        TERN_RETURN_IF_ERR(find_oldest(root, oldest, &sum));
        if (oldest[0] == '\0' || sum + wanted <= limit) {
            return TERN_OK;
        }
        TERN_RETURN_IF_ERR(tern_file_remove_tree(oldest));
    }
}

/* ---- fetch ---- */

static tern_status fill(const struct wanted *wanted, const char *folder)
{
    const char *key = wanted->keys.data;
    for (int i = 0; i < wanted->count; i++, key += strlen(key) + 1) {
        char path[TERN_PATH_BYTES];
        TERN_RETURN_IF_ERR(tern_path_join(path, folder, key));
        TERN_RETURN_IF_ERR(tern_store_get_file(wanted->store, key, path, NULL));
    }
    return TERN_OK;
}

/* Under the lock: the entry is there afterwards. */
static tern_status provide(const struct wanted *wanted,
                           const char *url,
                           const char *root,
                           int64_t limit,
                           const char *entry)
{
    char part[TERN_PATH_BYTES], size[TERN_TEXT_BYTES_BYTES];
    if (tern_file_is_folder(entry)) {
        (void)!utimensat(AT_FDCWD, entry, NULL, 0); /* used now */
        return TERN_OK;
    }
    if (snprintf(part, sizeof part, "%s.part", entry) >= (int)sizeof part) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is too long", entry);
    }
    TERN_RETURN_IF_ERR(tern_file_remove_tree(part)); /* of a process that died */
    TERN_RETURN_IF_ERR(make_room(root, wanted->bytes, limit));
    TERN_RETURN_IF_ERR(tern_file_make_folder(part));
    double started = tern_clock_seconds();
    tern_status status = fill(wanted, part);
    if (status == TERN_OK) {
        status = tern_file_rename(part, entry);
    }
    if (status != TERN_OK) {
        char sentence[1024];
        snprintf(sentence, sizeof sentence, "%s", tern_detail());
        (void)!tern_file_remove_tree(part);
        tern_detail_set(sentence);
        return status;
    }
    tern_log_info("fetched %s: %s in %.1f s", url, tern_text_bytes(wanted->bytes, size),
                  tern_clock_seconds() - started);
    return TERN_OK;
}

static tern_status fetch(struct wanted *wanted, const char *url, char path_out[TERN_PATH_BYTES])
{
    char root[TERN_PATH_BYTES], entry[TERN_PATH_BYTES], hex[TERN_HASH_HEX_BYTES];
    int64_t limit;
    struct tern_lock lock;
    TERN_RETURN_IF_ERR(find_root(root, &limit));
    TERN_RETURN_IF_ERR(look(url, wanted));
    tern_hash_hex(wanted->hash, hex);
    TERN_RETURN_IF_ERR(tern_path_join(entry, root, hex));
    TERN_RETURN_IF_ERR(take_lock(root, &lock));
    tern_status status = provide(wanted, url, root, limit, entry);
    tern_lock_drop(&lock);
    return status == TERN_OK ? tern_path_join(path_out, entry, wanted->name) : status;
}

tern_status tern_cache_fetch(const char *url, char path_out[TERN_PATH_BYTES])
{
    struct wanted wanted = {0};
    tern_status status = fetch(&wanted, url, path_out);
    tern_store_close(wanted.store);
    tern_hash_destroy(wanted.hash);
    tern_text_fini(&wanted.keys);
    return status == TERN_OK ? status : tern_fail_prefix(status, "%.300s", url);
}
