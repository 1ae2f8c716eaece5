/* store.h - objects under a URL: S3 and what speaks like it, Google Cloud Storage, Azure Blob
 * storage, a folder.
 *
 *   s3://BUCKET/PREFIX   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL; AWS_REGION; AWS_CA_BUNDLE; keys from
 *                        AWS_ACCESS_KEY_ID ..., a web identity (AWS_WEB_IDENTITY_TOKEN_FILE and
 *                        AWS_ROLE_ARN; AWS_ENDPOINT_URL_STS), ~/.aws/credentials (AWS_PROFILE), the
 *                        container's (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI, with
 *                        AWS_CONTAINER_AUTHORIZATION_TOKEN or _TOKEN_FILE) or the instance's role
 *   gs://BUCKET/PREFIX   STORAGE_EMULATOR_HOST; GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY (HMAC keys), or
 *                        GOOGLE_OAUTH_ACCESS_TOKEN, GOOGLE_APPLICATION_CREDENTIALS, the metadata server
 *   az://CONTAINER/PREFIX  AZURE_STORAGE_ACCOUNT; AZURE_STORAGE_ENDPOINT; AZURE_STORAGE_KEY, or
 *                        AZURE_STORAGE_SAS_TOKEN, a workload's identity (AZURE_FEDERATED_TOKEN_FILE,
 *                        AZURE_CLIENT_ID, AZURE_TENANT_ID, AZURE_AUTHORITY_HOST), the managed identity
 *   file:///FOLDER       a folder, perhaps of a network file system
 *
 * SSL_CERT_FILE names the authorities whose certificates are believed, if not the system's;
 * TERN_METADATA_URL is the base of the metadata server (default: the cloud's own).
 *
 * A key is what follows PREFIX/: not empty, no NUL, at most 900 bytes. All calls are safe on any
 * thread. Each request is retried with full jitter while that can help, until the deadline of the
 * store's options or its own. Statuses: TERN_ERR_NOT_FOUND no such object; TERN_ERR_BUSY is_new and
 * there is one already; TERN_ERR_CANCELLED after tern_store_cancel; TERN_ERR_NO_SPACE; else
 * TERN_ERR_IO with what was tried, how often, and what the store said last. */
#ifndef TERN_IO_STORE_H
#define TERN_IO_STORE_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_STORE_KEY_BYTES = 1024,
    TERN_STORE_URL_BYTES = 2048,
    TERN_STORE_ETAG_BYTES = 128,
    TERN_STORE_PARALLEL_MAX = 64
};

struct tern_store_options {
    int64_t rate_bytes;   /* a second, of all transfers of this store together; 0: no limit */
    int64_t part_bytes;   /* of a large object moved at once; 0: 16 MiB; s3 wants 5 MiB at least;
                             TERN_STORE_PART_BYTES of the environment comes first */
    int parallel;         /* parts at once; 0: 4 */
    double pause_seconds; /* between the first two attempts at most, then twice as long, up to 20 s;
                             0: 0.1 */
    double retry_seconds; /* one request is retried for so long; 0: 120 */
    double stall_seconds; /* a connection on which nothing moves is given up; 0: 15, or
                              TERN_STORE_STALL_SECONDS of the environment */
};

struct tern_store_info {
    int64_t bytes;
    char etag[TERN_STORE_ETAG_BYTES]; /* of the version; "" unknown */
};

struct tern_store;

bool tern_store_is_url(const char *text);
/* Reads the environment; asks nobody yet. options NULL: all defaults. TERN_ERR_CONFIG names the URL
 * or the variable that is wrong. Owned: close. */
TERN_MUST_CHECK tern_status tern_store_open(const char *url,
                                            const struct tern_store_options *options,
                                            struct tern_store **out);
void tern_store_close(struct tern_store *store);
/* Without a '/' at the end. */
const char *tern_store_url(const struct tern_store *store);
/* Host memory that a put_file or get_file takes at most. */
int64_t tern_store_bytes(const struct tern_store_options *options);
/* Transfers under way end within a fraction of a second, later ones at once; false: from now on they
 * work again. */
void tern_store_cancel(struct tern_store *store, bool is_cancelled);
/* No transfer goes on beyond this time of tern_clock_seconds(); 0: no deadline. */
void tern_store_set_deadline(struct tern_store *store, double at);

/* is_new: only if there is no object of this key (If-None-Match: *); where there is one of the very
 * same bytes that counts as done. */
TERN_MUST_CHECK tern_status tern_store_put(struct tern_store *store,
                                           const char *key,
                                           const void *data,
                                           size_t bytes,
                                           bool is_new);
/* A file as one object, that is visible when it is whole or not at all. Parts that an earlier
 * attempt left are not sent again when they are the same. */
TERN_MUST_CHECK tern_status tern_store_put_file(struct tern_store *store,
                                                const char *key,
                                                const char *path);
/* Bytes [offset, offset + bytes) into dst; TERN_ERR_CORRUPT if the object ends before. etag, if not
 * NULL or "": of this version only (TERN_ERR_CORRUPT if it was replaced). */
TERN_MUST_CHECK tern_status tern_store_get(struct tern_store *store,
                                           const char *key,
                                           int64_t offset,
                                           size_t bytes,
                                           const char *etag,
                                           void *dst);
/* Whole object in a tern_alloc'd, NUL-terminated block. Refuses above bytes_max. */
TERN_MUST_CHECK tern_status tern_store_get_all(struct tern_store *store,
                                               const char *key,
                                               int64_t bytes_max,
                                               char **data_out,
                                               size_t *bytes_out);
/* Whole object into a file: durable under its name or not there. info_out may be NULL. */
TERN_MUST_CHECK tern_status tern_store_get_file(struct tern_store *store,
                                                const char *key,
                                                const char *path,
                                                struct tern_store_info *info_out);
TERN_MUST_CHECK tern_status tern_store_head(struct tern_store *store,
                                            const char *key,
                                            struct tern_store_info *out);
/* Every key that begins with prefix ("" all), in no promised order. */
TERN_MUST_CHECK tern_status tern_store_list(
    struct tern_store *store,
    const char *prefix,
    tern_status (*visit)(void *context, const char *key, const struct tern_store_info *info),
    void *context);
/* A missing object is fine. */
TERN_MUST_CHECK tern_status tern_store_remove(struct tern_store *store, const char *key);
/* Parts of objects that were never completed, under keys that begin with prefix. *removed_out counts. */
TERN_MUST_CHECK tern_status tern_store_remove_uploads(struct tern_store *store,
                                                      const char *prefix,
                                                      int *removed_out);

#endif
