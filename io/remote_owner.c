/* remote_owner.c - whose checkpoints a store holds. */
#include "io/remote.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    ID_DIGITS = TERN_REMOTE_ID_BYTES - 1,
    OBJECT_BYTES_MAX = 4096
};

static const char g_key[] = "id";

tern_status tern_remote_owner(struct tern_store *store, char id_out[TERN_REMOTE_ID_BYTES])
{
    char *text;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_store_get_all(store, g_key, OBJECT_BYTES_MAX, &text, &bytes));
    tern_status status = TERN_OK;
    if (bytes != ID_DIGITS + 1 || strspn(text, "0123456789abcdef") != ID_DIGITS) {
        status =
            tern_fail(TERN_ERR_CORRUPT, "%s/%s: expected the %d hexadecimal digits of a run's id",
                      tern_store_url(store), g_key, ID_DIGITS);
    } else {
        snprintf(id_out, TERN_REMOTE_ID_BYTES, "%.*s", ID_DIGITS, text);
    }
    tern_free(text);
    return status;
}

tern_status tern_remote_claim(struct tern_store *store,
                              const char *id,
                              char owner_out[TERN_REMOTE_ID_BYTES])
{
    char text[TERN_REMOTE_ID_BYTES + 1];
    tern_status status = tern_remote_owner(store, owner_out);
    if (status != TERN_ERR_NOT_FOUND) {
        return status;
    }
    snprintf(text, sizeof text, "%s\n", id);
    status = tern_store_put(store, g_key, text, ID_DIGITS + 1, true);
    if (status == TERN_ERR_BUSY) { /* another run was faster */
        return tern_remote_owner(store, owner_out);
    }
    TERN_RETURN_IF_ERR(status);
    snprintf(owner_out, TERN_REMOTE_ID_BYTES, "%s", id);
    return TERN_OK;
}
