/* hosts.c - hostfiles: read with care, written for mpirun. */
#include "runtime/supervise/hosts.h"

#include "runtime/base/mem.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE_BYTES_MAX = 1024
};

/* A name goes into the command lines of ssh and mpirun: nothing that either could take for something else. */
static bool is_name(const char *name, size_t length)
{
    if (length == 0 || length >= TERN_HOST_NAME_BYTES || name[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr(".-_", name[i]) == NULL) {
            return false;
        }
    }
    return true;
}

bool tern_host_is_here(const char *name)
{
    char own[TERN_HOST_NAME_BYTES] = "";
    gethostname(own, sizeof own - 1);
    size_t length = strcspn(own, ".");
    return strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 ||
           strcmp(name, own) == 0 || (strncmp(name, own, length) == 0 && name[length] == '\0');
}

static tern_status add(struct tern_hosts *hosts, const char *name, size_t length, int64_t slots)
{
    for (int i = 0; i < hosts->count; i++) {
        struct tern_host *host = &hosts->items[i];
        if (strlen(host->name) == length && memcmp(host->name, name, length) == 0) {
            host->slots = (host->slots > 0 ? host->slots : 1) + (slots > 0 ? slots : 1);
            return TERN_OK;
        }
    }
    if (hosts->count == TERN_HOSTS_MAX) {
        return tern_fail(TERN_ERR_INPUT, "found more than %d hosts, expected fewer",
                         TERN_HOSTS_MAX);
    }
    if ((hosts->count & (hosts->count - 1)) == 0) { /* room for the next power of two */
        size_t room = hosts->count == 0 ? 1 : 2 * (size_t)hosts->count;
        struct tern_host *items = tern_realloc("hosts", hosts->items, room * sizeof *items);
        if (items == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu hosts", room);
        }
        hosts->items = items;
    }
    struct tern_host *host = &hosts->items[hosts->count++];
    *host = (struct tern_host){.slots = slots};
    memcpy(host->name, name, length);
    host->is_local = tern_host_is_here(host->name);
    return TERN_OK;
}

static bool read_slots(const char *text, int64_t *slots_out)
{
    return tern_text_to_i64(text, slots_out) && *slots_out >= 1 &&
           *slots_out <= TERN_HOST_SLOTS_MAX;
}

/* "NAME" or "NAME:N"; *slots_out stays as it is without a number. */
static tern_status read_name(char *word, int64_t *slots_out)
{
    char *colon = strchr(word, ':');
    if (colon != NULL) {
        *colon = '\0';
        if (!read_slots(colon + 1, slots_out)) {
            return tern_fail(TERN_ERR_INPUT,
                             "found '%.60s' after '%.60s:', expected slots from 1 to %d", colon + 1,
                             word, TERN_HOST_SLOTS_MAX);
        }
    }
    if (!is_name(word, strlen(word))) {
        return tern_fail(
            TERN_ERR_INPUT,
            "found '%.80s', expected a host's name of letters, digits, '.', '-' and '_'", word);
    }
    return TERN_OK;
}

static tern_status read_line(char *line, struct tern_hosts *hosts)
{
    static const char blanks[] = " \t\r\v\f";
    char *rest = NULL;
    int64_t slots = 0;
    line[strcspn(line, "#")] = '\0';
    char *name = strtok_r(line, blanks, &rest);
    if (name == NULL) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(read_name(name, &slots));
    for (char *word = strtok_r(NULL, blanks, &rest); word != NULL;
         word = strtok_r(NULL, blanks, &rest)) {
        int64_t number;
        size_t key = strcspn(word, "=");
        bool is_slots = key == 5 && strncmp(word, "slots", key) == 0;
        bool is_limit = (key == 9 && strncmp(word, "max_slots", key) == 0) ||
                        (key == 9 && strncmp(word, "max-slots", key) == 0);
        if ((!is_slots && !is_limit) || word[key] != '=') {
            return tern_fail(TERN_ERR_INPUT,
                             "found '%.80s' after '%.80s', expected slots=N or max_slots=N", word,
                             name);
        }
        if (!read_slots(word + key + 1, &number)) {
            return tern_fail(TERN_ERR_INPUT, "found '%.80s', expected a number from 1 to %d", word,
                             TERN_HOST_SLOTS_MAX);
        }
        slots = is_slots || slots == 0 ? number : slots;
    }
    return add(hosts, name, strlen(name), slots);
}

static tern_status none_of(const char *name, struct tern_hosts *out)
{
    return out->count > 0
               ? TERN_OK
               : tern_fail(TERN_ERR_INPUT, "%s: found no host, expected at least one", name);
}

tern_status tern_hosts_parse(const char *path,
                             const char *text,
                             size_t bytes,
                             struct tern_hosts *out)
{
    *out = (struct tern_hosts){0};
    tern_status status = TERN_OK;
    size_t at = 0;
    for (int number = 1; at < bytes && status == TERN_OK; number++) {
        char line[LINE_BYTES_MAX];
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - (text + at)) : bytes - at;
        if (length >= sizeof line || memchr(text + at, '\0', length) != NULL) {
            status = tern_fail(TERN_ERR_INPUT, "found %zu bytes, expected a line of text below %d",
                               length, LINE_BYTES_MAX);
        } else {
            memcpy(line, text + at, length);
            line[length] = '\0';
            status = read_line(line, out);
        }
        if (status != TERN_OK) {
            status = tern_fail_prefix(status, "%s:%d", path, number);
        }
        at += length + 1;
    }
    status = status == TERN_OK ? none_of(path, out) : status;
    if (status != TERN_OK) {
        tern_hosts_fini(out);
    }
    return status;
}

tern_status tern_hosts_parse_list(const char *list, struct tern_hosts *out)
{
    *out = (struct tern_hosts){0};
    tern_status status = TERN_OK;
    while (*list != '\0' && status == TERN_OK) {
        char word[TERN_HOST_NAME_BYTES + 16];
        int64_t slots = 1;
        size_t length = strcspn(list, ",");
        if (length >= sizeof word) {
            status = tern_fail(TERN_ERR_INPUT, "found a name of %zu bytes, expected fewer", length);
            break;
        }
        memcpy(word, list, length);
        word[length] = '\0';
        status = read_name(word, &slots);
        status = status == TERN_OK ? add(out, word, strlen(word), slots) : status;
        list += length + (list[length] == ',');
    }
    status = status == TERN_OK ? none_of("the list of hosts", out) : status;
    if (status != TERN_OK) {
        tern_hosts_fini(out);
    }
    return status;
}

void tern_hosts_fini(struct tern_hosts *hosts)
{
    tern_free(hosts->items);
    *hosts = (struct tern_hosts){0};
}

void tern_hosts_remember(struct tern_hosts *hosts, const struct tern_hosts *old)
{
    for (int i = 0; i < hosts->count; i++) {
        for (int j = 0; j < old->count; j++) {
            if (strcmp(hosts->items[i].name, old->items[j].name) == 0) {
                int64_t slots = hosts->items[i].slots;
                hosts->items[i] = old->items[j];
                hosts->items[i].slots = slots;
                break;
            }
        }
    }
}

struct tern_host *tern_hosts_find(const struct tern_hosts *hosts, const char *name)
{
    size_t length = strcspn(name, ".");
    for (int i = 0; i < hosts->count; i++) {
        const char *other = hosts->items[i].name;
        if (strcspn(other, ".") == length && strncmp(name, other, length) == 0) {
            return &hosts->items[i];
        }
    }
    return NULL;
}

int tern_hosts_up(const struct tern_hosts *hosts)
{
    int up = 0;
    for (int i = 0; i < hosts->count; i++) {
        up += hosts->items[i].is_up;
    }
    return up;
}

/* Of one host; 0: it does not say and there is no wish. */
static int64_t slots_of(const struct tern_hosts *hosts, int i, int64_t wanted)
{
    return hosts->items[i].slots > 0 ? hosts->items[i].slots
                                     : (wanted + hosts->count - 1) / hosts->count;
}

int64_t tern_hosts_ranks(const struct tern_hosts *hosts, int64_t wanted)
{
    int64_t ranks = 0;
    for (int i = 0; i < hosts->count; i++) {
        if (!hosts->items[i].is_up) {
            continue;
        }
        int64_t slots = slots_of(hosts, i, wanted);
        if (slots == 0) {
            return 0;
        }
        ranks += slots;
    }
    return wanted > 0 && ranks > wanted ? wanted : ranks;
}

tern_status tern_hosts_write(const struct tern_hosts *hosts,
                             int64_t wanted,
                             bool is_list,
                             struct tern_text *out)
{
    const char *between = "";
    for (int i = 0; i < hosts->count; i++) {
        if (!hosts->items[i].is_up) {
            continue;
        }
        int64_t slots = slots_of(hosts, i, wanted);
        const char *name = hosts->items[i].name;
        if (is_list) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s%s:%lld", between, name,
                                                (long long)(slots > 0 ? slots : 1)));
            between = ",";
        } else if (slots > 0) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s slots=%lld\n", name, (long long)slots));
        } else {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s\n", name));
        }
    }
    return TERN_OK;
}
