/* store_tool.c - a store from the command line, for tests/oracles/store_oracle.py.
 *
 *   store_tool put|put-new URL KEY FILE    store_tool get URL KEY FILE    store_tool head|remove URL KEY
 *   store_tool list URL PREFIX             store_tool clean URL
 *
 * Ends with 0, 3 (there is no such object), 4 (there is one already), or 1 with a sentence. */
#include "io/file.h"
#include "io/store.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

static tern_status print_key(void *context, const char *key, const struct tern_store_info *info)
{
    (void)context;
    printf("%lld %s\n", (long long)info->bytes, key);
    return TERN_OK;
}

static tern_status put_new(struct tern_store *store, const char *key, const char *path)
{
    char *data;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_file_read(path, 1 << 30, &data, &bytes));
    tern_status status = tern_store_put(store, key, data, bytes, true);
    tern_free(data);
    return status;
}

static tern_status run(struct tern_store *store,
                       const char *what,
                       const char *key,
                       const char *path)
{
    struct tern_store_info info;
    int removed = 0;
    if (strcmp(what, "put") == 0 && path != NULL) {
        return tern_store_put_file(store, key, path);
    }
    if (strcmp(what, "put-new") == 0 && path != NULL) {
        return put_new(store, key, path);
    }
    if (strcmp(what, "get") == 0 && path != NULL) {
        return tern_store_get_file(store, key, path, &info);
    }
    if (strcmp(what, "head") == 0) {
        TERN_RETURN_IF_ERR(tern_store_head(store, key, &info));
        printf("%lld %s\n", (long long)info.bytes, info.etag);
        return TERN_OK;
    }
    if (strcmp(what, "remove") == 0) {
        return tern_store_remove(store, key);
    }
    if (strcmp(what, "list") == 0) {
        return tern_store_list(store, key, print_key, NULL);
    }
    if (strcmp(what, "clean") == 0) {
        TERN_RETURN_IF_ERR(tern_store_remove_uploads(store, "", &removed));
        printf("%d\n", removed);
        return TERN_OK;
    }
    return tern_fail(TERN_ERR_USAGE, "'%s': see the head of store_tool.c", what);
}

int main(int argc, char **argv)
{
    struct tern_store_options options = {.pause_seconds = 0.02, .retry_seconds = 30};
    struct tern_store *store = NULL;
    if (argc < 3) {
        fprintf(stderr, "store_tool: expected WHAT URL [KEY [FILE]]\n");
        return 2;
    }
    tern_status status = tern_store_open(argv[2], &options, &store);
    if (status == TERN_OK) {
        status = run(store, argv[1], argc > 3 ? argv[3] : "", argc > 4 ? argv[4] : NULL);
    }
    tern_store_close(store);
    if (status != TERN_OK) {
        fprintf(stderr, "store_tool: %s\n", tern_detail());
    }
    return status == TERN_OK              ? 0
           : status == TERN_ERR_NOT_FOUND ? 3
           : status == TERN_ERR_BUSY      ? 4
                                          : 1;
}
