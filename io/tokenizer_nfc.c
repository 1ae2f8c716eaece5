/* tokenizer_nfc.c - canonical composition, stretch by stretch: most text is its own form C and is
 * copied; a stretch from a starter over everything that may combine is decomposed, ordered and
 * composed. Ordering counts classes, so a million marks in a row cost no more than elsewhere. */
#include "io/tokenizer_nfc.h"

#include "runtime/base/mem.h"

#include <inttypes.h>
#include <string.h>

enum {
    S_BASE = 0xac00, /* Hangul, section 3.12 of the standard */
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT,
    DECOMPOSED_MAX = 4, /* code points of one character */
    CLASSES = 256,
};

int tern_nfc_value(const struct tern_nfc_range *ranges, int count, uint32_t code)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (ranges[middle].last < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && ranges[low].first <= code ? ranges[low].value : 0;
}

static int class_of(uint32_t code)
{
    return code < 0x300 ? 0 : tern_nfc_value(tern_nfc_classes, tern_nfc_class_count, code);
}

/* out [DECOMPOSED_MAX]; returns how many. */
static int decompose(uint32_t code, uint32_t *out)
{
    if (code >= S_BASE && code < S_BASE + S_COUNT) {
        uint32_t index = code - S_BASE;
        out[0] = L_BASE + index / (V_COUNT * T_COUNT);
        out[1] = V_BASE + index % (V_COUNT * T_COUNT) / T_COUNT;
        out[2] = T_BASE + index % T_COUNT;
        return index % T_COUNT == 0 ? 2 : 3;
    }
    int low = 0, high = tern_nfc_decomposition_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (tern_nfc_decompositions[middle].code < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct tern_nfc_decomposition *entry = &tern_nfc_decompositions[low];
    if (low == tern_nfc_decomposition_count || entry->code != code) {
        out[0] = code;
        return 1;
    }
    memcpy(out, tern_nfc_pool + entry->pool, entry->count * sizeof *out);
    return entry->count;
}

/* The character that two make; 0 if they make none. */
static uint32_t compose(uint32_t first, uint32_t second)
{
    if (first >= L_BASE && first < L_BASE + L_COUNT && second >= V_BASE &&
        second < V_BASE + V_COUNT) {
        return S_BASE + ((first - L_BASE) * V_COUNT + (second - V_BASE)) * T_COUNT;
    }
    if (first >= S_BASE && first < S_BASE + S_COUNT && (first - S_BASE) % T_COUNT == 0 &&
        second > T_BASE && second < T_BASE + T_COUNT) {
        return first + (second - T_BASE);
    }
    int low = 0, high = tern_nfc_pair_count;
    while (low < high) {
        int middle = (low + high) / 2;
        const struct tern_nfc_pair *pair = &tern_nfc_pairs[middle];
        if (pair->first < first || (pair->first == first && pair->second < second)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct tern_nfc_pair *pair = &tern_nfc_pairs[low];
    bool is_pair = low < tern_nfc_pair_count && pair->first == first && pair->second == second;
    return is_pair ? pair->composed : 0;
}

void tern_nfc_fini(struct tern_nfc *nfc)
{
    tern_free(nfc->codes);
    tern_free(nfc->sorted);
    *nfc = (struct tern_nfc){0};
}

static tern_status reserve(struct tern_nfc *nfc, int64_t count)
{
    if (count <= nfc->capacity) {
        return TERN_OK;
    }
    int64_t capacity = count + count / 2 + 64;
    size_t bytes = (size_t)capacity * sizeof *nfc->codes;
    uint32_t *codes = tern_realloc("composition", nfc->codes, bytes);
    if (codes != NULL) {
        nfc->codes = codes;
        uint32_t *sorted = tern_realloc("composition", nfc->sorted, bytes);
        if (sorted != NULL) {
            nfc->sorted = sorted;
            nfc->capacity = capacity;
            return TERN_OK;
        }
    }
    return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " characters to compose",
                     capacity);
}

/* Marks [at, end) by class, those of one class as they came. */
static void sort_marks(struct tern_nfc *nfc, int64_t at, int64_t end)
{
    int64_t starts[CLASSES + 1] = {0};
    for (int64_t i = at; i < end; i++) {
        starts[class_of(nfc->codes[i]) + 1]++;
    }
    for (int class = 1; class <= CLASSES; class ++) {
        starts[class] += starts[class - 1];
    }
    for (int64_t i = at; i < end; i++) {
        nfc->sorted[starts[class_of(nfc->codes[i])]++] = nfc->codes[i];
    }
    memcpy(nfc->codes + at, nfc->sorted, (size_t)(end - at) * sizeof *nfc->codes);
}

/* Canonical order: runs of marks sorted by class. */
static void order(struct tern_nfc *nfc)
{
    for (int64_t at = 0; at < nfc->count;) {
        if (class_of(nfc->codes[at]) == 0) {
            at++;
            continue;
        }
        int64_t end = at;
        bool is_sorted = true;
        for (int last = 0; end < nfc->count; end++) {
            int class = class_of(nfc->codes[end]);
            if (class == 0) {
                break;
            }
            is_sorted = is_sorted && class >= last;
            last = class;
        }
        if (!is_sorted) {
            sort_marks(nfc, at, end);
        }
        at = end;
    }
}

/* Composes codes in place. A mark reaches back to the last starter unless one of its own class or
 * above, or another starter, lies between. */
static void join(struct tern_nfc *nfc)
{
    int64_t kept = 0, starter = -1;
    int last = 0; /* class of the last that was kept after the starter; 0: none */
    for (int64_t i = 0; i < nfc->count; i++) {
        uint32_t code = nfc->codes[i];
        int class = class_of(code);
        bool is_next = starter == kept - 1;
        if (starter >= 0 && (is_next || last < class)) {
            uint32_t composed = compose(nfc->codes[starter], code);
            if (composed != 0) {
                nfc->codes[starter] = composed;
                continue;
            }
        }
        if (class == 0) {
            starter = kept;
        }
        last = class;
        nfc->codes[kept++] = code;
    }
    nfc->count = kept;
}

size_t tern_nfc_clean(const struct tern_chars *chars, const char *text, size_t bytes)
{
    size_t last = 0; /* start of the character before */
    for (size_t at = 0; at < bytes;) {
        if ((uint8_t)text[at] < 0x80) {
            last = at++;
            continue;
        }
        int length;
        if (tern_chars_next(chars, (const uint8_t *)text + at, bytes - at, &length) &
            TERN_CHAR_NFC) {
            return last;
        }
        last = at;
        at += (size_t)length;
    }
    return bytes;
}

/* The stretch at text: its first character, and all after it that may combine; ends at an invalid
 * byte. Returns its bytes, 0 if it begins with one. */
static tern_status gather(struct tern_nfc *nfc,
                          const struct tern_chars *chars,
                          const char *text,
                          size_t bytes,
                          size_t *taken)
{
    nfc->count = 0;
    *taken = 0;
    while (*taken < bytes) {
        uint32_t code;
        int length = tern_utf8_decode((const uint8_t *)text + *taken, bytes - *taken, &code);
        if (length == 0 || (*taken > 0 && !(tern_chars_of_code(chars, code) & TERN_CHAR_NFC))) {
            return TERN_OK;
        }
        TERN_RETURN_IF_ERR(reserve(nfc, nfc->count + DECOMPOSED_MAX));
        nfc->count += decompose(code, nfc->codes + nfc->count);
        *taken += (size_t)length;
    }
    return TERN_OK;
}

tern_status tern_nfc_append(struct tern_nfc *nfc,
                            const struct tern_chars *chars,
                            const char *text,
                            size_t bytes,
                            struct tern_text *out)
{
    for (size_t at = 0; at < bytes;) {
        size_t clean = tern_nfc_clean(chars, text + at, bytes - at);
        TERN_RETURN_IF_ERR(tern_text_append(out, text + at, clean));
        at += clean;
        if (at == bytes) {
            break;
        }
        size_t taken;
        TERN_RETURN_IF_ERR(gather(nfc, chars, text + at, bytes - at, &taken));
        if (taken == 0) { /* an invalid byte before something that combines */
            TERN_RETURN_IF_ERR(tern_text_append(out, text + at, 1));
            at++;
            continue;
        }
        order(nfc);
        join(nfc);
        for (int64_t i = 0; i < nfc->count; i++) {
            char utf8[4];
            int length = tern_utf8_encode(nfc->codes[i], utf8);
            TERN_RETURN_IF_ERR(tern_text_append(out, utf8, (size_t)length));
        }
        at += taken;
    }
    return TERN_OK;
}
