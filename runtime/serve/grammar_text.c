/* grammar_text.c - the inside of JSON strings: UTF-8 (Unicode 15, table 3-7: no surrogates, nothing overlong), escapes,
 * sets of strings. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_nfa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t tern_nfa_spell(uint32_t code, char out[8])
{
    static const char plain[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";
    const char *found = code != 0 && code < 0x80 ? strchr(plain, (int)code) : NULL;
    if (found != NULL) {
        out[0] = '\\';
        out[1] = letter[found - plain];
        return 2;
    }
    if (code < 0x20) {
        return (size_t)snprintf(out, 8, "\\u%04x", code);
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1;) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)((0xF00 >> length & 0xF0) | code);
    return length;
}

static void counted_byte(struct tern_nfa *nfa,
                         uint32_t from,
                         int lo,
                         int hi,
                         uint32_t target,
                         int flags)
{
    tern_nfa_edge(nfa, (struct tern_edge){.from = from,
                                          .target = target,
                                          .kind = TERN_EDGE_BYTE,
                                          .lo = (uint8_t)lo,
                                          .hi = (uint8_t)hi,
                                          .flags = (uint8_t)flags});
}

/* What needs no escape. */
static void raw_chars(struct tern_nfa *nfa, uint32_t from, uint32_t to, int flags)
{
    static const struct {
        uint8_t lead_lo, lead_hi, next_lo, next_hi, rest;
    } rows[] = {
        {0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
        {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
        {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2},
    };
    if (nfa->status != TERN_OK) {
        return;
    }
    uint32_t rule = nfa->states[from].rule;
    uint32_t rest[3] = {to, tern_nfa_state(nfa, rule), tern_nfa_state(nfa, rule)};
    tern_nfa_byte(nfa, rest[1], 0x80, 0xBF, to);
    tern_nfa_byte(nfa, rest[2], 0x80, 0xBF, rest[1]);
    counted_byte(nfa, from, 0x20, 0x21, to, flags);
    counted_byte(nfa, from, 0x23, 0x5B, to, flags);
    counted_byte(nfa, from, 0x5D, 0x7F, to, flags);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t next = tern_nfa_state(nfa, rule);
        counted_byte(nfa, from, rows[i].lead_lo, rows[i].lead_hi, next, flags);
        tern_nfa_byte(nfa, next, rows[i].next_lo, rows[i].next_hi, rest[rows[i].rest]);
    }
}

/* Bytes of a set, written as pairs of bounds: "09af" is 0-9 and a-f. */
static void byte_set(struct tern_nfa *nfa, uint32_t from, const char *pairs, uint32_t to)
{
    for (; pairs[0] != '\0'; pairs += 2) {
        tern_nfa_byte(nfa, from, (uint8_t)pairs[0], (uint8_t)pairs[1], to);
    }
}

/* \" and its kind and \uXXXX: one that is no surrogate, or a high one and a low one. */
static void any_escape(struct tern_nfa *nfa, uint32_t from, uint32_t to, int flags)
{
    static const char hex[] = "09afAF", simple[] = "\"\"\\\\//bbffnnrrtt";
    if (nfa->status != TERN_OK) {
        return;
    }
    uint32_t state[12], rule = nfa->states[from].rule;
    for (size_t i = 0; i < sizeof state / sizeof state[0]; i++) {
        state[i] = tern_nfa_state(nfa, rule);
    }
    counted_byte(nfa, from, '\\', '\\', state[0], flags);
    byte_set(nfa, state[0], simple, to);
    byte_set(nfa, state[0], "uu", state[1]);
    byte_set(nfa, state[1], "09acefACEF", state[2]); /* no D: three more of any */
    byte_set(nfa, state[2], hex, state[3]);
    byte_set(nfa, state[3], hex, state[4]);
    byte_set(nfa, state[4], hex, to);
    byte_set(nfa, state[1], "ddDD", state[5]);
    byte_set(nfa, state[5], "07", state[3]);
    byte_set(nfa, state[5], "89abAB", state[6]); /* a high surrogate */
    byte_set(nfa, state[6], hex, state[7]);
    byte_set(nfa, state[7], hex, state[8]);
    byte_set(nfa, state[8], "\\\\", state[9]);
    byte_set(nfa, state[9], "uu", state[10]);
    byte_set(nfa, state[10], "ddDD", state[11]);
    uint32_t low = tern_nfa_state(nfa, rule);
    byte_set(nfa, state[11], "cfCF", low);
    byte_set(nfa, low, hex, state[4]);
}

void tern_nfa_text_loop(struct tern_nfa *nfa, uint32_t state, int flags)
{
    raw_chars(nfa, state, state, flags);
    any_escape(nfa, state, state, flags);
    if (nfa->status == TERN_OK) {
        nfa->states[state].is_text = true;
    }
}

void tern_nfa_canonical_loop(struct tern_nfa *nfa, uint32_t state)
{
    raw_chars(nfa, state, state, 0);
    tern_nfa_chars(nfa, state, 0, 0x1F, state);
    tern_nfa_chars(nfa, state, '"', '"', state);
    tern_nfa_chars(nfa, state, '\\', '\\', state);
    if (nfa->status == TERN_OK) {
        nfa->states[state].is_text = true;
    }
}

/* lo..hi of one length in UTF-8, where all tails are whole or split off by the caller below. */
static void utf8_range(struct tern_nfa *nfa, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    /* split where the low 6, 12, 18 bits are not a full range */
    for (int i = 1; i < 4 && nfa->status == TERN_OK; i++) {
        uint32_t mask = (1U << (6 * i)) - 1;
        if ((lo & ~mask) != (hi & ~mask)) {
            if ((lo & mask) != 0) {
                utf8_range(nfa, from, lo, lo | mask, to);
                utf8_range(nfa, from, (lo | mask) + 1, hi, to);
                return;
            }
            if ((hi & mask) != mask) {
                utf8_range(nfa, from, lo, (hi & ~mask) - 1, to);
                utf8_range(nfa, from, hi & ~mask, hi, to);
                return;
            }
        }
    }
    char first[8], last[8];
    size_t length = tern_nfa_spell(lo, first);
    tern_nfa_spell(hi, last);
    for (size_t i = 0; i < length && nfa->status == TERN_OK; i++) {
        uint32_t next = i + 1 == length ? to : tern_nfa_state(nfa, nfa->states[from].rule);
        tern_nfa_byte(nfa, from, (uint8_t)first[i], (uint8_t)last[i], next);
        from = next;
    }
}

/* One character that is spelled with an escape, or an ASCII one. */
static void one_char(struct tern_nfa *nfa, uint32_t from, uint32_t code, uint32_t to)
{
    char spelled[8];
    size_t length = tern_nfa_spell(code, spelled);
    uint32_t last = tern_nfa_bytes(nfa, from, spelled, length - 1);
    tern_nfa_byte(nfa, last, (uint8_t)spelled[length - 1], (uint8_t)spelled[length - 1], to);
}

void tern_nfa_chars(struct tern_nfa *nfa, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to)
{
    static const uint32_t starts[] = {0x20, '"',   '"' + 1, '\\',   '\\' + 1,
                                      0x80, 0x800, 0xD800,  0xE000, 0x10000};
    for (; lo < 0x20 && lo <= hi; lo++) {
        one_char(nfa, from, lo, to);
    }
    for (size_t i = 0; i < sizeof starts / sizeof starts[0] && lo <= hi; i++) {
        uint32_t end = i + 1 < sizeof starts / sizeof starts[0] ? starts[i + 1] - 1 : 0x10FFFF;
        uint32_t first = lo > starts[i] ? lo : starts[i], last = hi < end ? hi : end;
        if (first > last || first == 0xD800 || (first > 0xD800 && first < 0xE000)) {
            continue;
        }
        if (first == '"' || first == '\\') {
            one_char(nfa, from, first, to);
        } else if (last < 0x80) {
            tern_nfa_byte(nfa, from, (int)first, (int)last, to);
        } else {
            utf8_range(nfa, from, first, last, to);
        }
    }
}

static int compare_spans(const void *a, const void *b)
{
    const struct tern_span *x = a, *y = b;
    size_t shorter = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = shorter > 0 ? memcmp(x->data, y->data, shorter) : 0;
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static size_t shared_bytes(const struct tern_span *a, const struct tern_span *b)
{
    size_t n = 0;
    while (n < a->bytes && n < b->bytes && a->data[n] == b->data[n]) {
        n++;
    }
    return n;
}

/* Bytes of the text's UTF-8 as canonical JSON; each byte that needs no escape is itself. */
static uint32_t spelled_byte(struct tern_nfa *nfa, uint32_t from, unsigned char byte)
{
    char spelled[8] = {(char)byte};
    size_t length = byte < 0x80 ? tern_nfa_spell(byte, spelled) : 1;
    return tern_nfa_bytes(nfa, from, spelled, length);
}

void tern_nfa_strings(struct tern_nfa *nfa,
                      uint32_t start,
                      struct tern_span *strings,
                      size_t count,
                      int flags)
{
    /* In order, a string shares its beginning with the one before it: path[i] is the state behind i bytes. Escapes
     * of different bytes may share beginnings too; the deterministic automaton takes care of those. */
    uint32_t *path = NULL;
    size_t capacity = 0;
    qsort(strings, count, sizeof *strings, compare_spans);
    for (size_t i = 0; i < count && nfa->status == TERN_OK; i++) {
        const struct tern_span *string = &strings[i];
        size_t shared = i > 0 ? shared_bytes(&strings[i - 1], string) : 0;
        if (i > 0 && shared == string->bytes) {
            continue; /* twice the same */
        }
        if (!tern_grammar_grow((void **)&path, &capacity, string->bytes + 1, sizeof *path)) {
            nfa->status = tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
            break;
        }
        path[0] = start;
        for (size_t k = shared; k < string->bytes && nfa->status == TERN_OK; k++) {
            path[k + 1] = spelled_byte(nfa, path[k], (unsigned char)string->data[k]);
        }
        tern_nfa_return(nfa, path[string->bytes], flags);
    }
    tern_free(path);
}
