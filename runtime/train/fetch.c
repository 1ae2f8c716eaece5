/* fetch.c - URLs in the configuration's lists, replaced one by one. */
#include "runtime/train/fetch.h"

#include "io/cache.h"
#include "io/store.h"
#include "runtime/base/mem.h"

#include <stdio.h>

static tern_status fetch_list(const char *key, struct tern_config_strings *list)
{
    for (int i = 0; i < list->count; i++) {
        char path[TERN_PATH_BYTES], pattern[TERN_PATH_BYTES + 2];
        if (!tern_store_is_url(list->items[i])) {
            continue;
        }
        tern_status status = tern_cache_fetch(list->items[i], path);
        if (status != TERN_OK) {
            return tern_fail_prefix(status, "%s", key);
        }
        snprintf(pattern, sizeof pattern, "%s%s", path, tern_file_is_folder(path) ? "/*" : "");
        char *copy = tern_strdup("config", pattern);
        if (copy == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory for a path");
        }
        tern_free(list->items[i]);
        list->items[i] = copy;
    }
    return TERN_OK;
}

tern_status tern_train_fetch_data(struct tern_config_data *data)
{
    TERN_RETURN_IF_ERR(fetch_list("data.train", &data->train));
    return fetch_list("data.val", &data->val);
}
