/* store_s3.h - what the two files of S3 share. */
#ifndef TERN_IO_STORE_S3_H
#define TERN_IO_STORE_S3_H

#include "io/digest.h"
#include "io/store_parts.h"

/* Checksums of a body, as header and for what names the body later. */
struct tern_s3_check {
    char line[80];
    char hex[TERN_SHA256_HEX_BYTES];
    char base64[TERN_SHA256_BASE64_BYTES]; /* of SHA-256; "" with Google, which takes MD5 */
};
/* Sets the request's body and adds the header by which the store checks what came; check lives as
 * long as the request. */
void tern_s3_check_body(const struct tern_store *store,
                        const void *data,
                        size_t bytes,
                        struct tern_s3_check *check,
                        struct tern_store_request *request);

tern_status tern_s3_begin(struct tern_store *store,
                          struct tern_store_conn *conn,
                          struct tern_store_upload *upload,
                          struct tern_store_part *parts,
                          int capacity);
bool tern_s3_is_same(struct tern_store_part *part, const void *data, size_t bytes);
tern_status tern_s3_part(struct tern_store *store,
                         struct tern_store_conn *conn,
                         const struct tern_store_upload *upload,
                         struct tern_store_part *part,
                         const void *data);
tern_status tern_s3_complete(struct tern_store *store,
                             struct tern_store_conn *conn,
                             struct tern_store_upload *upload,
                             const struct tern_store_part *parts,
                             int count);
tern_status tern_s3_remove_uploads(struct tern_store *store,
                                   struct tern_store_conn *conn,
                                   const char *prefix,
                                   int *removed_out);

#endif
