/* store_azure.c - az://: block blobs of Azure Blob storage.
 *
 * A large blob is a list of blocks. A block's id is its number and the MD5 of its bytes, so that an
 * upload that was broken off is gone on with wherever the same bytes are to be sent. Blocks that no
 * list names vanish by themselves after a week. */
#include "io/digest.h"
#include "io/store_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_VERSION "x-ms-version: 2020-10-02"

enum {
    ID_BYTES = 38,       /* "%05d-" and 32 digits */
    ID_BASE64_BYTES = 53 /* 4 * ceil(38 / 3) + 1 */
};

/* ---- where, and who asks ---- */

/* The value of "Name=" in a connection string, copied; false if there is none. */
static bool connection_value(const char *name, char *out, size_t capacity)
{
    const char *text = tern_store_env("AZURE_STORAGE_CONNECTION_STRING");
    size_t bytes = strlen(name);
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, ";");
        if (length > bytes && strncmp(text, name, bytes) == 0 && text[bytes] == '=' &&
            length - bytes - 1 < capacity) {
            snprintf(out, capacity, "%.*s", (int)(length - bytes - 1), text + bytes + 1);
            return true;
        }
        text += length + (text[length] == ';');
    }
    return false;
}

static tern_status find_account(struct tern_store *store)
{
    const char *account = tern_store_env("AZURE_STORAGE_ACCOUNT");
    char given[TERN_STORE_NAME_BYTES];
    if (account == NULL && connection_value("AccountName", given, sizeof given)) {
        account = given;
    }
    if (account == NULL) {
        return tern_fail(TERN_ERR_CONFIG, "environment AZURE_STORAGE_ACCOUNT is not set (nor an "
                                          "AccountName in AZURE_STORAGE_CONNECTION_STRING)");
    }
    return tern_store_copy(store->account, 64, account, strlen(account), "the storage account");
}

/* An endpoint may have a path, as emulators do: "http://127.0.0.1:10000/devstoreaccount1". */
static tern_status open_azure(struct tern_store *store)
{
    char endpoint[TERN_STORE_URL_BYTES / 2], path[TERN_STORE_NAME_BYTES] = "";
    const char *given = tern_store_env("AZURE_STORAGE_ENDPOINT");
    const char *name = "AZURE_STORAGE_ENDPOINT";
    TERN_RETURN_IF_ERR(find_account(store));
    if (given != NULL) {
        TERN_RETURN_IF_ERR(tern_store_copy(endpoint, sizeof endpoint, given, strlen(given), name));
    } else if (!connection_value("BlobEndpoint", endpoint, sizeof endpoint)) {
        snprintf(endpoint, sizeof endpoint, "https://%s.blob.core.windows.net", store->account);
    }
    char *host = strstr(endpoint, "://");
    char *slash = strchr(host != NULL ? host + 3 : endpoint, '/');
    if (slash != NULL) {
        size_t length = strlen(slash);
        while (length > 0 && slash[length - 1] == '/') {
            length--;
        }
        TERN_RETURN_IF_ERR(tern_store_copy(path, sizeof path, slash, length, name));
        *slash = '\0';
    }
    snprintf(store->base_path, sizeof store->base_path, "%s/%s", path, store->bucket);
    store->fetch = tern_login_azure;
    return tern_store_set_endpoint(store, name, endpoint);
}

static tern_status sign(struct tern_store *store,
                        const struct tern_store_attempt *attempt,
                        struct tern_store_proof *out)
{
    const struct tern_store_request *request = attempt->request;
    const char *headers[TERN_STORE_HEADERS_MAX + 6];
    int count = 0;
    for (int i = 0; i < request->header_count; i++) {
        headers[count++] = request->headers[i];
    }
    for (int i = 0; i < out->line_count; i++) {
        headers[count++] = out->lines[i].data;
    }
    struct tern_sign_shared_key signing = {
        .method = request->method,
        .account = store->account,
        .key = attempt->login->secret,
        .path = attempt->path,
        .pairs = request->pairs,
        .pair_count = request->pair_count,
        .headers = headers,
        .header_count = count,
        .body_bytes = request->body_bytes,
    };
    struct tern_text *line = &out->lines[out->line_count++];
    TERN_RETURN_IF_ERR(tern_text_printf(line, "Authorization: "));
    return tern_sign_azure(&signing, line, NULL);
}

static tern_status prove(struct tern_store *store,
                         const struct tern_store_attempt *attempt,
                         struct tern_store_proof *out)
{
    char date[TERN_SIGN_DATE_BYTES];
    const struct tern_login *login = attempt->login;
    TERN_RETURN_IF_ERR(tern_text_printf(&out->lines[out->line_count++], "%s", API_VERSION));
    TERN_RETURN_IF_ERR(tern_text_printf(&out->lines[out->line_count++], "x-ms-date: %s",
                                        tern_sign_date(attempt->now, date)));
    switch (login->kind) {
    case TERN_LOGIN_SAS:
        return tern_text_printf(&out->query, "%s", login->secret);
    case TERN_LOGIN_BEARER:
        return tern_text_printf(&out->lines[out->line_count++], "Authorization: Bearer %s",
                                login->token);
    default:
        return sign(store, attempt, out);
    }
}

/* ---- objects ---- */

/* The header by which the service checks what came. */
static void set_body(struct tern_store_request *request,
                     const void *data,
                     size_t bytes,
                     char line[TERN_MD5_BASE64_BYTES + 16])
{
    uint8_t digest[TERN_MD5_BYTES];
    char text[TERN_MD5_BASE64_BYTES];
    tern_md5(data, bytes, digest);
    tern_base64(digest, sizeof digest, text);
    snprintf(line, TERN_MD5_BASE64_BYTES + 16, "Content-MD5: %s", text);
    request->body = data != NULL ? data : "";
    request->body_bytes = bytes;
    tern_store_add_header(request, line);
}

static tern_status put(struct tern_store *store,
                       struct tern_store_conn *conn,
                       const char *key,
                       const void *data,
                       size_t bytes,
                       bool is_new)
{
    struct tern_store_request request = {
        .method = "PUT",
        .key = key,
        .accepts = {412, 409},
        .has_fault = true,
        .fault = TERN_FAULT_STORE_PUT,
    };
    struct tern_store_reply reply;
    char line[TERN_MD5_BASE64_BYTES + 16];
    set_body(&request, data, bytes, line);
    tern_store_add_header(&request, "x-ms-blob-type: BlockBlob");
    tern_store_add_header(&request, "Content-Type: application/octet-stream");
    if (is_new) {
        tern_store_add_header(&request, "If-None-Match: *");
    }
    tern_status status = tern_store_send(store, conn, &request, &reply);
    if (status == TERN_OK && reply.answer.status >= 400) {
        status = is_new
                     ? tern_fail(TERN_ERR_BUSY, "az://%s/%s is there already", store->bucket, key)
                     : tern_fail(TERN_ERR_IO, "az://%s/%s: PUT was answered with %d %s",
                                 store->bucket, key, reply.answer.status, reply.code);
    }
    tern_store_reply_fini(&reply);
    return status;
}

/* ---- listing ---- */

/* EnumerationResults / Blobs / Blob / Name, Properties / Content-Length, Etag */
static tern_status read_page(void *context, int depth, const char *name, const char *text)
{
    struct tern_store_page *page = context;
    int64_t bytes;
    if (depth == 2 && strcmp(name, "Blob") == 0) {
        return tern_store_page_object(page, text);
    }
    if (text == NULL) {
        return TERN_OK;
    }
    if (depth == 3 && strcmp(name, "Name") == 0) {
        return tern_store_copy(page->key, sizeof page->key, text, strlen(text), "a blob's name");
    }
    if (depth == 4 && strcmp(name, "Content-Length") == 0 && tern_text_to_i64(text, &bytes) &&
        bytes >= 0) {
        page->info.bytes = bytes;
    } else if (depth == 4 && strcmp(name, "Etag") == 0) {
        snprintf(page->info.etag, sizeof page->info.etag, "%.100s", text);
    } else if (depth == 1 && strcmp(name, "NextMarker") == 0) {
        page->has_more = text[0] != '\0';
        return tern_store_page_next(page, text);
    }
    return TERN_OK;
}

static tern_status list(struct tern_store *store,
                        struct tern_store_conn *conn,
                        const char *prefix,
                        tern_store_visit visit,
                        void *context)
{
    struct tern_store_listing listing = {
        .request = {.method = "GET", .root = "EnumerationResults"},
        .marker = "marker",
        .read = read_page,
    };
    tern_store_add_pair(&listing.request, "restype", "container");
    tern_store_add_pair(&listing.request, "comp", "list");
    tern_store_add_pair(&listing.request, "prefix", prefix);
    return tern_store_list_pages(store, conn, &listing, visit, context);
}

/* ---- blocks ---- */

/* base64 of "NNNNN-" and the MD5 of the bytes. */
static void block_id(int number, const void *data, size_t bytes, char out[ID_BASE64_BYTES])
{
    uint8_t digest[TERN_MD5_BYTES];
    char hex[2 * TERN_MD5_BYTES + 1], id[ID_BYTES + 8];
    tern_md5(data, bytes, digest);
    tern_hex(digest, sizeof digest, hex);
    snprintf(id, sizeof id, "%05u-%s", (unsigned)number % 100000, hex);
    tern_base64((const uint8_t *)id, ID_BYTES, out);
}

struct block_list {
    struct tern_store_part *parts;
    int capacity;
    char name[TERN_STORE_ETAG_BYTES];
    int64_t bytes;
};

/* BlockList / UncommittedBlocks / Block / Name, Size */
static tern_status read_block(void *context, int depth, const char *name, const char *text)
{
    struct block_list *list = context;
    uint8_t id[ID_BYTES + 4];
    size_t bytes;
    if (text == NULL) {
        return TERN_OK;
    }
    if (depth == 3 && strcmp(name, "Name") == 0) {
        snprintf(list->name, sizeof list->name, "%.100s", text);
    } else if (depth == 3 && strcmp(name, "Size") == 0) {
        list->bytes = -1;
        (void)!tern_text_to_i64(text, &list->bytes);
    } else if (depth == 2 && strcmp(name, "Block") == 0 &&
               tern_base64_decode(list->name, id, sizeof id, &bytes) && bytes == ID_BYTES) {
        id[bytes] = '\0';
        int number = atoi((const char *)id);
        if (number >= 1 && number <= list->capacity) {
            struct tern_store_part *part = &list->parts[number - 1];
            *part = (struct tern_store_part){.number = number, .bytes = list->bytes};
            snprintf(part->etag, sizeof part->etag, "%s", list->name);
        }
    }
    return TERN_OK;
}

static tern_status begin(struct tern_store *store,
                         struct tern_store_conn *conn,
                         struct tern_store_upload *upload,
                         struct tern_store_part *parts,
                         int capacity)
{
    struct tern_store_request request = {.method = "GET", .key = upload->key, .accepts = {404}};
    struct tern_store_reply reply;
    struct block_list list = {.parts = parts, .capacity = capacity};
    tern_store_add_pair(&request, "comp", "blocklist");
    tern_store_add_pair(&request, "blocklisttype", "uncommitted");
    tern_status status = tern_store_send(store, conn, &request, &reply);
    if (status == TERN_OK && reply.answer.status == 200 &&
        tern_xml_each(reply.answer.body.data, reply.answer.body.length, read_block, &list) !=
            TERN_OK) {
        memset(parts, 0, (size_t)capacity * sizeof *parts);
    }
    tern_store_reply_fini(&reply);
    return status == TERN_ERR_CANCELLED ? status : TERN_OK; /* else all is sent anew */
}

static bool is_same(struct tern_store_part *part, const void *data, size_t bytes)
{
    char id[ID_BASE64_BYTES];
    block_id(part->number, data, bytes, id);
    return part->bytes == (int64_t)bytes && strcmp(id, part->etag) == 0;
}

static tern_status put_part(struct tern_store *store,
                            struct tern_store_conn *conn,
                            const struct tern_store_upload *upload,
                            struct tern_store_part *part,
                            const void *data)
{
    struct tern_store_request request = {
        .method = "PUT",
        .key = upload->key,
        .has_fault = true,
        .fault = TERN_FAULT_STORE_PART,
    };
    struct tern_store_reply reply;
    char line[TERN_MD5_BASE64_BYTES + 16], id[ID_BASE64_BYTES];
    block_id(part->number, data, (size_t)part->bytes, id);
    snprintf(part->etag, sizeof part->etag, "%s", id);
    tern_store_add_pair(&request, "comp", "block");
    tern_store_add_pair(&request, "blockid", id);
    set_body(&request, data, (size_t)part->bytes, line);
    tern_status status = tern_store_send(store, conn, &request, &reply);
    tern_store_reply_fini(&reply);
    return status;
}

static tern_status print_blocks(const struct tern_store_part *parts,
                                int count,
                                struct tern_text *out)
{
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>"));
    for (int i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "<Latest>%s</Latest>", parts[i].etag));
    }
    return tern_text_printf(out, "</BlockList>");
}

static tern_status complete(struct tern_store *store,
                            struct tern_store_conn *conn,
                            struct tern_store_upload *upload,
                            const struct tern_store_part *parts,
                            int count)
{
    struct tern_text body = {0};
    struct tern_store_reply reply = {0};
    char line[TERN_MD5_BASE64_BYTES + 16];
    struct tern_store_request request = {
        .method = "PUT",
        .key = upload->key,
        .accepts = {400, 404},
        .has_fault = true,
        .fault = TERN_FAULT_STORE_COMPLETE,
    };
    tern_status status = print_blocks(parts, count, &body);
    if (status == TERN_OK) {
        tern_store_add_pair(&request, "comp", "blocklist");
        tern_store_add_header(&request, "x-ms-blob-content-type: application/octet-stream");
        tern_store_add_header(&request, "Content-Type: application/xml");
        set_body(&request, body.data, body.length, line);
        status = tern_store_send(store, conn, &request, &reply);
    }
    if (status == TERN_OK && reply.answer.status >= 400) { /* InvalidBlockList */
        status = tern_fail(TERN_ERR_AGAIN, "az://%s/%s: the blocks were answered with %d %s",
                           store->bucket, upload->key, reply.answer.status, reply.code);
    }
    tern_store_reply_fini(&reply);
    tern_text_fini(&body);
    return status;
}

/* Blocks of no blob vanish by themselves. */
static tern_status remove_uploads(struct tern_store *store,
                                  struct tern_store_conn *conn,
                                  const char *prefix,
                                  int *removed_out)
{
    (void)store;
    (void)conn;
    (void)prefix;
    *removed_out = 0;
    return TERN_OK;
}

const struct tern_store_backend tern_store_azure = {
    .scheme = "az",
    .open = open_azure,
    .prove = prove,
    .put = put,
    .get = tern_store_get_range,
    .head = tern_store_head_object,
    .remove = tern_store_delete,
    .list = list,
    .begin = begin,
    .is_same = is_same,
    .part = put_part,
    .complete = complete,
    .uploads = remove_uploads,
    .part_bytes_min = 1 << 20,
};
