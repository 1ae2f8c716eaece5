/* store_s3_parts.c - multi-part uploads of S3: begun or gone on with, parts, completion, what was
 * left behind. */
#include "io/store_s3.h"

#include <stdio.h>
#include <string.h>

/* ---- uploads that are there ---- */

struct uploads {
    tern_status (*visit)(void *context, const char *key, const char *id);
    void *context;
    char key[TERN_STORE_KEY_BYTES];
    char id[TERN_STORE_ID_BYTES];
    char next_key[TERN_STORE_KEY_BYTES];
    char next_id[TERN_STORE_ID_BYTES];
    bool is_truncated;
};

static tern_status read_uploads(void *context, int depth, const char *name, const char *text)
{
    struct uploads *uploads = context;
    if (depth == 1 && strcmp(name, "Upload") == 0) {
        if (text == NULL) {
            uploads->key[0] = uploads->id[0] = '\0';
            return TERN_OK;
        }
        return uploads->visit(uploads->context, uploads->key, uploads->id);
    }
    if (text == NULL) {
        return TERN_OK;
    }
    size_t bytes = strlen(text);
    if (depth == 2 && strcmp(name, "Key") == 0) {
        return tern_store_copy(uploads->key, sizeof uploads->key, text, bytes, "a key");
    }
    if (depth == 2 && strcmp(name, "UploadId") == 0) {
        return tern_store_copy(uploads->id, sizeof uploads->id, text, bytes, "an upload's id");
    }
    if (depth == 1 && strcmp(name, "NextKeyMarker") == 0) {
        return tern_store_copy(uploads->next_key, sizeof uploads->next_key, text, bytes, "a key");
    }
    if (depth == 1 && strcmp(name, "NextUploadIdMarker") == 0) {
        return tern_store_copy(uploads->next_id, sizeof uploads->next_id, text, bytes,
                               "an upload's id");
    }
    if (depth == 1 && strcmp(name, "IsTruncated") == 0) {
        uploads->is_truncated = strcmp(text, "true") == 0;
    }
    return TERN_OK;
}

static tern_status each_upload(struct tern_store *store,
                               struct tern_store_conn *conn,
                               const char *prefix,
                               tern_status (*visit)(void *context, const char *key, const char *id),
                               void *context)
{
    struct uploads uploads = {.visit = visit, .context = context};
    do {
        char key[TERN_STORE_KEY_BYTES], id[TERN_STORE_ID_BYTES];
        struct tern_store_request request = {.method = "GET", .root = "ListMultipartUploadsResult"};
        struct tern_store_reply reply;
        strcpy(key, uploads.next_key);
        strcpy(id, uploads.next_id);
        tern_store_add_pair(&request, "uploads", "");
        tern_store_add_pair(&request, "prefix", prefix);
        if (key[0] != '\0') {
            tern_store_add_pair(&request, "key-marker", key);
            tern_store_add_pair(&request, "upload-id-marker", id);
        }
        uploads.is_truncated = false;
        tern_status status = tern_store_send(store, conn, &request, &reply);
        if (status == TERN_OK) {
            status = tern_xml_each(reply.answer.body.data, reply.answer.body.length, read_uploads,
                                   &uploads);
        }
        tern_store_reply_fini(&reply);
        TERN_RETURN_IF_ERR(status);
        if (strcmp(key, uploads.next_key) == 0 && strcmp(id, uploads.next_id) == 0) {
            return TERN_OK; /* no step forward: the end, or a store that does not know markers */
        }
    } while (uploads.is_truncated);
    return TERN_OK;
}

/* ---- begin ---- */

static tern_status keep_if_same_key(void *context, const char *key, const char *id)
{
    struct tern_store_upload *upload = context;
    if (strcmp(key, upload->key) == 0) {
        snprintf(upload->id, sizeof upload->id, "%s", id);
    }
    return TERN_OK;
}

struct part_list {
    struct tern_store_part *parts;
    int capacity;
    struct tern_store_part part; /* as it is read */
    int64_t next;
    bool is_truncated;
};

static tern_status read_parts(void *context, int depth, const char *name, const char *text)
{
    struct part_list *list = context;
    int64_t value = 0;
    if (depth == 1 && strcmp(name, "Part") == 0) {
        if (text == NULL) {
            list->part = (struct tern_store_part){0};
        } else if (list->part.number >= 1 && list->part.number <= list->capacity) {
            list->parts[list->part.number - 1] = list->part;
        }
        return TERN_OK;
    }
    if (text == NULL) {
        return TERN_OK;
    }
    bool is_number = tern_text_to_i64(text, &value) && value >= 0;
    if (depth == 2 && strcmp(name, "PartNumber") == 0 && is_number &&
        value <= TERN_STORE_PARTS_MAX) {
        list->part.number = (int)value;
    } else if (depth == 2 && strcmp(name, "Size") == 0 && is_number) {
        list->part.bytes = value;
    } else if (depth == 2 && strcmp(name, "ETag") == 0) {
        snprintf(list->part.etag, sizeof list->part.etag, "%.100s", text);
    } else if (depth == 2 && strcmp(name, "ChecksumSHA256") == 0) {
        snprintf(list->part.sha256, sizeof list->part.sha256, "%.44s", text);
    } else if (depth == 1 && strcmp(name, "NextPartNumberMarker") == 0 && is_number) {
        list->next = value;
    } else if (depth == 1 && strcmp(name, "IsTruncated") == 0) {
        list->is_truncated = strcmp(text, "true") == 0;
    }
    return TERN_OK;
}

static tern_status list_parts(struct tern_store *store,
                              struct tern_store_conn *conn,
                              const struct tern_store_upload *upload,
                              struct tern_store_part *parts,
                              int capacity)
{
    struct part_list list = {.parts = parts, .capacity = capacity};
    int64_t from;
    do {
        char marker[24];
        struct tern_store_request request = {
            .method = "GET", .key = upload->key, .root = "ListPartsResult"};
        struct tern_store_reply reply;
        from = list.next;
        snprintf(marker, sizeof marker, "%lld", (long long)from);
        tern_store_add_pair(&request, "uploadId", upload->id);
        if (from > 0) {
            tern_store_add_pair(&request, "part-number-marker", marker);
        }
        list.is_truncated = false;
        tern_status status = tern_store_send(store, conn, &request, &reply);
        if (status == TERN_OK) {
            status =
                tern_xml_each(reply.answer.body.data, reply.answer.body.length, read_parts, &list);
        }
        tern_store_reply_fini(&reply);
        TERN_RETURN_IF_ERR(status);
    } while (list.is_truncated && list.next > from);
    return TERN_OK;
}

static tern_status read_id(void *context, int depth, const char *name, const char *text)
{
    struct tern_store_upload *upload = context;
    if (depth == 1 && text != NULL && strcmp(name, "UploadId") == 0) {
        return tern_store_copy(upload->id, sizeof upload->id, text, strlen(text), "an upload's id");
    }
    return TERN_OK;
}

static tern_status begin_new(struct tern_store *store,
                             struct tern_store_conn *conn,
                             struct tern_store_upload *upload)
{
    struct tern_store_request request = {
        .method = "POST", .key = upload->key, .root = "InitiateMultipartUploadResult"};
    struct tern_store_reply reply;
    tern_store_add_pair(&request, "uploads", "");
    tern_store_add_header(&request, "Content-Type: application/octet-stream");
    if (!store->is_google) {
        tern_store_add_header(&request, "x-amz-checksum-algorithm: SHA256");
    }
    upload->id[0] = '\0';
    tern_status status = tern_store_send(store, conn, &request, &reply);
    if (status == TERN_OK) {
        status = tern_xml_each(reply.answer.body.data, reply.answer.body.length, read_id, upload);
    }
    if (status == TERN_OK && upload->id[0] == '\0') {
        status = tern_fail(TERN_ERR_IO, "%s: the store began an upload without an id", store->url);
    }
    tern_store_reply_fini(&reply);
    return status;
}

tern_status tern_s3_begin(struct tern_store *store,
                          struct tern_store_conn *conn,
                          struct tern_store_upload *upload,
                          struct tern_store_part *parts,
                          int capacity)
{
    upload->id[0] = '\0';
    tern_status status = each_upload(store, conn, upload->key, keep_if_same_key, upload);
    if (status == TERN_OK && upload->id[0] != '\0') {
        status = list_parts(store, conn, upload, parts, capacity);
    }
    if (status == TERN_ERR_CANCELLED) {
        return status;
    }
    if (status == TERN_OK && upload->id[0] != '\0') {
        return TERN_OK;
    }
    /* not allowed to look, perhaps: that is no reason not to write */
    memset(parts, 0, (size_t)capacity * sizeof *parts);
    return begin_new(store, conn, upload);
}

/* ---- parts ---- */

bool tern_s3_is_same(struct tern_store_part *part, const void *data, size_t bytes)
{
    uint8_t digest[TERN_SHA256_BYTES];
    char text[TERN_SHA256_HEX_BYTES];
    if (part->bytes != (int64_t)bytes || part->etag[0] == '\0') {
        return false;
    }
    tern_sha256(data, bytes, digest);
    tern_base64(digest, sizeof digest, text);
    if (part->sha256[0] != '\0') {
        return strcmp(text, part->sha256) == 0;
    }
    memcpy(part->sha256, text, TERN_SHA256_BASE64_BYTES);
    const char *etag = part->etag + (part->etag[0] == '"');
    tern_md5(data, bytes, digest);
    tern_hex(digest, TERN_MD5_BYTES, text);
    return strncmp(etag, text, 32) == 0;
}

tern_status tern_s3_part(struct tern_store *store,
                         struct tern_store_conn *conn,
                         const struct tern_store_upload *upload,
                         struct tern_store_part *part,
                         const void *data)
{
    char number[16];
    struct tern_store_request request = {
        .method = "PUT",
        .key = upload->key,
        .has_fault = true,
        .fault = TERN_FAULT_STORE_PART,
    };
    struct tern_s3_check check = {0};
    struct tern_store_reply reply;
    snprintf(number, sizeof number, "%d", part->number);
    tern_store_add_pair(&request, "partNumber", number);
    tern_store_add_pair(&request, "uploadId", upload->id);
    tern_s3_check_body(store, data, (size_t)part->bytes, &check, &request);
    tern_status status = tern_store_send(store, conn, &request, &reply);
    if (status == TERN_OK) {
        snprintf(part->sha256, sizeof part->sha256, "%s", check.base64);
        if (tern_http_header(&reply.answer, "etag", part->etag, sizeof part->etag) == NULL) {
            status = tern_fail(TERN_ERR_IO, "%s: the store took part %d without an ETag",
                               store->url, part->number);
        }
    }
    tern_store_reply_fini(&reply);
    return status;
}

static tern_status print_parts(const struct tern_store *store,
                               const struct tern_store_part *parts,
                               int count,
                               struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "<CompleteMultipartUpload>"));
    for (int i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "<Part><PartNumber>%d</PartNumber><ETag>", parts[i].number));
        TERN_RETURN_IF_ERR(tern_xml_quote(out, parts[i].etag));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "</ETag>"));
        if (!store->is_google) {
            TERN_RETURN_IF_ERR(
                tern_text_printf(out, "<ChecksumSHA256>%s</ChecksumSHA256>", parts[i].sha256));
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "</Part>"));
    }
    return tern_text_printf(out, "</CompleteMultipartUpload>");
}

tern_status tern_s3_complete(struct tern_store *store,
                             struct tern_store_conn *conn,
                             struct tern_store_upload *upload,
                             const struct tern_store_part *parts,
                             int count)
{
    struct tern_text body = {0};
    tern_status status = print_parts(store, parts, count, &body);
    struct tern_store_request request = {
        .method = "POST",
        .key = upload->key,
        .root = "CompleteMultipartUploadResult",
        .accepts = {404},
        .body = body.data,
        .body_bytes = body.length,
        .has_fault = true,
        .fault = TERN_FAULT_STORE_COMPLETE,
    };
    struct tern_store_reply reply = {0};
    tern_store_add_pair(&request, "uploadId", upload->id);
    tern_store_add_header(&request, "Content-Type: application/xml");
    if (status == TERN_OK) {
        status = tern_store_send(store, conn, &request, &reply);
    }
    if (status == TERN_OK && reply.answer.status == 404) {
        status = tern_fail(TERN_ERR_AGAIN, "%s: the store knows nothing of the upload of %s",
                           store->url, upload->key);
    }
    tern_store_reply_fini(&reply);
    tern_text_fini(&body);
    return status;
}

/* ---- what was left behind ---- */

struct sweep {
    struct tern_store *store;
    struct tern_store_conn *conn;
    const char *prefix;
    int removed;
};

static tern_status abort_one(void *context, const char *key, const char *id)
{
    struct sweep *sweep = context;
    struct tern_store_request request = {.method = "DELETE", .key = key, .accepts = {404}};
    struct tern_store_reply reply;
    if (strncmp(key, sweep->prefix, strlen(sweep->prefix)) != 0) {
        return TERN_OK;
    }
    tern_store_add_pair(&request, "uploadId", id);
    tern_status status = tern_store_send(sweep->store, sweep->conn, &request, &reply);
    tern_store_reply_fini(&reply);
    sweep->removed += status == TERN_OK;
    return status;
}

tern_status tern_s3_remove_uploads(struct tern_store *store,
                                   struct tern_store_conn *conn,
                                   const char *prefix,
                                   int *removed_out)
{
    struct sweep sweep = {store, conn, prefix, 0};
    tern_status status = each_upload(store, conn, prefix, abort_one, &sweep);
    *removed_out = sweep.removed;
    return status;
}
