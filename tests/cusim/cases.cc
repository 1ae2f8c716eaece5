/* cases.cc - cusim_cases NAME runs one of the small CUDA programs; no name lists them. */
#include "tests/cusim/cases.h"

#include <initializer_list>
#include <string.h>
#include <unistd.h>

enum {
    SECONDS_MAX = 60 /* a case that hangs has failed */
};

int main(int argc, char **argv)
{
    alarm(SECONDS_MAX);
    for (const test_case *cases :
         {g_thread_cases, g_memory_cases, g_stream_cases, g_graph_cases, g_product_cases}) {
        for (const test_case *it = cases; it->name != nullptr; it++) {
            if (argc < 2) {
                puts(it->name);
            } else if (strcmp(it->name, argv[1]) == 0) {
                it->run();
                return 0;
            }
        }
    }
    if (argc >= 2) {
        fprintf(stderr, "there is no case %s\n", argv[1]);
    }
    return argc < 2 ? 0 : 2;
}
