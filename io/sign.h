/* sign.h - what proves to an object store who asks: AWS Signature Version 4 (AWS General Reference,
 * "Signature Version 4 signing process"; S3's rules for paths) and Azure's Shared Key ("Authorize
 * with Shared Key", Blob service). Pure functions of their arguments. */
#ifndef TERN_IO_SIGN_H
#define TERN_IO_SIGN_H

#include "runtime/base/text.h"

#include <time.h>

enum {
    TERN_SIGN_PAIRS_MAX = 16, /* query pairs of a request */
    TERN_SIGN_HEADERS_MAX = 24,
    TERN_SIGN_TIME_BYTES = 17, /* "20130524T000000Z" */
    TERN_SIGN_DATE_BYTES = 30, /* "Fri, 24 May 2013 00:00:00 GMT" */
};

/* A name and a value of a query, not encoded. */
struct tern_pair {
    const char *name, *value;
};

/* Appends text with every byte but A-Z a-z 0-9 - _ . ~ as %XX; '/' stays when keeps_slash. */
TERN_MUST_CHECK tern_status tern_url_encode(struct tern_text *out,
                                            const char *text,
                                            bool keeps_slash);
/* Appends "name=value&...", encoded and in the order that is signed: by name, then value. */
TERN_MUST_CHECK tern_status tern_url_query(struct tern_text *out,
                                           const struct tern_pair *pairs,
                                           int count);
const char *tern_sign_time(time_t now, char out[TERN_SIGN_TIME_BYTES]);
const char *tern_sign_date(time_t now, char out[TERN_SIGN_DATE_BYTES]);

struct tern_sign_request {
    const char *method;
    const char *path;           /* encoded, exactly as sent */
    const char *query;          /* as tern_url_query prints it */
    const char *const *headers; /* "Name: value": all that are to be signed, host among them */
    int header_count;           /* at most TERN_SIGN_HEADERS_MAX */
    const char *payload_hash;   /* SHA-256 of the body in hexadecimal, or UNSIGNED-PAYLOAD */
    const char *access, *secret, *region, *service;
    bool is_google; /* GOOG4-HMAC-SHA256: the same under other names */
    time_t now;
};

/* Appends the value of the Authorization header. canonical_out, if not NULL, gets the canonical
 * request (for tests and for sentences). */
TERN_MUST_CHECK tern_status tern_sign_v4(const struct tern_sign_request *request,
                                         struct tern_text *out,
                                         struct tern_text *canonical_out);

struct tern_sign_shared_key {
    const char *method;
    const char *account;
    const char *key;  /* base64 */
    const char *path; /* encoded, exactly as sent */
    const struct tern_pair *pairs;
    int pair_count;
    const char *const *headers; /* "Name: value"; x-ms-date among them */
    int header_count;
    size_t body_bytes;
};
/* Appends the value of the Authorization header. TERN_ERR_CONFIG: the key is no base64. */
TERN_MUST_CHECK tern_status tern_sign_azure(const struct tern_sign_shared_key *request,
                                            struct tern_text *out,
                                            struct tern_text *string_out);

#endif
