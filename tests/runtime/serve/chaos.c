/* chaos.c - clients of a running `tern serve` that leave at every stage, and a look at what is left of them.
 *
 *   serve_chaos PORT MODEL REQUESTS [THREADS [SEED]]
 *
 * Sends random requests of every kind; three in four clients leave: within the request, behind it, after a moment, within
 * the answer; by FIN, by a reset, by half closing, or by not reading. Those that stay must get a whole answer with a status that
 * has its place in the API. Then /metrics must come to say that nothing runs, waits or holds a block of the cache. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    THREADS_MAX = 256,
    REQUEST_BYTES = 16 << 10,
    ANSWER_BYTES = 1 << 20,
    PATIENCE_MS = 300000, /* without one byte: the server hangs */
    REST_MS = 120000,     /* until all is let go */
};

static int port;
static const char *model;
static atomic_long next_request, left, whole, wrong;
static atomic_long statuses[600];
static long request_count;

static int pick(unsigned *seed, int count)
{
    return (int)((unsigned)rand_r(seed) % (unsigned)count);
}

static void complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (atomic_fetch_add(&wrong, 1) < 20) {
        vfprintf(stderr, format, args);
        fputc('\n', stderr);
    }
    va_end(args);
}

static int open_client(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void leave(int fd, unsigned *seed)
{
    struct linger at_once = {.l_onoff = 1};
    int how = pick(seed, 3);
    if (how == 0) {
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once); /* a reset */
    } else if (how == 1) {
        shutdown(fd, SHUT_WR);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        poll(&wait, 1, pick(seed, 20));
    }
    close(fd);
    atomic_fetch_add(&left, 1);
}

/* ---- requests ---- */

/* So many words; some prompts begin alike, so that they share blocks of the cache. */
static void write_prompt(char *out, size_t room, unsigned *seed)
{
    static const char *const words[] = {"light", "and ",   "darkness ", "was ",  "upon the ",
                                        "face ", "waters", "God ",      "said ", "evening "};
    static const int lengths[] = {1, 5, 20, 100, 400};
    int count = 1 + pick(seed, lengths[pick(seed, 5)]);
    unsigned shared = (unsigned)pick(seed, 4);
    size_t at = 0;
    for (int i = 0; i < count && at + 32 < room; i++) {
        const char *word = words[pick(i < count / 2 ? &shared : seed, 10)];
        at += (size_t)snprintf(out + at, room - at, "%s", word);
    }
}

static int write_body(char *out, size_t room, unsigned *seed, const char **path)
{
    char prompt[6000];
    write_prompt(prompt, sizeof prompt, seed);
    int most = 1 + pick(seed, 60), n = 1 + (pick(seed, 4) == 0 ? pick(seed, 3) : 0);
    const char *stream = pick(seed, 3) > 0 ? "true" : "false";
    switch (pick(seed, 12)) {
    case 0:
        *path = "/v1/embeddings";
        return snprintf(out, room, "{\"model\": \"%s\", \"input\": [\"%s\", \"light\"]}", model,
                        prompt);
    case 1:
        *path = "/tokenize";
        return snprintf(out, room, "{\"model\": \"%s\", \"prompt\": \"%s\"}", model, prompt);
    case 2: /* refused, one way or another */
        *path = "/v1/completions";
        return snprintf(out, room, "{\"model\": \"%s\", \"prompt\": \"%s\", \"max_tokens\": %d%s",
                        model, prompt, -most, pick(seed, 2) > 0 ? "}" : "");
    case 3:
        *path = "/v1/chat/completions";
        return snprintf(
            out, room,
            "{\"model\": \"%s\", \"max_tokens\": %d, \"stream\": %s, \"response_format\": "
            "{\"type\": "
            "\"json_object\"}, \"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]}",
            model, most, stream, prompt);
    case 4:
    case 5:
    case 6:
        *path = "/v1/chat/completions";
        return snprintf(
            out, room,
            "{\"model\": \"%s\", \"max_tokens\": %d, \"stream\": %s, \"n\": %d, \"messages\": "
            "[{\"role\": \"user\", \"content\": \"%s\"}]}",
            model, most, stream, n, prompt);
    default:
        *path = "/v1/completions";
        return snprintf(out, room,
                        "{\"model\": \"%s\", \"prompt\": \"%s\", \"max_tokens\": %d, \"stream\": "
                        "%s, \"n\": %d, "
                        "\"logprobs\": %d, \"temperature\": %d, \"seed\": %d, \"stop\": [\"xyz\", "
                        "\"waters.\"]}",
                        model, prompt, most, stream, n, pick(seed, 3), pick(seed, 2),
                        pick(seed, 100));
    }
}

static int write_request(char *out, unsigned *seed)
{
    static const char *const gets[] = {"/health",    "/ready", "/metrics",
                                       "/v1/models", "/",      "/nowhere"};
    char body[REQUEST_BYTES / 2];
    if (pick(seed, 10) == 0) {
        return snprintf(out, REQUEST_BYTES, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                        gets[pick(seed, 6)]);
    }
    const char *path;
    int length = write_body(body, sizeof body, seed, &path);
    if (pick(seed, 4) == 0) {
        return snprintf(out, REQUEST_BYTES,
                        "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
                        path, (unsigned)length, body);
    }
    return snprintf(out, REQUEST_BYTES,
                    "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Content-Length: %d\r\n\r\n%s",
                    path, length, body);
}

/* ---- answers ---- */

/* Whether a whole answer lies in the first `have` bytes. */
static bool is_whole(const char *answer, size_t have)
{
    const char *body = memmem(answer, have, "\r\n\r\n", 4);
    if (body == NULL) {
        return false;
    }
    size_t head = (size_t)(body - answer) + 4;
    const char *length = memmem(answer, head, "Content-Length: ", 16);
    if (length != NULL) {
        return have >= head + strtoul(length + 16, NULL, 10);
    }
    return memmem(answer, head, "chunked", 7) != NULL && have - head >= 5 &&
           memcmp(answer + have - 5, "0\r\n\r\n", 5) == 0;
}

/* Reads until the answer is whole, or `enough` bytes are there. Bytes read; the answer is NUL-terminated. */
static size_t read_answer(int fd, char *answer, size_t enough)
{
    size_t have = 0;
    answer[0] = '\0';
    while (have < enough && !is_whole(answer, have)) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, PATIENCE_MS) == 0) {
            complain("the server says nothing for %d s", PATIENCE_MS / 1000);
            break;
        }
        ssize_t got = recv(fd, answer + have, ANSWER_BYTES - 1 - have, 0);
        if (got <= 0) {
            break;
        }
        have += (size_t)got;
        answer[have] = '\0';
    }
    return have;
}

static void judge(const char *answer, size_t have, const char *request)
{
    int status = 0;
    if (sscanf(answer, "HTTP/1.1 %d ", &status) != 1 || status < 200 || status > 599) {
        complain("no answer (%zu bytes, '%.60s') to %.70s", have, answer, request);
        return;
    }
    atomic_fetch_add(&statuses[status], 1);
    if (!is_whole(answer, have)) {
        complain("half an answer, status %d, %zu bytes, to %.70s", status, have, request);
    } else if (status >= 500 && status != 503) {
        complain("status %d to %.400s:\n%s", status, request, answer);
    }
    atomic_fetch_add(&whole, 1);
}

static void one_request(unsigned seed, char *answer)
{
    char request[REQUEST_BYTES];
    int length = write_request(request, &seed);
    int fd = open_client();
    if (fd < 0) {
        complain("connect: %s", strerror(errno));
        return;
    }
    int stage = pick(&seed, 8);
    size_t size = stage == 0 ? (size_t)pick(&seed, length) : (size_t)length;
    if (send(fd, request, size, MSG_NOSIGNAL) != (ssize_t)size) {
        complain("send: %s", strerror(errno));
    }
    switch (stage) {
    case 0: /* within the request */
    case 1: /* right behind it */
        break;
    case 2: /* after a moment: queued, in prefill, or in the answer, none of which was read */
        poll(NULL, 0, pick(&seed, 40));
        break;
    case 3: /* within the answer */
        read_answer(fd, answer, 1 + (size_t)pick(&seed, 4000));
        break;
    case 4: /* behind its head */
        read_answer(fd, answer, 1);
        break;
    case 5: /* with another request behind it */
        send(fd, request, (size_t)length, MSG_NOSIGNAL);
        poll(NULL, 0, pick(&seed, 20));
        break;
    default:
        judge(answer, read_answer(fd, answer, ANSWER_BYTES), request);
        close(fd);
        return;
    }
    leave(fd, &seed);
}

static void *client(void *arg)
{
    unsigned seed = *(unsigned *)arg;
    char *answer = malloc(ANSWER_BYTES);
    for (long i; answer != NULL && (i = atomic_fetch_add(&next_request, 1)) < request_count;) {
        one_request(seed + (unsigned)i * 2654435761U, answer);
        if (i > 0 && i % 10000 == 0) {
            printf("%ld requests\n", i);
        }
    }
    free(answer);
    return NULL;
}

/* ---- what is left ---- */

/* The value of a gauge in /metrics; -1: it is not there. */
static double gauge(const char *metrics, const char *name)
{
    for (const char *at = metrics; (at = strstr(at, name)) != NULL; at++) {
        const char *value = strpbrk(at, " \n");
        if ((at == metrics || at[-1] == '\n') && value != NULL && *value == ' ') {
            return atof(value);
        }
    }
    return -1;
}

static bool is_at_rest(char *answer)
{
    static const char *const names[] = {"vllm:num_requests_running", "vllm:num_requests_waiting",
                                        "tern:kv_blocks_used"};
    static const char ask[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fd = open_client();
    if (fd < 0 || send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) < 0) {
        complain("/metrics: %s", strerror(errno));
        return true;
    }
    read_answer(fd, answer, ANSWER_BYTES);
    close(fd);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (gauge(answer, names[i]) != 0) {
            return false;
        }
    }
    return true;
}

static void check_rest(void)
{
    char *answer = malloc(ANSWER_BYTES);
    int waited = 0;
    while (answer != NULL && !is_at_rest(answer) && waited < REST_MS) {
        poll(NULL, 0, 50);
        waited += 50;
    }
    if (answer == NULL || waited >= REST_MS) {
        complain("not at rest after %d s:\n%s", REST_MS / 1000, answer);
    } else {
        printf("at rest: running 0, waiting 0, blocks used 0; cached blocks %g, preemptions %g\n",
               gauge(answer, "tern:kv_blocks_cached"), gauge(answer, "vllm:num_preemptions_total"));
    }
    free(answer);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: serve_chaos PORT MODEL REQUESTS [THREADS [SEED]]\n");
        return 2;
    }
    port = atoi(argv[1]);
    model = argv[2];
    request_count = atol(argv[3]);
    int threads = argc > 4 ? atoi(argv[4]) : 32;
    unsigned seed = argc > 5 ? (unsigned)atoi(argv[5]) : 1;
    pthread_t ids[THREADS_MAX];
    threads = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
    printf("seed %u, %d clients at once\n", seed, threads);
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&ids[i], NULL, client, &seed) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    check_rest();
    printf("%ld requests: %ld left, %ld stayed:", request_count, atomic_load(&left),
           atomic_load(&whole));
    for (int i = 0; i < 600; i++) {
        if (atomic_load(&statuses[i]) > 0) {
            printf(" %d: %ld", i, atomic_load(&statuses[i]));
        }
    }
    printf("; %ld wrong\n", atomic_load(&wrong));
    return atomic_load(&wrong) != 0;
}
