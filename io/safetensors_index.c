/* safetensors_index.c - model.safetensors.index.json: which shard has which tensor. */
#include "io/json_scan.h"
#include "io/safetensors_internal.h"
#include "runtime/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHARDS_MAX = 1024,
    TEXT_BYTES = 1024
};

/* What is done with each entry of weight_map; `offset` is where its name begins. */
typedef tern_status (*visit_entry)(void *context,
                                   const char *name,
                                   const char *shard,
                                   uint64_t offset);

static tern_status walk_weight_map(struct tern_json_scan *scan, visit_entry visit, void *context)
{
    char name[TEXT_BYTES], shard[TERN_STORED_NAME_BYTES];
    size_t bytes;
    int64_t count = 0;
    bool more;
    TERN_RETURN_IF_ERR(tern_json_scan_char(scan, '{'));
    for (;;) {
        TERN_RETURN_IF_ERR(tern_json_scan_more(scan, '}', &count, &more));
        if (!more) {
            return TERN_OK;
        }
        uint64_t offset = tern_json_scan_offset(scan);
        if (count > TERN_STORED_TENSORS_MAX) {
            return tern_fail(TERN_ERR_UNSUPPORTED, "%s: byte %llu: found more than %d tensors",
                             scan->file, (unsigned long long)offset, TERN_STORED_TENSORS_MAX);
        }
        TERN_RETURN_IF_ERR(tern_json_scan_key(scan, name, sizeof name, &bytes));
        TERN_RETURN_IF_ERR(tern_json_scan_string(scan, shard, sizeof shard, &bytes));
        TERN_RETURN_IF_ERR(visit(context, name, shard, offset));
    }
}

static tern_status walk_index(const char *path,
                              const struct tern_map *map,
                              visit_entry visit,
                              void *context)
{
    struct tern_json_scan scan = {path, (const char *)map->data, map->bytes, 0, 0};
    char key[TEXT_BYTES];
    size_t bytes;
    int64_t count = 0;
    bool more, has_weight_map = false;
    TERN_RETURN_IF_ERR(tern_json_scan_char(&scan, '{'));
    for (;;) {
        TERN_RETURN_IF_ERR(tern_json_scan_more(&scan, '}', &count, &more));
        if (!more) {
            break;
        }
        TERN_RETURN_IF_ERR(tern_json_scan_key(&scan, key, sizeof key, &bytes));
        if (strcmp(key, "weight_map") == 0) {
            has_weight_map = true;
            TERN_RETURN_IF_ERR(walk_weight_map(&scan, visit, context));
        } else {
            TERN_RETURN_IF_ERR(tern_json_scan_skip(&scan));
        }
    }
    TERN_RETURN_IF_ERR(tern_json_scan_end(&scan));
    return has_weight_map
               ? TERN_OK
               : tern_fail(TERN_ERR_INPUT,
                           "%s: byte 0: found no key 'weight_map', expected an object of tensor "
                           "name -> file",
                           path);
}

struct shards {
    const char *index_path;
    char (*names)[TERN_STORED_NAME_BYTES]; /* in order of appearance */
    int64_t count, capacity;
};

static tern_status collect(void *context, const char *name, const char *shard, uint64_t offset)
{
    struct shards *shards = context;
    /* The last one first: shards come in runs. */
    for (int64_t i = shards->count; i-- > 0;) {
        if (strcmp(shards->names[i], shard) == 0) {
            return TERN_OK;
        }
    }
    if (strchr(shard, '/') != NULL || shard[0] == '.' || shard[0] == '\0') {
        return tern_fail(
            TERN_ERR_INPUT,
            "%s: byte %llu: tensor '%s' is in '%s', expected the name of a file beside "
            "the index",
            shards->index_path, (unsigned long long)offset, name, shard);
    }
    if (shards->count == SHARDS_MAX) {
        return tern_fail(TERN_ERR_INPUT, "%s: byte %llu: found more than %d shards",
                         shards->index_path, (unsigned long long)offset, SHARDS_MAX);
    }
    if (shards->count == shards->capacity) {
        int64_t capacity = shards->capacity > 0 ? 2 * shards->capacity : 16;
        void *names =
            tern_realloc("shards", shards->names, (size_t)capacity * sizeof *shards->names);
        if (names == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate a list of its shards",
                             shards->index_path);
        }
        shards->names = names;
        shards->capacity = capacity;
    }
    strcpy(shards->names[shards->count++], shard);
    return TERN_OK;
}

tern_status tern_safetensors_add_shards(struct tern_tensor_file *file,
                                        const char *folder,
                                        const char *index_path)
{
    struct shards shards = {.index_path = index_path};
    struct tern_map map;
    char path[TERN_PATH_BYTES];
    tern_status status;
    TERN_RETURN_IF_ERR(tern_map_open(index_path, &map));
    TERN_GOTO_IF_ERR(status, walk_index(index_path, &map, collect, &shards), out);
    for (int64_t i = 0; i < shards.count; i++) {
        TERN_GOTO_IF_ERR(status, tern_path_join(path, folder, shards.names[i]), out);
        TERN_GOTO_IF_ERR(status, tern_safetensors_add(file, path), out);
    }
out:
    tern_map_close(&map);
    tern_free(shards.names);
    return status;
}

struct checking {
    const struct tern_tensor_file *file;
    const char *folder, *index_path;
};

static tern_status check(void *context, const char *name, const char *shard, uint64_t offset)
{
    struct checking *checking = context;
    char path[TERN_PATH_BYTES];
    const struct tern_stored_tensor *tensor = tern_tensor_file_find(checking->file, name);
    TERN_RETURN_IF_ERR(tern_path_join(path, checking->folder, shard));
    if (tensor != NULL && strcmp(tensor->file, path) == 0) {
        return TERN_OK;
    }
    return tern_fail(TERN_ERR_INPUT,
                     "%s: byte %llu: tensor '%s' is to be in '%s', which does not have it%s%s",
                     checking->index_path, (unsigned long long)offset, name, shard,
                     tensor != NULL ? "; found it in " : "", tensor != NULL ? tensor->file : "");
}

tern_status tern_safetensors_check_index(const struct tern_tensor_file *file,
                                         const char *folder,
                                         const char *index_path)
{
    struct checking checking = {file, folder, index_path};
    struct tern_map map;
    TERN_RETURN_IF_ERR(tern_map_open(index_path, &map));
    tern_status status = walk_index(index_path, &map, check, &checking);
    tern_map_close(&map);
    return status;
}
