/* nccl_settings.h - the NCCL_* settings of a process, wherever they come from, and the lists of names in them. */
#ifndef TERN_COMM_FABRIC_NCCL_SETTINGS_H
#define TERN_COMM_FABRIC_NCCL_SETTINGS_H

#include <stdbool.h>

enum {
    TERN_NCCL_SETTINGS_MAX = 64,
    TERN_NCCL_NAME_BYTES = 48,
    TERN_NCCL_VALUE_BYTES = 200
};

struct tern_nccl_setting {
    char name[TERN_NCCL_NAME_BYTES];
    char value[TERN_NCCL_VALUE_BYTES];
    const char
        *source; /* "environment", "NCCL_CONF_FILE", "~/.nccl.conf", "/etc/nccl.conf"; static */
};

struct tern_nccl_settings {
    struct tern_nccl_setting items[TERN_NCCL_SETTINGS_MAX];
    int count;
};

/* Takes the NCCL_ variables of `environment` ("NAME=VALUE", NULL-terminated; may be NULL), then what the file of
 * NCCL_CONF_FILE, else ~/.nccl.conf (home may be NULL), and /etc/nccl.conf below root add: the first to name a variable wins, as in NCCL. */
void tern_nccl_settings_read(const char *root,
                             const char *home,
                             char *const *environment,
                             struct tern_nccl_settings *out);
/* NULL when it is not set, or empty. */
const char *tern_nccl_setting(const struct tern_nccl_settings *settings, const char *name);
/* The whole row; NULL when it is not set. */
const struct tern_nccl_setting *tern_nccl_setting_find(const struct tern_nccl_settings *settings,
                                                       const char *name);

/* Does a list as in NCCL_IB_HCA and NCCL_SOCKET_IFNAME take this name? "mlx5_1:2,mlx5_3": names that begin so, and that
 * port; "=..." whole names; "^..." all but these. port 0: any. */
bool tern_nccl_list_takes(const char *list, const char *name, int port);

#endif
