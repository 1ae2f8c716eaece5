/* sign_test.c - signatures against known answers, encodings, and the XML of stores. */
#include "io/digest.h"
#include "io/sign.h"
#include "io/xml.h"
#include "tests/io/sign_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

enum {
    V4_CASES = sizeof g_v4_cases / sizeof g_v4_cases[0],
    SHARED_CASES = sizeof g_shared_cases / sizeof g_shared_cases[0]
};

static void test_v4_suite(void **state)
{
    (void)state;
    for (int i = 0; i < V4_CASES; i++) {
        const struct v4_case *c = &g_v4_cases[i];
        struct tern_text query = {0}, found = {0};
        assert_int_equal(tern_text_append(&query, "", 0), TERN_OK);
        assert_int_equal(tern_url_query(&query, c->pairs, c->pair_count), TERN_OK);
        struct tern_sign_request request = {
            .method = c->method,
            .path = c->path,
            .query = query.data,
            .headers = c->headers,
            .header_count = c->header_count,
            .payload_hash = c->payload_hash,
            .access = "AKIDEXAMPLE",
            .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            .region = "us-east-1",
            .service = "service",
            .now = 1440938160,
        };
        assert_int_equal(tern_sign_v4(&request, &found, NULL), TERN_OK);
        if (strcmp(found.data, c->expected) != 0) {
            print_error("%s:\n  found    %s\n  expected %s\n", c->name, found.data, c->expected);
        }
        assert_string_equal(found.data, c->expected);
        tern_text_fini(&query);
        tern_text_fini(&found);
    }
}

static void test_shared_key(void **state)
{
    (void)state;
    char key[64];
    tern_base64((const uint8_t *)"a key of the tests, 32 bytes long", 33, key);
    for (int i = 0; i < SHARED_CASES; i++) {
        const struct shared_case *c = &g_shared_cases[i];
        struct tern_text found = {0}, text = {0};
        struct tern_sign_shared_key request = {
            .method = c->method,
            .account = "ternaccount",
            .key = key,
            .path = c->path,
            .pairs = c->pairs,
            .pair_count = c->pair_count,
            .headers = c->headers,
            .header_count = c->header_count,
            .body_bytes = c->body_bytes,
        };
        assert_int_equal(tern_sign_azure(&request, &found, &text), TERN_OK);
        if (strcmp(found.data, c->expected) != 0) {
            print_error("case %d: %s\n", i, text.data);
        }
        assert_string_equal(found.data, c->expected);
        tern_text_fini(&found);
        tern_text_fini(&text);
    }
}

/* The GET of an object in the examples of S3's own documentation of Signature Version 4. */
static void test_s3_example(void **state)
{
    (void)state;
    const char *headers[] = {
        "Host: examplebucket.s3.amazonaws.com", "Range: bytes=0-9",
        "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x-amz-date: 20130524T000000Z"};
    struct tern_sign_request request = {
        .method = "GET",
        .path = "/test.txt",
        .query = "",
        .headers = headers,
        .header_count = 4,
        .payload_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        .access = "AKIAIOSFODNN7EXAMPLE",
        .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        .region = "us-east-1",
        .service = "s3",
        .now = 1369353600,
    };
    struct tern_text found = {0};
    assert_int_equal(tern_sign_v4(&request, &found, NULL), TERN_OK);
    assert_non_null(
        strstr(found.data, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"));
    tern_text_fini(&found);
}

static void test_limits(void **state)
{
    (void)state;
    struct tern_pair pairs[TERN_SIGN_PAIRS_MAX + 1];
    const char *headers[TERN_SIGN_HEADERS_MAX + 1];
    struct tern_text out = {0};
    for (int i = 0; i <= TERN_SIGN_PAIRS_MAX; i++) {
        pairs[i] = (struct tern_pair){"a", "b"};
    }
    for (int i = 0; i <= TERN_SIGN_HEADERS_MAX; i++) {
        headers[i] = "a: b";
    }
    assert_int_equal(tern_url_query(&out, pairs, TERN_SIGN_PAIRS_MAX + 1), TERN_ERR_ARGUMENT);
    struct tern_sign_request request = {.method = "GET",
                                        .path = "/",
                                        .query = "",
                                        .headers = headers,
                                        .header_count = TERN_SIGN_HEADERS_MAX + 1,
                                        .payload_hash = "",
                                        .access = "",
                                        .secret = "",
                                        .region = "",
                                        .service = ""};
    assert_int_equal(tern_sign_v4(&request, &out, NULL), TERN_ERR_ARGUMENT);
    struct tern_sign_shared_key shared = {
        .method = "GET", .account = "a", .key = "not base64!", .path = "/"};
    assert_int_equal(tern_sign_azure(&shared, &out, NULL), TERN_ERR_CONFIG);
    tern_text_fini(&out);
}

static void test_encodings(void **state)
{
    (void)state;
    uint8_t bytes[300], back[300];
    char text[500];
    size_t count;
    for (size_t n = 0; n < sizeof bytes; n++) {
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)(i * 37 + n);
        }
        tern_base64(bytes, n, text);
        assert_int_equal(strlen(text), (n + 2) / 3 * 4);
        assert_true(tern_base64_decode(text, back, sizeof back, &count));
        assert_int_equal(count, n);
        assert_memory_equal(back, bytes, n);
    }
    assert_false(tern_base64_decode("A", back, sizeof back, &count));
    assert_false(tern_base64_decode("A-B=", back, sizeof back, &count));
    assert_false(tern_base64_decode("AAAAAAAA", back, 5, &count));
    char time[TERN_SIGN_TIME_BYTES], date[TERN_SIGN_DATE_BYTES];
    assert_string_equal(tern_sign_time(1440938160, time), "20150830T123600Z");
    assert_string_equal(tern_sign_date(1440938160, date), "Sun, 30 Aug 2015 12:36:00 GMT");
}

/* ---- XML ---- */

static tern_status print_event(void *context, int depth, const char *name, const char *text)
{
    return text == NULL ? tern_text_printf(context, "%d<%s ", depth, name)
                        : tern_text_printf(context, "%d>%s=%s ", depth, name, text);
}

static tern_status walk(const char *document, struct tern_text *out)
{
    out->length = 0;
    return tern_xml_each(document, strlen(document), print_event, out);
}

static void test_xml(void **state)
{
    (void)state;
    struct tern_text out = {0};
    assert_int_equal(walk("\xEF\xBB\xBF<?xml version=\"1.0\"?>\n<!-- a > b --><A x='>'>"
                          "<B>1 &lt; 2 &amp;&#x41;&#66;</B><C/><D><![CDATA[<x>&]]></D></A>\n",
                          &out),
                     TERN_OK);
    assert_string_equal(out.data, "0<A 1<B 1>B=1 < 2 &AB 1<C 1>C= 1<D 1>D=<x>& 0>A= ");
    static const char *const bad[] = {
        "",
        "text",
        "<",
        "<A",
        "<A>",
        "<A></B>",
        "<A/><B/>",
        "<A>&nope;</A>",
        "<A>&#0;</A>",
        "<A>&#xD800;</A>",
        "<A>&#x110000;</A>",
        "<A>&#99999999999;</A>",
        "</A>",
        "<A><B></A></B>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]><A/>",
        "<A>&",
        "<A b=\"</A>",
        "<A <B/></A>",
        "<!-- <A/>",
        "<A><![CDATA[</A>",
        "< A/>",
        "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a></"
        "a>"
        "</a></a></a></a></a></a></a>",
        "<aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/>"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (walk(bad[i], &out) != TERN_ERR_INPUT) {
            fail_msg("accepted: %s", bad[i]);
        }
    }
    tern_text_fini(&out);
}

/* Every cut and every changed byte of a document is XML or refused, and never more. */
static void test_xml_damaged(void **state)
{
    (void)state;
    static const char whole[] =
        "<?xml version=\"1.0\"?><ListBucketResult xmlns='http://x'><Contents><Key>a&amp;b</Key>"
        "<Size>12</Size></Contents><IsTruncated>false</IsTruncated></ListBucketResult>";
    struct tern_text out = {0};
    char copy[sizeof whole];
    for (size_t cut = 0; cut < sizeof whole - 1; cut++) {
        out.length = 0;
        assert_int_equal(tern_xml_each(whole, cut, print_event, &out), TERN_ERR_INPUT);
        for (int with = 0; with < 256; with++) {
            memcpy(copy, whole, sizeof whole);
            copy[cut] = (char)with;
            out.length = 0;
            tern_status status = tern_xml_each(copy, sizeof whole - 1, print_event, &out);
            assert_true(status == TERN_OK || status == TERN_ERR_INPUT);
        }
    }
    tern_text_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v4_suite),    cmocka_unit_test(test_shared_key),
        cmocka_unit_test(test_s3_example),  cmocka_unit_test(test_limits),
        cmocka_unit_test(test_encodings),   cmocka_unit_test(test_xml),
        cmocka_unit_test(test_xml_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
