/* http_work.c - the threads that run handlers: one queue, first come first served. */
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/serve/http_internal.h"

struct tern_http_work {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct tern_http_reply *first, *last; /* as many as connections at most */
    bool is_over;
    int thread_count;
    pthread_t threads[];
};

void tern_http_work_run(struct tern_http_reply *reply)
{
    if (!tern_http_reply_is_gone(reply)) {
        reply->request.route->handle(reply->http->options.context, &reply->request, reply);
    }
    tern_http_reply_handled(reply);
}

static void *serve_queue(void *arg)
{
    struct tern_http_work *work = arg;
    pthread_mutex_lock(&work->lock);
    for (;;) {
        while (work->first == NULL && !work->is_over) {
            pthread_cond_wait(&work->more, &work->lock);
        }
        struct tern_http_reply *reply = work->first;
        if (reply == NULL) {
            break;
        }
        work->first = reply->next;
        pthread_mutex_unlock(&work->lock);
        tern_http_work_run(reply);
        pthread_mutex_lock(&work->lock);
    }
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

tern_status tern_http_work_create(int threads, struct tern_http_work **out)
{
    struct tern_http_work *made = tern_alloc_zero(
        "http workers", 1, sizeof *made + (size_t)threads * sizeof made->threads[0]);
    *out = made;
    if (made == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for %d HTTP workers", threads);
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->more, NULL);
    for (int i = 0; i < threads; i++) {
        int error = tern_thread_start(&made->threads[i], serve_queue, made);
        if (error != 0) {
            tern_http_work_destroy(made);
            *out = NULL;
            return tern_fail_errno(TERN_ERR_MEMORY, error, "cannot start an HTTP worker");
        }
        made->thread_count++;
    }
    return TERN_OK;
}

void tern_http_work_push(struct tern_http_work *work, struct tern_http_reply *reply)
{
    pthread_mutex_lock(&work->lock);
    reply->next = NULL;
    if (work->first == NULL) {
        work->first = reply;
    } else {
        work->last->next = reply;
    }
    work->last = reply;
    pthread_cond_signal(&work->more);
    pthread_mutex_unlock(&work->lock);
}

void tern_http_work_destroy(struct tern_http_work *work)
{
    if (work == NULL) {
        return;
    }
    pthread_mutex_lock(&work->lock);
    work->is_over = true;
    pthread_cond_broadcast(&work->more);
    pthread_mutex_unlock(&work->lock);
    for (int i = 0; i < work->thread_count; i++) {
        pthread_join(work->threads[i], NULL);
    }
    pthread_cond_destroy(&work->more);
    pthread_mutex_destroy(&work->lock);
    tern_free(work);
}
