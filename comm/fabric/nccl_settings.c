/* nccl_settings.c - reads NCCL's settings as NCCL does: environment, then the file that NCCL_CONF_FILE names or
 * ~/.nccl.conf, then /etc/nccl.conf. */
#include "comm/fabric/nccl_settings.h"

#include "comm/fabric/sysfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_BYTES = 16384
};

const struct tern_nccl_setting *tern_nccl_setting_find(const struct tern_nccl_settings *settings,
                                                       const char *name)
{
    for (int i = 0; i < settings->count; i++) {
        if (strcmp(settings->items[i].name, name) == 0) {
            return &settings->items[i];
        }
    }
    return NULL;
}

const char *tern_nccl_setting(const struct tern_nccl_settings *settings, const char *name)
{
    const struct tern_nccl_setting *setting = tern_nccl_setting_find(settings, name);
    return setting != NULL && setting->value[0] != '\0' ? setting->value : NULL;
}

/* "NAME=VALUE", length bytes; anything else is skipped. */
static void take(struct tern_nccl_settings *settings,
                 const char *text,
                 size_t length,
                 const char *source)
{
    const char *equals = memchr(text, '=', length);
    char name[TERN_NCCL_NAME_BYTES];
    if (equals == NULL || strncmp(text, "NCCL_", 5) != 0 ||
        (size_t)(equals - text) >= sizeof name || settings->count == TERN_NCCL_SETTINGS_MAX) {
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    if (tern_nccl_setting_find(settings, name) != NULL) {
        return;
    }
    struct tern_nccl_setting *setting = &settings->items[settings->count++];
    memcpy(setting->name, name, sizeof name);
    snprintf(setting->value, sizeof setting->value, "%.*s", (int)(text + length - equals - 1),
             equals + 1);
    setting->source = source;
}

static void take_file(struct tern_nccl_settings *settings, const char *text, const char *source)
{
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (line[0] != '#') {
            take(settings, line, length, source);
        }
        line += length;
        line += *line == '\n';
    }
}

void tern_nccl_settings_read(const char *root,
                             const char *home,
                             char *const *environment,
                             struct tern_nccl_settings *out)
{
    char text[FILE_BYTES];
    out->count = 0;
    for (char *const *entry = environment; entry != NULL && *entry != NULL; entry++) {
        take(out, *entry, strlen(*entry), "environment");
    }
    const char *file = tern_nccl_setting(out, "NCCL_CONF_FILE");
    if (file != NULL && tern_sys_text(root, text, sizeof text, "%s", file)) {
        take_file(out, text, "NCCL_CONF_FILE");
    } else if (file == NULL && home != NULL &&
               tern_sys_text(root, text, sizeof text, "%s/.nccl.conf", home)) {
        take_file(out, text, "~/.nccl.conf");
    }
    if (tern_sys_text(root, text, sizeof text, "etc/nccl.conf")) {
        take_file(out, text, "/etc/nccl.conf");
    }
}

/* One entry of a list, "name" or "name:port", against a name. */
static bool entry_takes(const char *entry, size_t length, bool is_whole, const char *name, int port)
{
    const char *colon = memchr(entry, ':', length);
    size_t name_length = colon != NULL ? (size_t)(colon - entry) : length;
    if (colon != NULL && port != 0 && atoi(colon + 1) > 0 && atoi(colon + 1) != port) {
        return false;
    }
    return strncmp(entry, name, name_length) == 0 && (!is_whole || name[name_length] == '\0');
}

bool tern_nccl_list_takes(const char *list, const char *name, int port)
{
    bool is_except = *list == '^';
    list += is_except;
    bool is_whole = *list == '=';
    list += is_whole;
    bool is_listed = *list == '\0'; /* an empty list takes all */
    for (const char *entry = list; *entry != '\0' && !is_listed;) {
        size_t length = strcspn(entry, ",");
        is_listed = length > 0 && entry_takes(entry, length, is_whole, name, port);
        entry += length;
        entry += *entry == ',';
    }
    return is_listed != is_except;
}
