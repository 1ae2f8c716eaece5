/* thread.h - threads beside the program's own. They take no signals: handlers run where the program expects them. */
#ifndef TERN_RUNTIME_BASE_THREAD_H
#define TERN_RUNTIME_BASE_THREAD_H

#include <pthread.h>

/* 0, or an errno value. To be joined or detached as any other. */
int tern_thread_start(pthread_t *thread, void *(*body)(void *), void *arg);

#endif
