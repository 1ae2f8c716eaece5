/* http_request.c - from a parsed message to a path, a query and a route. */
#include "runtime/serve/http_request.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    unsigned bit;
} methods[] = {
    {"GET", TERN_HTTP_GET}, {"HEAD", TERN_HTTP_GET},    {"POST", TERN_HTTP_POST},
    {"PUT", TERN_HTTP_PUT}, {"PATCH", TERN_HTTP_PATCH}, {"DELETE", TERN_HTTP_DELETE},
};

#define METHOD_COUNT (sizeof methods / sizeof methods[0])

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Resolves %XX in place. False: a broken escape, or one of a control byte. */
static bool unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        if (*from == '%') {
            int high = hex_digit(from[1]);
            int low = high >= 0 ? hex_digit(from[2]) : -1;
            int byte = high * 16 + low;
            if (low < 0 || byte < 0x20 || byte == 0x7f) {
                return false;
            }
            *to++ = (char)byte;
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = '\0';
    return true;
}

bool tern_http_request_target(struct tern_http_request *request)
{
    char *path = request->message.text.data;
    request->is_head = strcmp(request->message.method, "HEAD") == 0;
    request->is_options = strcmp(request->message.method, "OPTIONS") == 0;
    if (strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0) {
        path = strchr(path, ':') + 3; /* absolute form: whose server it names is not asked */
        size_t authority = strcspn(path, "/?");
        if (authority == 0 || memchr(path, '@', authority) != NULL) {
            return false;
        }
        path += authority;
    } else if (path[0] != '/' && !(request->is_options && strcmp(path, "*") == 0)) {
        return false;
    }
    char *query = strchr(path, '?');
    request->query = "";
    request->rest = "";
    if (query != NULL) {
        *query = '\0';
        request->query = query + 1;
    }
    request->path = path[0] != '\0' ? path : "/";
    return unescape(path);
}

/* What "*" of the route stands for; NULL: the route does not fit. */
static const char *match(const struct tern_http_route *route, const char *path)
{
    size_t length = strlen(route->path);
    if (length > 0 && route->path[length - 1] == '*') {
        return strncmp(route->path, path, length - 1) == 0 ? path + length - 1 : NULL;
    }
    return strcmp(route->path, path) == 0 ? path + length : NULL;
}

static void write_allow(unsigned allowed, char out[TERN_HTTP_ALLOW_BYTES])
{
    size_t at = 0;
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        if ((allowed & methods[i].bit) != 0) {
            at += (size_t)snprintf(out + at, TERN_HTTP_ALLOW_BYTES - at, "%s, ", methods[i].name);
        }
    }
    snprintf(out + at, TERN_HTTP_ALLOW_BYTES - at, "OPTIONS");
}

int tern_http_request_route(struct tern_http_request *request,
                            const struct tern_http_route *routes,
                            size_t count,
                            char allow_out[TERN_HTTP_ALLOW_BYTES])
{
    unsigned method = 0, allowed = 0;
    bool is_server = request->is_options && strcmp(request->path, "*") == 0;
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        if (strcmp(request->message.method, methods[i].name) == 0) {
            method = methods[i].bit;
        }
    }
    for (size_t i = 0; i < count; i++) {
        const char *rest = match(&routes[i], request->path);
        if (rest != NULL || is_server) {
            allowed |= routes[i].methods;
        }
        if (rest != NULL && (routes[i].methods & method) != 0) {
            request->route = &routes[i];
            request->rest = rest;
            return 200;
        }
    }
    write_allow(allowed, allow_out);
    return request->is_options && allowed != 0 ? 200 : allowed != 0 ? 405 : 404;
}

void tern_http_request_fini(struct tern_http_request *request)
{
    tern_http_message_fini(&request->message);
}

const char *tern_http_request_method(const struct tern_http_request *request)
{
    return request->message.method;
}

const char *tern_http_request_path(const struct tern_http_request *request)
{
    return request->path;
}

const char *tern_http_request_rest(const struct tern_http_request *request)
{
    return request->rest;
}

const char *tern_http_request_query(const struct tern_http_request *request)
{
    return request->query;
}

const char *tern_http_request_header(const struct tern_http_request *request, const char *name)
{
    return tern_http_message_field(&request->message, name, NULL);
}

const void *tern_http_request_body(const struct tern_http_request *request, size_t *bytes_out)
{
    *bytes_out = request->message.body.length;
    return request->message.body.data != NULL ? request->message.body.data : "";
}
