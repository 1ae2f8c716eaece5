/* learn.c - spans of a rendered conversation that the assistant says, as tokens. */
#include "runtime/chat/learn.h"

#include "runtime/base/mem.h"
#include "runtime/chat/chat.h"

#include <string.h>

struct tern_learner {
    const struct tern_template *template;
    const struct tern_tokenizer *tokenizer;
    struct tern_encoder *encoder;
    int32_t end_id; /* of a turn of the assistant; -1: unknown */
    struct tern_jinja_output whole, before, with;
    struct tern_jinja_span *spans;
    int64_t span_count, span_capacity;
    bool is_open;           /* spans by prefixes: cut behind the token that ends a turn */
    struct tern_ids ids;    /* of the whole text */
    struct tern_ids prefix; /* of a part of it */
    size_t *ends;           /* (ids.count): byte behind each token; only when has_ends */
    bool has_ends;
    int64_t end_capacity;
    uint8_t *marks;
    int64_t mark_capacity;
};

tern_status tern_learner_create(const struct tern_template *template,
                                const struct tern_tokenizer *tokenizer,
                                struct tern_learner **out)
{
    struct tern_learner *learner = tern_alloc_zero("chat", 1, sizeof *learner);
    *out = NULL;
    if (learner == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a reader of conversations");
    }
    learner->template = template;
    learner->tokenizer = tokenizer;
    if (tern_chat_end(template, tokenizer, &learner->end_id) != TERN_OK) {
        learner->end_id = -1; /* a template that wants other messages than these: its spans tell */
    }
    tern_status status = tern_encoder_create(tokenizer, &learner->encoder);
    if (status != TERN_OK) {
        tern_learner_destroy(learner);
        return status;
    }
    *out = learner;
    return TERN_OK;
}

void tern_learner_destroy(struct tern_learner *learner)
{
    if (learner == NULL) {
        return;
    }
    tern_encoder_destroy(learner->encoder);
    tern_jinja_output_fini(&learner->whole);
    tern_jinja_output_fini(&learner->before);
    tern_jinja_output_fini(&learner->with);
    tern_free(learner->spans);
    tern_free(learner->ids.data);
    tern_free(learner->prefix.data);
    tern_free(learner->ends);
    tern_free(learner->marks);
    tern_free(learner);
}

/* ---- spans of the text ---- */

static tern_status add_span(struct tern_learner *l, size_t start, size_t end)
{
    if (l->span_count == l->span_capacity) {
        int64_t capacity = l->span_capacity * 2 + 16;
        struct tern_jinja_span *grown =
            tern_realloc("chat", l->spans, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld spans", (long long)capacity);
        }
        l->spans = grown;
        l->span_capacity = capacity;
    }
    l->spans[l->span_count++] = (struct tern_jinja_span){start, end};
    return TERN_OK;
}

static tern_status render(const struct tern_learner *l,
                          const struct tern_json *conversation,
                          int64_t messages,
                          bool add_generation_prompt,
                          int64_t mark_message,
                          const char *mark,
                          struct tern_jinja_output *out)
{
    struct tern_template_request request = {.messages = conversation,
                                            .message_count = messages,
                                            .add_generation_prompt = add_generation_prompt,
                                            .mark_message = mark_message,
                                            .mark = mark,
                                            .now = -1};
    return tern_template_render(l->template, &request, out);
}

/* How many bytes two texts have in common at their beginning. */
static size_t common(const struct tern_text *a, const struct tern_text *b)
{
    size_t least = a->length < b->length ? a->length : b->length, at = 0;
    while (at < least && a->data[at] == b->data[at]) {
        at++;
    }
    return at;
}

static bool begins(const struct tern_text *a, const struct tern_text *whole)
{
    return common(a, whole) == a->length;
}

/* The end of an answer by a mark behind its content: the whole text with the mark taken out must be the whole text. */
static tern_status end_by_mark(struct tern_learner *l,
                               const struct tern_json *conversation,
                               int64_t message,
                               bool *found_out,
                               size_t *end_out)
{
    static const char mark[] = "\x02"
                               "tern: here the answer ends"
                               "\x03";
    size_t length = strlen(mark);
    TERN_RETURN_IF_ERR(render(l, conversation, -1, false, message, mark, &l->with));
    const struct tern_text *text = &l->with.text, *whole = &l->whole.text;
    const char *at = memmem(text->data, text->length, mark, length);
    *found_out = false;
    if (at == NULL || text->length != whole->length + length) {
        return TERN_OK;
    }
    size_t end = (size_t)(at - text->data);
    *found_out = memcmp(text->data, whole->data, end) == 0 &&
                 memcmp(at + length, whole->data + end, whole->length - end) == 0;
    *end_out = end;
    return TERN_OK;
}

static tern_status refuse(int64_t message, size_t at)
{
    return tern_fail(
        TERN_ERR_UNSUPPORTED,
        "message %lld: the chat template writes other text before it when the "
        "conversation goes on (texts part at byte %zu): what the assistant says cannot "
        "be told from it; mark it in the template by {%% generation %%} ... "
        "{%% endgeneration %%}",
        (long long)message, at);
}

/* The span of the assistant's turn `message` in the whole text. */
static tern_status find_turn(struct tern_learner *l,
                             const struct tern_json *conversation,
                             int64_t message)
{
    TERN_RETURN_IF_ERR(render(l, conversation, message, true, 0, NULL, &l->before));
    TERN_RETURN_IF_ERR(render(l, conversation, message + 1, false, 0, NULL, &l->with));
    const struct tern_text *before = &l->before.text, *with = &l->with.text;
    const struct tern_text *whole = &l->whole.text;
    if (!begins(before, whole)) {
        return refuse(message, common(before, whole));
    }
    if (begins(before, with) && begins(with, whole)) {
        return add_span(l, before->length, with->length);
    }
    size_t parted = begins(before, with) ? common(with, whole) : common(before, with);
    bool is_found;
    size_t end = 0;
    TERN_RETURN_IF_ERR(end_by_mark(l, conversation, message, &is_found, &end));
    if (!is_found || end < before->length) {
        return refuse(message, parted);
    }
    return add_span(l, before->length, end);
}

static bool is_assistant(const struct tern_json *message)
{
    const char *role = tern_json_string(tern_json_get(message, "role"), NULL);
    return role != NULL && strcmp(role, "assistant") == 0;
}

static tern_status find_spans(struct tern_learner *l,
                              const struct tern_json *conversation,
                              const struct tern_json *messages)
{
    l->span_count = 0;
    l->is_open = !tern_template_has_generation(l->template);
    for (int64_t i = 0; !l->is_open && i < l->whole.span_count; i++) {
        TERN_RETURN_IF_ERR(add_span(l, l->whole.spans[i].start, l->whole.spans[i].end));
    }
    for (int64_t i = 0; l->is_open && i < tern_json_count(messages); i++) {
        if (is_assistant(tern_json_item(messages, i))) {
            TERN_RETURN_IF_ERR(find_turn(l, conversation, i));
        }
    }
    return TERN_OK;
}

/* ---- tokens ---- */

/* Where each token ends, if the tokens' bytes are the text's: not so where a tokenizer changes the text. */
static tern_status find_ends(struct tern_learner *l)
{
    const struct tern_text *text = &l->whole.text;
    if (l->ids.count > l->end_capacity) {
        size_t *grown = tern_realloc("chat", l->ends, (size_t)l->ids.count * 2 * sizeof *grown);
        if (grown == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate places of %lld tokens",
                             (long long)l->ids.count);
        }
        l->ends = grown;
        l->end_capacity = l->ids.count * 2;
    }
    size_t at = 0;
    l->has_ends = false;
    for (int64_t i = 0; i < l->ids.count; i++) {
        size_t bytes;
        const char *piece = tern_tokenizer_piece(l->tokenizer, l->ids.data[i], &bytes);
        if (piece == NULL || bytes > text->length - at ||
            memcmp(piece, text->data + at, bytes) != 0) {
            return TERN_OK;
        }
        at += bytes;
        l->ends[i] = at;
    }
    l->has_ends = at == text->length;
    return TERN_OK;
}

/* Tokens that end at or before a byte of the text. Without their places: as many as the text up to there, encoded by
 * itself, begins with alike. */
static tern_status tokens_before(struct tern_learner *l, size_t byte, int64_t *out)
{
    int64_t count = 0;
    if (l->has_ends) {
        int64_t high = l->ids.count;
        while (count < high) {
            int64_t middle = count + (high - count) / 2;
            if (l->ends[middle] <= byte) {
                count = middle + 1;
            } else {
                high = middle;
            }
        }
        *out = count;
        return TERN_OK;
    }
    l->prefix.count = 0;
    TERN_RETURN_IF_ERR(tern_encoder_append(l->encoder, l->whole.text.data, byte, true, &l->prefix));
    while (count < l->prefix.count && count < l->ids.count &&
           l->prefix.data[count] == l->ids.data[count]) {
        count++;
    }
    *out = count;
    return TERN_OK;
}

static bool is_blank(const struct tern_learner *l, int64_t token)
{
    size_t bytes;
    const char *piece = tern_tokenizer_piece(l->tokenizer, l->ids.data[token], &bytes);
    for (size_t i = 0; piece != NULL && i < bytes; i++) {
        if (strchr(" \t\r\n", piece[i]) == NULL || piece[i] == '\0') {
            return false;
        }
    }
    return true;
}

/* Tokens [first, *last) of a span found by prefixes: without blanks behind the special token that ends the turn; with
 * that token, if the span stops right before it. */
static void settle_end(const struct tern_learner *l, int64_t first, int64_t *last)
{
    int64_t end = *last;
    for (int64_t i = end; i > first && l->end_id >= 0; i--) {
        if (l->ids.data[i - 1] == l->end_id) { /* behind it: what ends the whole */
            *last = i;
            return;
        }
        if (!is_blank(l, i - 1) && !tern_tokenizer_is_special(l->tokenizer, l->ids.data[i - 1])) {
            break;
        }
    }
    while (end > first && !tern_tokenizer_is_special(l->tokenizer, l->ids.data[end - 1]) &&
           is_blank(l, end - 1)) {
        end--;
    }
    if (end > first && tern_tokenizer_is_special(l->tokenizer, l->ids.data[end - 1])) {
        *last = end;
    } else if (*last < l->ids.count &&
               tern_tokenizer_is_special(l->tokenizer, l->ids.data[*last])) {
        *last += 1;
    }
}

static tern_status mark_spans(struct tern_learner *l)
{
    if (l->ids.count > l->mark_capacity) {
        uint8_t *grown = tern_realloc("chat", l->marks, (size_t)l->ids.count * 2);
        if (grown == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate marks of %lld tokens",
                             (long long)l->ids.count);
        }
        l->marks = grown;
        l->mark_capacity = l->ids.count * 2;
    }
    memset(l->marks, 0, (size_t)l->ids.count);
    for (int64_t i = 0; i < l->span_count; i++) {
        int64_t first, last;
        TERN_RETURN_IF_ERR(tokens_before(l, l->spans[i].start, &first));
        TERN_RETURN_IF_ERR(tokens_before(l, l->spans[i].end, &last));
        /* a token that lies across an edge of a span belongs to it */
        bool is_across = l->has_ends && last < l->ids.count && last >= first &&
                         (last > 0 ? l->ends[last - 1] : 0) < l->spans[i].end;
        last += is_across;
        if (l->is_open) {
            settle_end(l, first, &last);
        }
        if (last > first) {
            memset(l->marks + first, 1, (size_t)(last - first));
        }
    }
    return TERN_OK;
}

tern_status tern_learner_read(struct tern_learner *l,
                              const struct tern_json *conversation,
                              struct tern_learned *out)
{
    const struct tern_json *messages = conversation;
    *out = (struct tern_learned){0};
    if (tern_json_kind_of(conversation) == TERN_JSON_OBJECT) {
        messages = tern_json_get(conversation, "messages");
    }
    for (int64_t i = 0; i < tern_json_count(messages); i++) {
        out->turns += is_assistant(tern_json_item(messages, i));
    }
    TERN_RETURN_IF_ERR(render(l, conversation, -1, false, 0, NULL, &l->whole));
    if (out->turns == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(find_spans(l, conversation, messages));
    l->ids.count = 0;
    TERN_RETURN_IF_ERR(
        tern_encoder_append(l->encoder, l->whole.text.data, l->whole.text.length, true, &l->ids));
    TERN_RETURN_IF_ERR(find_ends(l));
    TERN_RETURN_IF_ERR(mark_spans(l));
    out->ids = l->ids.data;
    out->marks = l->marks;
    out->count = l->ids.count;
    return TERN_OK;
}
