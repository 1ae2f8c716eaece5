/* http_load.c - clients for http.sh: closed loops of GET /light, beside them connections that trickle bytes or that idle,
 * and streams of events.
 *
 *   http_load PORT PID light|trickle|idle|streams CONNECTIONS SECONDS
 *
 * PID: the server's, whose processor time and memory are read. One line of results. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOPS = 64, /* closed loops of the measured kind */
    BUCKETS = 100000,
    BUCKET_US = 10,
    CONNECTIONS_MAX = 16384,
};

static int port;
static atomic_bool is_over;
static long latencies[BUCKETS]; /* of BUCKET_US each */
static const char get_light[] = "GET /light HTTP/1.1\r\nHost: a\r\n\r\n";

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int open_client(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("connect");
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Seconds of processor time that the server has used. */
static double server_seconds(int pid)
{
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL) {
        exit(1);
    }
    fclose(file);
    sscanf(strrchr(text, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
           &system);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static long server_kib(int pid)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "VmRSS: %ld", &kib);
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

/* One byte a second to each of so many connections; those that the server ends begin again. */
static void *trickle(void *arg)
{
    int count = *(int *)arg;
    static int fds[CONNECTIONS_MAX], sent[CONNECTIONS_MAX];
    for (int i = 0; i < count; i++) {
        fds[i] = open_client();
    }
    double begin = now();
    for (long turn = 0; !atomic_load(&is_over); turn++) {
        double due = begin + (double)turn / (double)count;
        double wait = due - now();
        if (wait > 0) {
            struct timespec time = {.tv_sec = (time_t)wait,
                                    .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)};
            nanosleep(&time, NULL);
        }
        int i = (int)(turn % count);
        char answer[512];
        bool is_ended = recv(fds[i], answer, sizeof answer, MSG_DONTWAIT) >= 0;
        if (is_ended) {
            close(fds[i]);
            fds[i] = open_client();
            sent[i] = 0;
        }
        (void)!send(fds[i], get_light + sent[i]++ % (int)(sizeof get_light - 1), 1, MSG_NOSIGNAL);
    }
    for (int i = 0; i < count; i++) {
        close(fds[i]);
    }
    return NULL;
}

static double percentile(long total, double share)
{
    long seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += latencies[i];
        if ((double)seen >= share * (double)total) {
            return (double)i * BUCKET_US * 1e-3;
        }
    }
    return BUCKETS * BUCKET_US * 1e-3;
}

static void note(double seconds)
{
    long bucket = (long)(seconds * 1e6) / BUCKET_US;
    latencies[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
}

/* LOOPS connections that ask again as soon as they have their answer. */
static long run_light(double seconds)
{
    int fds[LOOPS];
    double begun[LOOPS];
    long answers = 0;
    int epoll = epoll_create1(0);
    for (int i = 0; i < LOOPS; i++) {
        fds[i] = open_client();
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event);
        begun[i] = now();
        (void)!send(fds[i], get_light, sizeof get_light - 1, 0);
    }
    for (double end = now() + seconds; now() < end;) {
        struct epoll_event events[LOOPS];
        int count = epoll_wait(epoll, events, LOOPS, 100);
        for (int i = 0; i < count; i++) {
            char answer[1024];
            uint32_t which = events[i].data.u32;
            if (recv(fds[which], answer, sizeof answer, 0) <= 0) {
                fprintf(stderr, "a measured connection was closed\n");
                exit(1);
            }
            note(now() - begun[which]);
            answers++;
            begun[which] = now();
            (void)!send(fds[which], get_light, sizeof get_light - 1, 0);
        }
    }
    for (int i = 0; i < LOOPS; i++) {
        close(fds[i]);
    }
    close(epoll);
    return answers;
}

/* So many streams; events that came. */
static long run_streams(int count, double seconds)
{
    static const char get_tick[] = "GET /tick HTTP/1.1\r\nHost: a\r\n\r\n";
    static char bytes[65536];
    long long received = 0;
    int epoll = epoll_create1(0);
    static int fds[CONNECTIONS_MAX];
    for (int i = 0; i < count; i++) {
        fds[i] = open_client();
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &event);
        (void)!send(fds[i], get_tick, sizeof get_tick - 1, 0);
    }
    for (double end = now() + seconds; now() < end;) {
        struct epoll_event events[256];
        int ready = epoll_wait(epoll, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            ssize_t got = recv(events[i].data.fd, bytes, sizeof bytes, 0);
            if (got <= 0) {
                fprintf(stderr, "a stream was closed\n");
                exit(1);
            }
            received += got;
        }
    }
    for (int i = 0; i < count; i++) {
        close(fds[i]);
    }
    close(epoll);
    return (long)(received / 263); /* 256 and its chunk's frame */
}

static void print_light(long answers, double seconds, double cpu)
{
    printf(
        "%.0f requests/s, p50 %.2f ms, p99 %.2f ms, %.1f us of the server's processor a request\n",
        (double)answers / seconds, percentile(answers, 0.5), percentile(answers, 0.99),
        cpu / (double)answers * 1e6);
}

int main(int argc, char **argv)
{
    if (argc != 6 || atoi(argv[4]) < 0 || atoi(argv[4]) > CONNECTIONS_MAX) {
        fprintf(stderr,
                "usage: http_load PORT PID light|trickle|idle|streams CONNECTIONS SECONDS\n");
        return 2;
    }
    port = atoi(argv[1]);
    int pid = atoi(argv[2]), count = atoi(argv[4]);
    const char *kind = argv[3];
    double seconds = atof(argv[5]);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (strcmp(kind, "idle") == 0) {
        long before = server_kib(pid);
        for (int i = 0; i < count; i++) {
            (void)open_client(); /* until the program ends */
        }
        run_light(0.5);
        double cpu = server_seconds(pid);
        struct timespec time = {.tv_sec = (time_t)seconds};
        nanosleep(&time, NULL);
        printf("%d idle connections: %.2f KiB each, %.2f %% of a core\n", count,
               (double)(server_kib(pid) - before) / count,
               (server_seconds(pid) - cpu) / seconds * 100);
        return 0;
    }
    double cpu = server_seconds(pid);
    if (strcmp(kind, "streams") == 0) {
        long events = run_streams(count, seconds);
        printf("%d streams: %.0f events/s, %.1f us of the server's processor an event\n", count,
               (double)events / seconds, (server_seconds(pid) - cpu) / (double)events * 1e6);
        return 0;
    }
    pthread_t trickler;
    bool is_trickling = strcmp(kind, "trickle") == 0;
    if (is_trickling && pthread_create(&trickler, NULL, trickle, &count) != 0) {
        return 1;
    }
    if (is_trickling) {
        struct timespec settle = {.tv_sec = 1};
        nanosleep(&settle, NULL);
    }
    cpu = server_seconds(pid);
    long answers = run_light(seconds);
    print_light(answers, seconds, server_seconds(pid) - cpu);
    atomic_store(&is_over, true);
    if (is_trickling) {
        pthread_join(trickler, NULL);
    }
    return 0;
}
