/* tokenizer_added.c - added tokens in a text: the leftmost, the longest there, with the white space
 * they take along; as Hugging Face's AddedVocabulary finds them. */
#include "io/tokenizer_internal.h"

tern_status tern_added_index(struct tern_tokenizer *tokenizer)
{
    struct tern_normalizer normalizer = {0};
    tern_status status = TERN_OK;
    for (int i = 0; i < tokenizer->added_count && status == TERN_OK; i++) {
        const struct tern_added *added = &tokenizer->added[i];
        const char *text = added->text.data;
        size_t bytes = added->text.bytes;
        int pass = added->is_normalized ? 1 : 0;
        if (added->is_normalized) {
            TERN_GOTO_IF_ERR(status, tern_normalize(tokenizer, &normalizer, false, &text, &bytes),
                             out);
            TERN_GOTO_IF_ERR(status, tern_tokenizer_set_decoded(tokenizer, added->id, text, bytes),
                             out);
        }
        if (bytes == 0) {
            continue;
        }
        tokenizer->added_starts[pass][(uint8_t)text[0]] = true;
        if ((int)bytes > tokenizer->longest_added_bytes) {
            tokenizer->longest_added_bytes = (int)bytes;
        }
        status = tern_trie_add(&tokenizer->added_tries[pass], text, bytes, i);
    }
out:
    tern_normalizer_fini(&normalizer);
    return status;
}

static bool is_space(int flags)
{
    return (flags & TERN_CLASS_MASK) == TERN_CLASS_SPACE;
}

/* A letter, mark, digit or the like stands on either side of [start, end). */
static bool touches_word(const struct tern_added_scan *scan, size_t start, size_t end)
{
    const struct tern_chars *chars = &scan->tokenizer->chars;
    const uint8_t *text = (const uint8_t *)scan->text;
    int length;
    if (start > 0 && (tern_chars_before(chars, text, start, &length) & TERN_CHAR_WORD)) {
        return true;
    }
    return end < scan->bytes &&
           (tern_chars_next(chars, text + end, scan->bytes - end, &length) & TERN_CHAR_WORD);
}

/* Where the white space before `start` begins, no further back than what was given out. */
static size_t blank_start(const struct tern_added_scan *scan, size_t start)
{
    while (start > scan->done) {
        int length;
        int flags =
            tern_chars_before(&scan->tokenizer->chars, (const uint8_t *)scan->text, start, &length);
        if (!is_space(flags)) {
            break;
        }
        start -= (size_t)length;
    }
    return start < scan->done ? scan->done : start;
}

/* Where the white space at `end` ends. Remembered: tokens made of blanks ask about one run again and
 * again. */
static size_t blank_end(struct tern_added_scan *scan, size_t end)
{
    if (end >= scan->blank_from && end < scan->blank_end) {
        return scan->blank_end;
    }
    size_t at = end;
    while (at < scan->bytes) {
        int length;
        int flags = tern_chars_next(&scan->tokenizer->chars, (const uint8_t *)scan->text + at,
                                    scan->bytes - at, &length);
        if (!is_space(flags)) {
            break;
        }
        at += (size_t)length;
    }
    scan->blank_from = end;
    scan->blank_end = at;
    return at;
}

/* The next token at or after scan->at that counts; false if there is none. */
static bool find(struct tern_added_scan *scan, struct tern_added_match *out)
{
    const struct tern_tokenizer *tokenizer = scan->tokenizer;
    const struct tern_trie *trie = &tokenizer->added_tries[scan->pass];
    const bool *starts = tokenizer->added_starts[scan->pass];
    if (trie->edges == NULL) {
        return false;
    }
    while (scan->at < scan->bytes) {
        if (!starts[(uint8_t)scan->text[scan->at]]) {
            scan->at++;
            continue;
        }
        size_t bytes = 0;
        int32_t index =
            tern_trie_longest(trie, scan->text + scan->at, scan->bytes - scan->at, &bytes);
        if (index == TERN_TRIE_NONE) {
            scan->at++;
            continue;
        }
        const struct tern_added *added = &tokenizer->added[index];
        size_t start = scan->at;
        size_t end = start + bytes;
        scan->at = end; /* matches do not overlap, even those that do not count */
        if ((added->is_special && !scan->parse_special) ||
            (added->is_single_word && touches_word(scan, start, end))) {
            continue;
        }
        start = added->strips_left ? blank_start(scan, start) : start;
        end = added->strips_right ? blank_end(scan, end) : end;
        *out = (struct tern_added_match){start, end, added};
        return true;
    }
    return false;
}

bool tern_added_next(struct tern_added_scan *scan, struct tern_added_match *out)
{
    if (!scan->has_held) {
        scan->has_held = find(scan, &scan->held);
        size_t stretch_end = scan->has_held ? scan->held.start : scan->bytes;
        if (scan->done < stretch_end) {
            *out = (struct tern_added_match){scan->done, stretch_end, NULL};
            scan->done = stretch_end;
            return true;
        }
    }
    if (!scan->has_held) {
        return false;
    }
    *out = scan->held;
    scan->done = scan->held.end;
    scan->has_held = false;
    return true;
}

/* Some token of one pass begins before text[at] and ends at it or behind. */
static bool straddles(const struct tern_tokenizer *tokenizer,
                      int pass,
                      const char *text,
                      size_t bytes,
                      size_t at)
{
    const struct tern_trie *trie = &tokenizer->added_tries[pass];
    size_t reach = (size_t)tokenizer->longest_added_bytes;
    if (trie->edges == NULL) {
        return false;
    }
    for (size_t start = at > reach ? at - reach : 0; start < at; start++) {
        int32_t node = TERN_TRIE_ROOT;
        for (size_t i = start; i < bytes && node != TERN_TRIE_NONE; i++) {
            node = tern_trie_step(trie, node, (uint8_t)text[i]);
            if (node != TERN_TRIE_NONE && i + 1 >= at && trie->values[node] != TERN_TRIE_NONE) {
                return true;
            }
        }
    }
    return false;
}

bool tern_added_straddles(const struct tern_tokenizer *tokenizer,
                          const char *text,
                          size_t bytes,
                          size_t at)
{
    /* Normalized text has no positions in the text as written; then no token of the second pass has
     * a blank inside (tern_tokenizer_finish), so that none crosses one. */
    return straddles(tokenizer, 0, text, bytes, at) ||
           (tokenizer->normal_count == 0 && straddles(tokenizer, 1, text, bytes, at));
}
