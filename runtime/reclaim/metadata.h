/* metadata.h - requests to the metadata service of the machine: one address, no proxy, no redirects,
 * short answers, and nothing that outlasts the run. */
#ifndef TERN_RUNTIME_RECLAIM_METADATA_H
#define TERN_RUNTIME_RECLAIM_METADATA_H

#include "io/http_client.h"

enum {
    TERN_METADATA_HEADERS_MAX = 4,
    TERN_METADATA_BODY_BYTES_MAX = 256 << 10
};

struct tern_metadata;

/* base: "http://HOST[:PORT]"; NULL: $TERN_METADATA_URL, else http://169.254.169.254. cancel becoming
 * true ends a request under way. TERN_ERR_USAGE names a base that is none. Owned: close. */
TERN_MUST_CHECK tern_status tern_metadata_open(const char *base,
                                               const atomic_bool *cancel,
                                               struct tern_metadata **out);
void tern_metadata_close(struct tern_metadata *metadata);

struct tern_metadata_ask {
    const char *method;                             /* NULL: GET */
    const char *path;                               /* "/latest/..." */
    const char *headers[TERN_METADATA_HEADERS_MAX]; /* NULL ends them */
    const char *body;                               /* JSON; NULL: none */
    double seconds;                                 /* for the whole; 0: 2 */
};

/* TERN_OK with any answer: look at its status. Fini in every case. */
TERN_MUST_CHECK tern_status tern_metadata_ask(struct tern_metadata *metadata,
                                              const struct tern_metadata_ask *ask,
                                              struct tern_http_answer *out);
/* What there is to say of an answer that should not be: TERN_ERR_IO, "GET /path answers 500". */
tern_status tern_metadata_refused(const struct tern_metadata_ask *ask,
                                  const struct tern_http_answer *answer);
/* The body without blanks around it when it is one short line of printable ASCII; else NULL. The
 * answer is changed. */
const char *tern_metadata_line(struct tern_http_answer *answer, size_t bytes_max);
/* Copies text for people: printable ASCII, the rest '?', cut to size. */
void tern_metadata_show(char *out, size_t size, const char *text);

#endif
