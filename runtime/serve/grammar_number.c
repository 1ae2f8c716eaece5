/* grammar_number.c - numbers digit by digit: any, whole ones between bounds, decimal ones between bounds. */
#include "runtime/serve/grammar_nfa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHOLE_DIGITS = 18,
    FRACTION_DIGITS = 17,
    EXPONENT_DIGITS = 2,
    PRECISE_DIGITS = 15, /* as many decimal digits differ as doubles too */
    BOUND_DIGITS = 32,   /* behind the point, at most */
};

/* from -> to by least..most digits. */
static void digits(struct tern_nfa *nfa, uint32_t from, uint32_t to, int least, int most)
{
    for (int i = 0; i < most && nfa->status == TERN_OK; i++) {
        if (i >= least) {
            tern_nfa_empty(nfa, from, to, 0);
        }
        uint32_t next = i + 1 == most ? to : tern_nfa_state(nfa, nfa->states[from].rule);
        tern_nfa_byte(nfa, from, '0', '9', next);
        from = next;
    }
    if (most == 0) {
        tern_nfa_empty(nfa, from, to, 0);
    }
}

void tern_nfa_any_number(struct tern_nfa *nfa, uint32_t from, uint32_t to)
{
    if (nfa->status != TERN_OK) {
        return;
    }
    uint32_t rule = nfa->states[from].rule, state[6];
    for (size_t i = 0; i < sizeof state / sizeof state[0]; i++) {
        state[i] = tern_nfa_state(nfa, rule);
    }
    tern_nfa_empty(nfa, from, state[0], 0);
    tern_nfa_byte(nfa, from, '-', '-', state[0]);
    uint32_t more = tern_nfa_state(nfa, rule);
    tern_nfa_byte(nfa, state[0], '0', '0', state[1]);
    tern_nfa_byte(nfa, state[0], '1', '9', more);
    digits(nfa, more, state[1], 0, WHOLE_DIGITS - 1);
    tern_nfa_byte(nfa, state[1], '.', '.', state[2]);
    digits(nfa, state[2], state[3], 1, FRACTION_DIGITS);
    tern_nfa_empty(nfa, state[1], state[3], 0);
    tern_nfa_empty(nfa, state[3], to, 0);
    tern_nfa_byte(nfa, state[3], 'e', 'e', state[4]);
    tern_nfa_byte(nfa, state[3], 'E', 'E', state[4]);
    tern_nfa_empty(nfa, state[4], state[5], 0);
    tern_nfa_byte(nfa, state[4], '+', '+', state[5]);
    tern_nfa_byte(nfa, state[4], '-', '-', state[5]);
    digits(nfa, state[5], to, 1, EXPONENT_DIGITS);
}

/* States from which any n digits lead to the same end, made when first asked for. */
struct tails {
    struct tern_nfa *nfa;
    uint32_t to;
    uint32_t state[24];
    bool is_made[24];
};

static uint32_t tail(struct tails *tails, int count)
{
    if (count == 0 || tails->nfa->status != TERN_OK) {
        return tails->to;
    }
    if (!tails->is_made[count]) {
        uint32_t next = tail(tails, count - 1);
        if (tails->nfa->status != TERN_OK) {
            return tails->to;
        }
        tails->state[count] = tern_nfa_state(tails->nfa, tails->nfa->states[tails->to].rule);
        tails->is_made[count] = true;
        tern_nfa_byte(tails->nfa, tails->state[count], '0', '9', next);
    }
    return tails->state[count];
}

/* Digit strings of one length between lo and hi. */
static void digit_range(struct tails *tails,
                        uint32_t from,
                        const char *lo,
                        const char *hi,
                        int count)
{
    struct tern_nfa *nfa = tails->nfa;
    static const char zeros[] = "00000000000000000000", nines[] = "99999999999999999999";
    if (nfa->status != TERN_OK) {
        return;
    }
    if (count == 1) {
        tern_nfa_byte(nfa, from, lo[0], hi[0], tails->to);
        return;
    }
    if (lo[0] == hi[0]) {
        uint32_t next = tern_nfa_state(nfa, nfa->states[from].rule);
        tern_nfa_byte(nfa, from, lo[0], lo[0], next);
        digit_range(tails, next, lo + 1, hi + 1, count - 1);
        return;
    }
    int first = lo[0], last = hi[0];
    if (strspn(lo + 1, "0") < (size_t)count - 1) {
        uint32_t next = tern_nfa_state(nfa, nfa->states[from].rule);
        tern_nfa_byte(nfa, from, first, first, next);
        digit_range(tails, next, lo + 1, nines, count - 1);
        first++;
    }
    if (strspn(hi + 1, "9") < (size_t)count - 1 && nfa->status == TERN_OK) {
        uint32_t next = tern_nfa_state(nfa, nfa->states[from].rule);
        tern_nfa_byte(nfa, from, last, last, next);
        digit_range(tails, next, zeros, hi + 1, count - 1);
        last--;
    }
    if (first <= last) {
        tern_nfa_byte(nfa, from, first, last, tail(tails, count - 1));
    }
}

/* lo..hi without leading zeros. */
static void magnitudes(struct tern_nfa *nfa, uint32_t from, uint32_t to, uint64_t lo, uint64_t hi)
{
    struct tails tails = {.nfa = nfa, .to = to};
    uint64_t first = 0, last = 9; /* of the numbers with `count` digits */
    for (int count = 1; count <= 20 && first <= hi; count++) {
        if (last >= lo) {
            char low[24], high[24];
            snprintf(low, sizeof low, "%llu", (unsigned long long)(lo > first ? lo : first));
            snprintf(high, sizeof high, "%llu", (unsigned long long)(hi < last ? hi : last));
            digit_range(&tails, from, low, high, count);
        }
        first = last + 1;
        last = count < 19 ? first * 10 - 1 : UINT64_MAX;
    }
}

void tern_nfa_integers(struct tern_nfa *nfa, uint32_t from, uint32_t to, int64_t lo, int64_t hi)
{
    if (hi >= 0 && lo <= hi) {
        magnitudes(nfa, from, to, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi);
    }
    if (lo < 0 && lo <= hi && nfa->status == TERN_OK) {
        uint32_t minus = tern_nfa_state(nfa, nfa->states[from].rule);
        tern_nfa_byte(nfa, from, '-', '-', minus);
        magnitudes(nfa, minus, to, hi < 0 ? 0 - (uint64_t)hi : 1, 0 - (uint64_t)lo);
    }
}

/* A bound in decimal: the shortest that reads back as the same double, behind the point without trailing zeros. */
struct decimal {
    uint64_t whole;
    char fraction[BOUND_DIGITS + 1]; /* zeros behind its digits */
    int fraction_digits;
    bool is_excluded;
};

static bool decimal_of(double value, bool is_excluded, struct decimal *out)
{
    *out = (struct decimal){.is_excluded = is_excluded};
    memset(out->fraction, '0', BOUND_DIGITS);
    if (value == 0) {
        return true;
    }
    if (!(value >= 1e-9 && value < 1e15)) {
        return false;
    }
    char text[40];
    int precision = 0;
    do {
        snprintf(text, sizeof text, "%.*e", precision, value);
    } while (strtod(text, NULL) != value && ++precision < 17);
    int exponent = atoi(strchr(text, 'e') + 1);
    for (int i = 0; i <= precision; i++) {
        char digit = text[i == 0 ? 0 : i + 1]; /* d.ddde+xx */
        int place = i - exponent - 1;          /* behind the point; below 0: before it */
        if (place < 0) {
            out->whole = out->whole * 10 + (uint64_t)(digit - '0');
        } else if (place < BOUND_DIGITS) {
            out->fraction[place] = digit;
            out->fraction_digits = digit != '0' ? place + 1 : out->fraction_digits;
        }
    }
    for (int i = precision + 1; i <= exponent; i++) {
        out->whole *= 10;
    }
    return true;
}

static bool is_rest_zero(const struct decimal *bound, int at)
{
    return bound->fraction_digits <= at;
}

/* What may follow the whole part, which equals lo's (lo not NULL) or hi's: a state for each number of digits and each
 * way to be still equal to a bound. */
struct fraction {
    struct tern_nfa *nfa;
    const struct decimal *lo, *hi;
    int digits_max;
    uint32_t to;
    uint32_t states[BOUND_DIGITS + 2][4];
    bool is_made[BOUND_DIGITS + 2][4];
};

static bool may_stop(const struct fraction *f, int at, int equal)
{
    bool at_lo = (equal & 1) != 0, at_hi = (equal & 2) != 0;
    return !(at_lo && (!is_rest_zero(f->lo, at) || f->lo->is_excluded)) &&
           !(at_hi && is_rest_zero(f->hi, at) && f->hi->is_excluded);
}

/* The state behind `at` digits; equal: 1 so far the digits of lo, 2 of hi. */
static uint32_t fraction_state(struct fraction *f, int at, int equal)
{
    struct tern_nfa *nfa = f->nfa;
    if (nfa->status != TERN_OK || f->is_made[at][equal]) {
        return f->states[at][equal];
    }
    uint32_t state = tern_nfa_state(nfa, nfa->status == TERN_OK ? nfa->states[f->to].rule : 0);
    f->states[at][equal] = state;
    f->is_made[at][equal] = true;
    if (at > 0 && may_stop(f, at, equal)) {
        tern_nfa_empty(nfa, state, f->to, 0);
    }
    int least = (equal & 1) != 0 ? f->lo->fraction[at] : '0';
    int most = (equal & 2) != 0 ? f->hi->fraction[at] : '9';
    for (int digit = least; at < f->digits_max && digit <= most; digit++) {
        int next = ((equal & 1) != 0 && digit == least ? 1 : 0) |
                   ((equal & 2) != 0 && digit == most ? 2 : 0);
        tern_nfa_byte(nfa, state, digit, digit, fraction_state(f, at + 1, next));
    }
    return state;
}

/* from, behind the whole part, -> to. */
static void fraction(struct tern_nfa *nfa,
                     uint32_t from,
                     uint32_t to,
                     const struct decimal *lo,
                     const struct decimal *hi,
                     uint64_t whole)
{
    struct fraction f = {.nfa = nfa, .lo = lo, .hi = hi, .to = to, .digits_max = PRECISE_DIGITS};
    int equal = (lo != NULL ? 1 : 0) | (hi != NULL ? 2 : 0);
    for (; whole > 0; whole /= 10) {
        f.digits_max--;
    }
    f.digits_max = f.digits_max < 0 ? 0 : f.digits_max;
    if (lo != NULL && lo->fraction_digits > f.digits_max) {
        f.digits_max = lo->fraction_digits;
    }
    if (hi != NULL && hi->fraction_digits > f.digits_max) {
        f.digits_max = hi->fraction_digits;
    }
    if (may_stop(&f, 0, equal)) {
        tern_nfa_empty(nfa, from, to, 0);
    }
    if (f.digits_max > 0) {
        tern_nfa_byte(nfa, from, '.', '.', fraction_state(&f, 0, equal));
    }
}

/* Numbers without a sign in [lo, hi]; hi NULL: no bound. */
static void decimals(struct tern_nfa *nfa,
                     uint32_t from,
                     uint32_t to,
                     const struct decimal *lo,
                     const struct decimal *hi)
{
    static const uint64_t whole_max = 999999999999999999;
    if (nfa->status != TERN_OK || (hi != NULL && hi->whole < lo->whole)) {
        return;
    }
    uint32_t rule = nfa->states[from].rule;
    bool is_same = hi != NULL && hi->whole == lo->whole;
    uint32_t low = tern_nfa_state(nfa, rule);
    magnitudes(nfa, from, low, lo->whole, lo->whole);
    fraction(nfa, low, to, lo, is_same ? hi : NULL, lo->whole);
    if (hi != NULL && !is_same) {
        uint32_t high = tern_nfa_state(nfa, rule);
        magnitudes(nfa, from, high, hi->whole, hi->whole);
        fraction(nfa, high, to, NULL, hi, hi->whole);
    }
    uint64_t first = lo->whole + 1, last = hi != NULL ? hi->whole : whole_max + 1;
    if (first < last && nfa->status == TERN_OK) {
        uint32_t between = tern_nfa_state(nfa, rule);
        magnitudes(nfa, from, between, first, last - 1);
        fraction(nfa, between, to, NULL, NULL, hi != NULL ? hi->whole : 0);
    }
}

bool tern_nfa_numbers(struct tern_nfa *nfa,
                      uint32_t from,
                      uint32_t to,
                      const struct tern_bounds *bounds)
{
    struct decimal lo, hi, zero, above_zero;
    bool has_lo = isfinite(bounds->lo), has_hi = isfinite(bounds->hi);
    decimal_of(0, false, &zero);
    decimal_of(0, true, &above_zero);
    if ((has_lo && !decimal_of(fabs(bounds->lo), bounds->lo_excluded, &lo)) ||
        (has_hi && !decimal_of(fabs(bounds->hi), bounds->hi_excluded, &hi))) {
        return false;
    }
    if (bounds->lo > bounds->hi) {
        return true;
    }
    if (bounds->hi >= 0) {
        decimals(nfa, from, to, has_lo && bounds->lo >= 0 ? &lo : &zero, has_hi ? &hi : NULL);
    }
    if (bounds->lo < 0 && nfa->status == TERN_OK) {
        uint32_t minus = tern_nfa_state(nfa, nfa->states[from].rule);
        tern_nfa_byte(nfa, from, '-', '-', minus);
        decimals(nfa, minus, to, has_hi && bounds->hi < 0 ? &hi : &above_zero, has_lo ? &lo : NULL);
    }
    return true;
}
