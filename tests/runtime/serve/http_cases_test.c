/* http_cases_test.c - every case of the table: in one piece, byte by byte, and cut in two at many places. */
#include "tests/runtime/serve/http_cases.h"
#include "tests/runtime/serve/http_fixture.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fixture fixture;

/* The next answer, past an interim one: whether a body that is on its way is asked for depends on how much of it is there. */
static void read_answer(int fd, bool is_head, struct answer *answer)
{
    client_read(fd, is_head, answer);
    if (answer->status == 100) {
        answer_free(answer);
        client_read(fd, is_head, answer);
    }
}

/* The answers that the case wants, then the end or a connection that still works. "" when all is well. */
static const char *judge(int fd, const struct http_case *row)
{
    static char wrong[256];
    bool is_head = strncmp(row->bytes, "HEAD ", 5) == 0;
    for (int i = 0; i < HTTP_CASE_ANSWERS_MAX && row->answers[i] != 0; i++) {
        struct answer answer;
        read_answer(fd, is_head && i == 0, &answer);
        answer_free(&answer);
        if (answer.status != row->answers[i] || answer.is_cut) {
            snprintf(wrong, sizeof wrong, "answer %d is %d%s, expected %d", i, answer.status,
                     answer.is_cut ? ", cut" : "", row->answers[i]);
            return wrong;
        }
    }
    if (row->answers[0] == 0) {
        shutdown(fd, SHUT_WR);
    } else if (!row->closes) {
        struct answer answer;
        client_print(fd, "GET /light HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client_read(fd, false, &answer);
        answer_free(&answer);
        if (answer.status != 200) {
            snprintf(wrong, sizeof wrong, "the next request gets %d, expected 200", answer.status);
            return wrong;
        }
    }
    char more[65];
    ssize_t got = recv(fd, more, sizeof more - 1, 0);
    if (got > 0) {
        more[got] = '\0';
        snprintf(wrong, sizeof wrong, "something follows: '%s'", more);
        return wrong;
    }
    return "";
}

/* Sends the case in pieces of `piece` bytes, the first of `first`. */
static int run_case(const struct http_case *row, size_t first, size_t piece)
{
    int fd = client_open(&fixture);
    size_t at = first < row->count ? first : row->count;
    bool is_open = client_send(fd, row->bytes, at);
    while (is_open && at < row->count) {
        size_t size = row->count - at < piece ? row->count - at : piece;
        is_open = client_send(fd, row->bytes + at, size);
        at += size;
    }
    const char *wrong = judge(fd, row);
    close(fd);
    if (wrong[0] != '\0') {
        print_error("%s (first %zu, then %zu): %s\n", row->name, first, piece, wrong);
    }
    return wrong[0] != '\0';
}

static void test_whole(void **state)
{
    (void)state;
    int wrong = 0;
    size_t count;
    const struct http_case *rows = http_cases(&count);
    assert_true(count >= 200);
    for (size_t i = 0; i < count; i++) {
        wrong += run_case(&rows[i], rows[i].count, 1);
    }
    assert_int_equal(wrong, 0);
}

static void test_byte_by_byte(void **state)
{
    (void)state;
    int wrong = 0;
    size_t count;
    const struct http_case *rows = http_cases(&count);
    for (size_t i = 0; i < count; i++) {
        wrong += run_case(&rows[i], 0, rows[i].count > 4096 ? 997 : 1);
    }
    assert_int_equal(wrong, 0);
}

/* At every place of the short ones: what a parser keeps between two packets. */
static void test_cut_in_two(void **state)
{
    (void)state;
    int wrong = 0;
    size_t count;
    const struct http_case *rows = http_cases(&count);
    for (size_t i = 0; i < count; i++) {
        for (size_t cut = 1; cut < rows[i].count && rows[i].count < 100; cut += 11) {
            wrong += run_case(&rows[i], cut, rows[i].count);
        }
    }
    assert_int_equal(wrong, 0);
}

static int start(void **state)
{
    (void)state;
    fixture_start(&fixture, NULL);
    return 0;
}

static int stop(void **state)
{
    fixture_stop(&fixture);
    return check_no_live_blocks(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_byte_by_byte),
        cmocka_unit_test(test_cut_in_two),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
