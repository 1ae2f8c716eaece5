/* store_parts.h - what the stores share among themselves: the table that each fills, one request
 * with its retries, who asks. */
#ifndef TERN_IO_STORE_PARTS_H
#define TERN_IO_STORE_PARTS_H

#include "io/http_client.h"
#include "io/sign.h"
#include "io/store.h"
#include "io/xml.h"
#include "runtime/base/fault.h"
#include "runtime/base/text.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TERN_STORE_NAME_BYTES = 256, /* bucket, account, region */
    TERN_STORE_CODE_BYTES = 64,
    TERN_STORE_PARTS_MAX = 10000,
    TERN_STORE_TOKEN_BYTES = 8192,
    TERN_STORE_ID_BYTES = 1024,
    TERN_STORE_HEADERS_MAX = 16,
};

/* ---- who asks ---- */

enum tern_login_kind {
    TERN_LOGIN_KEYS,   /* access and secret, perhaps a session token */
    TERN_LOGIN_SHARED, /* account and its key */
    TERN_LOGIN_SAS,    /* secret: a query to be appended */
    TERN_LOGIN_BEARER  /* token */
};

struct tern_login {
    enum tern_login_kind kind;
    char access[TERN_STORE_NAME_BYTES];
    char secret[2048];
    char token[TERN_STORE_TOKEN_BYTES];
    double expires; /* wall time in seconds; 0: never */
};

struct tern_store;
/* Fetches the login from where it comes from. */
typedef tern_status (*tern_login_fetch)(struct tern_store *store, struct tern_login *out);

/* ---- one store ---- */

struct tern_store_backend;

/* A connection and the buffers of one thread's transfers. */
struct tern_store_conn {
    struct tern_http_client *http;
    struct tern_store_conn *next;
};

struct tern_store {
    const struct tern_store_backend *backend;
    struct tern_store_options options; /* with defaults filled in */
    char url[TERN_STORE_URL_BYTES];
    char bucket[TERN_STORE_NAME_BYTES];        /* file: unused */
    char prefix[TERN_STORE_KEY_BYTES];         /* "" or ends with '/'; file: the folder */
    char endpoint[TERN_STORE_URL_BYTES];       /* scheme://host[:port] */
    char base_path[TERN_STORE_NAME_BYTES * 2]; /* encoded: "" or "/bucket" */
    char region[TERN_STORE_NAME_BYTES];
    char account[TERN_STORE_NAME_BYTES]; /* az */
    char
        ca_file[TERN_STORE_URL_BYTES]; /* of the authorities that are believed; "" the usual ones */
    bool is_google;
    struct tern_http_rate *rate;
    atomic_bool is_cancelled;
    _Atomic double deadline;
    _Atomic int allowed;         /* parts at once, after what the store bore so far */
    _Atomic double clock_offset; /* the store's wall clock less ours, seconds */
    _Atomic uint64_t draws;
    uint64_t seed;
    pthread_mutex_t lock; /* of what follows */
    struct tern_store_conn *idle;
    tern_login_fetch fetch;
    struct tern_login login;
    bool has_login;
    double renew_after; /* wall time in seconds: not before, as long as the login holds */
};

/* ---- a request ---- */

struct tern_store_request {
    const char *method;
    const char *key; /* full key in the bucket, not encoded; NULL: the bucket itself */
    struct tern_pair pairs[TERN_SIGN_PAIRS_MAX];
    int pair_count;
    const char *headers[TERN_STORE_HEADERS_MAX]; /* besides those that the signature asks for */
    int header_count;
    const void *body;
    size_t body_bytes;
    const char *sha256; /* of the body in hexadecimal, when known */
    size_t answer_bytes_max;
    void *
        dst; /* an answer of 200 to 299 goes here, and must have dst_bytes; NULL: into the answer */
    size_t dst_bytes;
    const char *root; /* root element that the body of a good answer must have; NULL: no XML */
    int accepts[4];   /* statuses besides 200 to 299 that are the caller's business; 0 ends */
    bool has_fault;   /* each attempt passes this point: an error there is a cut connection, a full
                         disk a full store */
    enum tern_fault_point fault;
};

struct tern_store_reply {
    struct tern_http_answer answer;
    int tries;                        /* attempts that were made */
    char code[TERN_STORE_CODE_BYTES]; /* of an <Error> */
};

/* Sends it, again while that can help. TERN_OK: a status of 200 to 299 or one of accepts. Fini in
 * every case. */
TERN_MUST_CHECK tern_status tern_store_send(struct tern_store *store,
                                            struct tern_store_conn *conn,
                                            const struct tern_store_request *request,
                                            struct tern_store_reply *out);
/* Requests that are the same with every store over HTTP; they are entries of a backend's table. */
TERN_MUST_CHECK tern_status tern_store_get_range(struct tern_store *store,
                                                 struct tern_store_conn *conn,
                                                 const char *key,
                                                 int64_t offset,
                                                 size_t bytes,
                                                 const char *etag,
                                                 void *dst);
TERN_MUST_CHECK tern_status tern_store_head_object(struct tern_store *store,
                                                   struct tern_store_conn *conn,
                                                   const char *key,
                                                   struct tern_store_info *out);
TERN_MUST_CHECK tern_status tern_store_delete(struct tern_store *store,
                                              struct tern_store_conn *conn,
                                              const char *key);
/* The endpoint from a variable of the environment, "http://host:port" or "host:port". */
TERN_MUST_CHECK tern_status tern_store_set_endpoint(struct tern_store *store,
                                                    const char *name,
                                                    const char *value);
void tern_store_reply_fini(struct tern_store_reply *reply);
void tern_store_add_pair(struct tern_store_request *request, const char *name, const char *value);
void tern_store_add_header(struct tern_store_request *request, const char *line);
/* Waits up to `seconds`; less when cancelled or past the deadline, which it then answers. */
TERN_MUST_CHECK tern_status tern_store_wait(struct tern_store *store, double seconds);
/* TERN_OK, or why nothing may go on. */
TERN_MUST_CHECK tern_status tern_store_check(struct tern_store *store);
TERN_MUST_CHECK tern_status tern_store_borrow(struct tern_store *store,
                                              struct tern_store_conn **out);
void tern_store_give_back(struct tern_store *store, struct tern_store_conn *conn);
/* prefix + key */
TERN_MUST_CHECK tern_status tern_store_full_key(const struct tern_store *store,
                                                const char *key,
                                                char out[TERN_STORE_KEY_BYTES]);
/* Uniform in [0, 1), another one each time. */
double tern_store_draw(struct tern_store *store);
double tern_store_wall_seconds(void);
/* The login, fetched or renewed when it is about to expire; `anew`: the store refused the one that
 * there is. */
TERN_MUST_CHECK tern_status tern_store_login(struct tern_store *store,
                                             bool anew,
                                             struct tern_login *out);
/* The header lines that prove who asks, for one attempt. host: as sent. */
struct tern_store_proof {
    struct tern_text lines[6];
    int line_count;
    struct tern_text query; /* what was appended to the query: SAS */
};
struct tern_store_attempt {
    const struct tern_store_request *request;
    const char *path, *query; /* encoded, as sent */
    const char *host;
    const struct tern_login *login;
    time_t now;
};

/* ---- backends ---- */

struct tern_store_part {
    int number; /* from 1 */
    int64_t bytes;
    char etag[TERN_STORE_ETAG_BYTES];
    char sha256[48]; /* base64; "" unknown */
};

struct tern_store_upload {
    const char *key; /* full */
    char id[TERN_STORE_ID_BYTES];
    int64_t bytes;      /* of the object */
    int64_t part_bytes; /* of every part but the last */
    void *state;        /* the backend's; let go by drop */
};

typedef tern_status (*tern_store_visit)(void *context,
                                        const char *key,
                                        const struct tern_store_info *info);

/* ---- listings ---- */

/* One page as it is read. */
struct tern_store_page {
    tern_store_visit visit;
    void *context;
    char key[TERN_STORE_KEY_BYTES]; /* of the object that is being read */
    struct tern_store_info info;
    struct tern_text next; /* where the next page begins */
    bool has_more;
};

struct tern_store_listing {
    struct tern_store_request request; /* for the first page; root is its root */
    const char *marker;                /* query name that asks for the page at `next` */
    tern_xml_visit read;               /* context: a struct tern_store_page */
};

/* For `read`: the element of one object starts (text NULL) or ends, which visits it. */
TERN_MUST_CHECK tern_status tern_store_page_object(struct tern_store_page *page, const char *text);
/* For `read`: where the next page begins. */
TERN_MUST_CHECK tern_status tern_store_page_next(struct tern_store_page *page, const char *text);
TERN_MUST_CHECK tern_status tern_store_list_pages(struct tern_store *store,
                                                  struct tern_store_conn *conn,
                                                  const struct tern_store_listing *listing,
                                                  tern_store_visit visit,
                                                  void *context);

/* ---- a backend ---- */

/* Keys are full: prefix included. Every call is one step that may be repeated. */
struct tern_store_backend {
    const char *scheme; /* "s3" */
    /* bucket and prefix are set; fills the rest from the environment */
    tern_status (*open)(struct tern_store *store);
    /* Appends what proves who asks; NULL: no HTTP here. */
    tern_status (*prove)(struct tern_store *store,
                         const struct tern_store_attempt *attempt,
                         struct tern_store_proof *out);
    /* TERN_ERR_BUSY: is_new and there is one. */
    tern_status (*put)(struct tern_store *store,
                       struct tern_store_conn *conn,
                       const char *key,
                       const void *data,
                       size_t bytes,
                       bool is_new);
    tern_status (*get)(struct tern_store *store,
                       struct tern_store_conn *conn,
                       const char *key,
                       int64_t offset,
                       size_t bytes,
                       const char *etag,
                       void *dst);
    tern_status (*head)(struct tern_store *store,
                        struct tern_store_conn *conn,
                        const char *key,
                        struct tern_store_info *out);
    tern_status (*remove)(struct tern_store *store, struct tern_store_conn *conn, const char *key);
    tern_status (*list)(struct tern_store *store,
                        struct tern_store_conn *conn,
                        const char *prefix,
                        tern_store_visit visit,
                        void *context);
    /* Goes on with an upload of this key that is there, else begins one. parts (capacity of them,
     * zeroed): filled at [number - 1] with what is there already; the caller checks it. */
    tern_status (*begin)(struct tern_store *store,
                         struct tern_store_conn *conn,
                         struct tern_store_upload *upload,
                         struct tern_store_part *parts,
                         int capacity);
    /* True: a part that is there already is the same as these bytes; what complete needs is filled in. NULL: none ever is there. */
    bool (*is_same)(struct tern_store_part *part, const void *data, size_t bytes);
    tern_status (*part)(struct tern_store *store,
                        struct tern_store_conn *conn,
                        const struct tern_store_upload *upload,
                        struct tern_store_part *part,
                        const void *data);
    /* TERN_ERR_AGAIN: the store knows nothing of the upload; a lost answer, perhaps. */
    tern_status (*complete)(struct tern_store *store,
                            struct tern_store_conn *conn,
                            struct tern_store_upload *upload,
                            const struct tern_store_part *parts,
                            int count);
    tern_status (*uploads)(struct tern_store *store,
                           struct tern_store_conn *conn,
                           const char *prefix,
                           int *removed_out);
    /* The end of an upload, good or bad; NULL: nothing to let go. */
    void (*drop)(struct tern_store_upload *upload);
    int64_t part_bytes_min;
};

extern const struct tern_store_backend tern_store_s3;
extern const struct tern_store_backend tern_store_google;
extern const struct tern_store_backend tern_store_azure;
extern const struct tern_store_backend tern_store_folder;

/* Where logins come from, and what they share: one request to a metadata server or a token endpoint
 * (answer fini in every case), a copy that must be there. */
TERN_MUST_CHECK tern_status tern_login_ask(struct tern_store *store,
                                           const struct tern_http_call *call,
                                           const char *what,
                                           struct tern_http_answer *answer);
TERN_MUST_CHECK tern_status tern_login_copy(char *out,
                                            size_t capacity,
                                            const char *text,
                                            const char *what);
/* Amazon's keys: the session's token, if it is one's, may be NULL; expires likewise. */
TERN_MUST_CHECK tern_status tern_login_fill(struct tern_login *out,
                                            const char *access,
                                            const char *secret,
                                            const char *token,
                                            const char *expires);
TERN_MUST_CHECK tern_status tern_login_aws(struct tern_store *store, struct tern_login *out);
/* Keys of a role for the token of an identity, which is in a file that somebody renews (EKS). */
TERN_MUST_CHECK tern_status tern_login_web_identity(struct tern_store *store,
                                                    const char *token_path,
                                                    struct tern_login *out);
TERN_MUST_CHECK tern_status tern_login_google(struct tern_store *store, struct tern_login *out);
TERN_MUST_CHECK tern_status tern_login_azure(struct tern_store *store, struct tern_login *out);

/* The environment: NULL when empty. */
const char *tern_store_env(const char *name);
/* Copies with a bound; TERN_ERR_CONFIG names `what` when it does not fit. */
TERN_MUST_CHECK tern_status
tern_store_copy(char *out, size_t capacity, const char *text, size_t bytes, const char *what);

#endif
