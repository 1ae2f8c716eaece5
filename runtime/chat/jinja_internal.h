/* jinja_internal.h - what the template engine's files share: memory, values, the tree, a run. */
#ifndef TERN_RUNTIME_CHAT_JINJA_INTERNAL_H
#define TERN_RUNTIME_CHAT_JINJA_INTERNAL_H

#include "runtime/chat/jinja.h"

/* ---- memory (jinja_memory.c) ---- */

/* Blocks are freed all at once. Limit: bytes of all chunks together. */
struct jinja_chunk;
struct jinja_pool {
    struct jinja_chunk *chunks;
    char *next, *end;
    size_t used_bytes, limit_bytes;
};
void tern_jinja_pool_fini(struct jinja_pool *pool);
/* 8-byte aligned, zeroed; NULL: over the limit, or no memory. */
void *tern_jinja_pool_alloc(struct jinja_pool *pool, size_t bytes);
/* Room for characters behind `data` (its `bytes` are the pool's newest), in place if it can be, else copied. */
char *tern_jinja_pool_extend(struct jinja_pool *pool, const char *data, size_t bytes, size_t more);

/* ---- values (jinja_value.c) ---- */

enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_RANGE,
    JINJA_VIEW,      /* of a dict: keys(), values(), items() */
    JINJA_GENERATOR, /* what filters such as select give: no length, read once */
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_FUNCTION,
    JINJA_METHOD,
    JINJA_LOOP,
};

/* UTF-8, not terminated; parts of strings share bytes. */
struct jinja_string {
    const char *data;
    size_t bytes;
    size_t characters; /* SIZE_MAX: not counted yet */
};

struct jinja_value {
    uint8_t kind;
    bool is_safe; /* a string that `safe` marked: + escapes what joins it, as Markup does */
    union {
        bool truth;
        int64_t integer;
        double real;
        struct jinja_string *string;
        struct jinja_list *list;
        struct jinja_dict *dict; /* also a namespace */
        struct jinja_macro *macro;
        struct jinja_loop *loop;
        struct jinja_method *method;
        const struct jinja_function *function;
        const char *missing; /* what an undefined value was called; NULL: unknown */
    };
};

struct jinja_list {
    struct jinja_value *items;
    int64_t count;
    int64_t taken; /* generators: items already read */
};

struct jinja_entry {
    struct jinja_value key, value;
    uint32_t hash;
};
struct jinja_dict {
    struct jinja_entry *entries; /* in order of insertion */
    int64_t count, capacity;
};

struct jinja_macro {
    const struct jinja_node *node; /* NODE_MACRO or NODE_CALL_BLOCK */
    struct jinja_scope *scope;     /* where it was defined */
};

struct jinja_loop {
    const struct jinja_node *node;
    struct jinja_value *items;
    int64_t count, index; /* index from 0 */
    int depth;            /* from 0 */
    struct jinja_scope *scope;
    struct jinja_value changed; /* arguments of the last changed(), a tuple; undefined: none yet */
};

struct jinja_method {
    struct jinja_value self;
    const char *name;
};

/* ---- the tree (jinja_lex.c, jinja_parse.c, jinja_parse_expr.c) ---- */

enum jinja_node_kind {
    NODE_CONST,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,      /* list: key, value, key, value, ... */
    NODE_CONDITION, /* a if b else c */
    NODE_OR,
    NODE_AND,
    NODE_NOT,
    NODE_COMPARE, /* a, then list of NODE_OPERAND */
    NODE_OPERAND, /* op, a */
    NODE_BINARY,  /* a op b */
    NODE_CONCAT,  /* list */
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_FILTER, /* name of a, list: arguments; a NULL: of a block's text */
    NODE_TEST,   /* a is name, list: arguments */
    NODE_ATTRIBUTE,
    NODE_ITEM,                /* a[b] */
    NODE_SLICE,               /* a:b:c as the b of NODE_ITEM; each may be NULL */
    NODE_CALL,                /* a(list) */
    NODE_KEYWORD,             /* name=a in a list of arguments */
    NODE_NAMESPACE_ATTRIBUTE, /* targets: name.attribute, the attribute in value */
    NODE_TEXT,
    NODE_OUTPUT,
    NODE_IF,           /* list: NODE_BRANCH */
    NODE_BRANCH,       /* a: condition, NULL for else; body */
    NODE_FOR,          /* a: target, b: what over, c: condition; body, other */
    NODE_SET,          /* a = b */
    NODE_SET_BLOCK,    /* a, body, b: filters */
    NODE_MACRO,        /* name, list: NODE_PARAMETER; body */
    NODE_PARAMETER,    /* name, a: default or NULL */
    NODE_CALL_BLOCK,   /* list: NODE_PARAMETER, a: NODE_CALL; body */
    NODE_FILTER_BLOCK, /* a: filters, body */
    NODE_WITH,         /* list: NODE_SET, body */
    NODE_GENERATION,
    NODE_BREAK,
    NODE_CONTINUE,
};

enum jinja_operator {
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR_DIVIDE,
    OP_MODULO,
    OP_POWER,
    OP_EQUAL,
    OP_UNEQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,
    OP_NOT_IN,
};

struct jinja_node {
    uint8_t kind;      /* enum jinja_node_kind */
    uint8_t op;        /* enum jinja_operator */
    bool is_recursive; /* NODE_FOR */
    bool takes_caller; /* NODE_MACRO: its body names it */
    uint32_t at;       /* byte of the source */
    const char *name;  /* interned: equal names have equal addresses */
    struct jinja_value value;
    struct jinja_node *a, *b, *c;
    struct jinja_node *list, *body, *other; /* first of each */
    struct jinja_node *next;                /* in a list */
};

enum {
    JINJA_NAME_BUCKETS = 256
};
struct jinja_name {
    struct jinja_name *next;
    char text[];
};

struct tern_jinja {
    char *name;
    char *source; /* newlines are \n, one at the end is gone */
    size_t source_bytes;
    struct jinja_pool pool;
    struct jinja_name *names[JINJA_NAME_BUCKETS];
    const char *loop_name; /* "loop", interned */
    struct jinja_node *body;
    bool has_generation;
};

enum jinja_token_kind {
    TOKEN_END,
    TOKEN_DATA,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR, /* its text is the operator */
};

struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t at;
    const char *text; /* names and operators: interned; data and strings: bytes of them */
    size_t bytes;
    int64_t integer;
    double real;
};

/* Tokens of the source, the last one TOKEN_END; tern_alloc'd. */
TERN_MUST_CHECK tern_status tern_jinja_lex(struct tern_jinja *jinja,
                                           struct jinja_token **tokens_out,
                                           int64_t *count_out);
/* The one copy of a name that lives as long as the template; NULL: no memory. _find: NULL when there is none. */
const char *tern_jinja_intern(struct tern_jinja *jinja, const char *text, size_t bytes);
const char *tern_jinja_find_name(const struct tern_jinja *jinja, const char *text, size_t bytes);
/* TERN_ERR_INPUT or _UNSUPPORTED with name, line and column in front. */
tern_status tern_jinja_fail_at(const struct tern_jinja *jinja,
                               tern_status status,
                               size_t at,
                               const char *format,
                               ...) TERN_PRINTF(4, 5);

TERN_MUST_CHECK tern_status tern_jinja_parse(struct tern_jinja *jinja);

/* ---- a run (jinja_run.c, jinja_eval.c, ...) ---- */

struct jinja_binding {
    struct jinja_binding *next;
    const char *name;
    struct jinja_value value;
};
struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_binding *bindings;
};

/* Text in the making; its bytes are in the run's pool of characters. */
struct jinja_text {
    char *data;
    size_t length, capacity;
};

enum jinja_flow {
    FLOW_ON,
    FLOW_BREAK,
    FLOW_CONTINUE
};

struct jinja_run {
    const struct tern_jinja *jinja;
    struct jinja_pool objects, characters; /* share one limit: see memory_bytes */
    size_t memory_bytes;
    int64_t steps, steps_max;
    int depth;
    size_t at; /* byte of the source, of the node that is evaluated */
    int64_t now;
    struct jinja_scope *scope;
    struct jinja_text *out;
    struct jinja_text text; /* the outermost output */
    enum jinja_flow flow;
    struct tern_jinja_output *output;
    int64_t span_capacity;
};

/* Arguments of a call. */
struct jinja_call {
    struct jinja_value *items;
    int64_t count;
    const char **names; /* of the keyword arguments */
    struct jinja_value *values;
    int64_t keyword_count;
};

typedef tern_status (*jinja_builtin)(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out);
struct jinja_function {
    const char *name;
    jinja_builtin call;
};

tern_status tern_jinja_fail(struct jinja_run *run, const char *format, ...) TERN_PRINTF(2, 3);
tern_status tern_jinja_unsupported(struct jinja_run *run, const char *format, ...)
    TERN_PRINTF(2, 3);
TERN_MUST_CHECK tern_status tern_jinja_spend(struct jinja_run *run, int64_t steps);
TERN_MUST_CHECK tern_status tern_jinja_enter(struct jinja_run *run); /* until run->depth-- */
/* Zeroed objects of `bytes`. */
TERN_MUST_CHECK tern_status tern_jinja_new(struct jinja_run *run, size_t bytes, void *out);

TERN_MUST_CHECK tern_status tern_jinja_eval(struct jinja_run *run,
                                            const struct jinja_node *node,
                                            struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_eval_arguments(struct jinja_run *run,
                                                      const struct jinja_node *list,
                                                      struct jinja_call *call_out);
/* NODE_FILTER on a value; its inner filters, down to a NULL, first. */
TERN_MUST_CHECK tern_status tern_jinja_eval_filters(struct jinja_run *run,
                                                    const struct jinja_node *node,
                                                    struct jinja_value text,
                                                    struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_call_value(struct jinja_run *run,
                                                  struct jinja_value callee,
                                                  const struct jinja_call *call,
                                                  struct jinja_value *out);
/* Statements (jinja_exec.c). */
TERN_MUST_CHECK tern_status tern_jinja_exec(struct jinja_run *run, const struct jinja_node *body);
TERN_MUST_CHECK tern_status tern_jinja_call_macro(struct jinja_run *run,
                                                  const struct jinja_macro *macro,
                                                  const struct jinja_call *call,
                                                  struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_call_loop(struct jinja_run *run,
                                                 const struct jinja_loop *loop,
                                                 struct jinja_value over,
                                                 struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_bind(struct jinja_run *run,
                                            struct jinja_scope *scope,
                                            const char *name,
                                            struct jinja_value value);
/* a op b (jinja_operator.c). */
TERN_MUST_CHECK tern_status tern_jinja_binary(struct jinja_run *run,
                                              enum jinja_operator op,
                                              struct jinja_value a,
                                              struct jinja_value b,
                                              struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_compare(struct jinja_run *run,
                                               enum jinja_operator op,
                                               struct jinja_value a,
                                               struct jinja_value b,
                                               bool *out);
TERN_MUST_CHECK tern_status tern_jinja_negate(struct jinja_run *run,
                                              struct jinja_value a,
                                              struct jinja_value *out);
/* a.name and a[b] (jinja_access.c). */
TERN_MUST_CHECK tern_status tern_jinja_attribute(struct jinja_run *run,
                                                 struct jinja_value a,
                                                 const char *name,
                                                 struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_item(struct jinja_run *run,
                                            struct jinja_value a,
                                            struct jinja_value b,
                                            struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_slice(struct jinja_run *run,
                                             struct jinja_value a,
                                             const struct jinja_value bounds[3],
                                             struct jinja_value *out);

/* ---- values (jinja_value.c) ---- */

static inline struct jinja_value tern_jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}
static inline struct jinja_value tern_jinja_undefined(const char *name)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .missing = name};
}
static inline struct jinja_value tern_jinja_bool(bool truth)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .truth = truth};
}
static inline struct jinja_value tern_jinja_int(int64_t integer)
{
    return (struct jinja_value){.kind = JINJA_INT, .integer = integer};
}
static inline struct jinja_value tern_jinja_float(double real)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .real = real};
}
/* Kinds whose items are in .list. */
static inline bool tern_jinja_is_list(struct jinja_value value)
{
    return value.kind >= JINJA_LIST && value.kind <= JINJA_GENERATOR;
}
static inline bool tern_jinja_is_integer(struct jinja_value value)
{
    return value.kind == JINJA_INT || value.kind == JINJA_BOOL;
}
static inline int64_t tern_jinja_integer(struct jinja_value value)
{
    return value.kind == JINJA_BOOL ? value.truth : value.integer;
}
static inline bool tern_jinja_is_number(struct jinja_value value)
{
    return tern_jinja_is_integer(value) || value.kind == JINJA_FLOAT;
}
static inline double tern_jinja_real(struct jinja_value value)
{
    return value.kind == JINJA_FLOAT ? value.real : (double)tern_jinja_integer(value);
}

const char *tern_jinja_type(struct jinja_value value); /* Python's name: "str" */
bool tern_jinja_truth(struct jinja_value value);
/* A string of bytes that live long enough, or of a copy. */
TERN_MUST_CHECK tern_status tern_jinja_borrow(struct jinja_run *run,
                                              const char *data,
                                              size_t bytes,
                                              struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_copy(struct jinja_run *run,
                                            const char *data,
                                            size_t bytes,
                                            struct jinja_value *out);
/* A new list, or one of the kinds like it, of `count` undefined items. */
TERN_MUST_CHECK tern_status tern_jinja_list(struct jinja_run *run,
                                            enum jinja_kind kind,
                                            int64_t count,
                                            struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_dict(struct jinja_run *run,
                                            enum jinja_kind kind,
                                            int64_t capacity,
                                            struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_dict_set(struct jinja_run *run,
                                                struct jinja_dict *dict,
                                                struct jinja_value key,
                                                struct jinja_value value);
/* *out undefined when there is no such key. An unhashable key fails. */
TERN_MUST_CHECK tern_status tern_jinja_dict_get(struct jinja_run *run,
                                                const struct jinja_dict *dict,
                                                struct jinja_value key,
                                                bool *found_out,
                                                struct jinja_value *out);
/* By a string of ours. */
const struct jinja_value *tern_jinja_dict_find(const struct jinja_dict *dict,
                                               const char *key,
                                               size_t bytes);
TERN_MUST_CHECK tern_status tern_jinja_equal(struct jinja_run *run,
                                             struct jinja_value a,
                                             struct jinja_value b,
                                             bool *out);
/* Its items as a plain array, whatever can be iterated over; a generator is used up by it. */
TERN_MUST_CHECK tern_status tern_jinja_items(struct jinja_run *run,
                                             struct jinja_value value,
                                             struct jinja_value **items_out,
                                             int64_t *count_out);
/* len(); fails by Python's rules. */
TERN_MUST_CHECK tern_status tern_jinja_length(struct jinja_run *run,
                                              struct jinja_value value,
                                              int64_t *out);
int64_t tern_jinja_characters(struct jinja_string *string);
/* Byte where character `index` (0 to characters) begins. */
size_t tern_jinja_offset(struct jinja_string *string, int64_t index);
static inline bool tern_jinja_string_is(const struct jinja_string *s,
                                        const char *text,
                                        size_t bytes)
{
    return s->bytes == bytes && __builtin_memcmp(s->data, text, bytes) == 0;
}

/* ---- text (jinja_text.c) ---- */

TERN_MUST_CHECK tern_status tern_jinja_write(struct jinja_run *run,
                                             struct jinja_text *text,
                                             const char *bytes,
                                             size_t count);
/* str() of a value, or its repr(). */
TERN_MUST_CHECK tern_status tern_jinja_write_value(struct jinja_run *run,
                                                   struct jinja_text *text,
                                                   struct jinja_value value);
TERN_MUST_CHECK tern_status tern_jinja_write_repr(struct jinja_run *run,
                                                  struct jinja_text *text,
                                                  struct jinja_value value);
TERN_MUST_CHECK tern_status tern_jinja_to_string(struct jinja_run *run,
                                                 struct jinja_value value,
                                                 struct jinja_value *out);
/* The text as a string; it is not written to afterwards. */
TERN_MUST_CHECK tern_status tern_jinja_finish_text(struct jinja_run *run,
                                                   const struct jinja_text *text,
                                                   struct jinja_value *out);
/* &, <, >, ' and " as Markup escapes them. */
TERN_MUST_CHECK tern_status tern_jinja_escape(struct jinja_run *run,
                                              struct jinja_value value,
                                              struct jinja_value *out);
/* As Python writes floats. */
enum {
    JINJA_FLOAT_BYTES = 40
};
void tern_jinja_float_text(double value, char out[JINJA_FLOAT_BYTES]);

/* json.dumps (jinja_json.c). indent: undefined or none, an int, or a string. */
struct jinja_dump {
    bool ensure_ascii, sort_keys;
    const struct jinja_string *indent; /* NULL: all on one line */
    const struct jinja_string *item_separator, *key_separator;
};
TERN_MUST_CHECK tern_status tern_jinja_dump(struct jinja_run *run,
                                            struct jinja_text *text,
                                            const struct jinja_dump *dump,
                                            struct jinja_value value);
TERN_MUST_CHECK tern_status tern_jinja_from_json(struct jinja_run *run,
                                                 const struct tern_json *json,
                                                 struct jinja_value *out);

/* ---- tables ---- */

/* NULL: no such filter, test, global, method of the kind. */
jinja_builtin tern_jinja_find_filter(const char *name);
jinja_builtin tern_jinja_find_string_filter(const char *name); /* jinja_filter_string.c */
jinja_builtin tern_jinja_find_list_filter(const char *name);   /* jinja_filter_list.c */
const struct jinja_function *tern_jinja_find_function(const char *name);
jinja_builtin tern_jinja_find_method(struct jinja_value self, const char *name);
jinja_builtin tern_jinja_find_string_method(const char *name);
/* Attributes that Python has and the sandbox keeps: there, and unusable. */
bool tern_jinja_is_forbidden(struct jinja_value self, const char *name);
TERN_MUST_CHECK tern_status tern_jinja_apply_filter(struct jinja_run *run,
                                                    const char *name,
                                                    struct jinja_value value,
                                                    const struct jinja_call *call,
                                                    struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_apply_test(struct jinja_run *run,
                                                  const char *name,
                                                  struct jinja_value value,
                                                  const struct jinja_call *call,
                                                  bool *out);

/* self % the values of a call; may_be_left: values that nothing uses are no error. */
TERN_MUST_CHECK tern_status tern_jinja_format(struct jinja_run *run,
                                              struct jinja_value self,
                                              const struct jinja_call *call,
                                              bool may_be_left,
                                              struct jinja_value *out);

/* Arguments by position or name into slots: names[count], the first `required` of which must be there. What was
 * not given stays as it was. */
TERN_MUST_CHECK tern_status tern_jinja_arguments(struct jinja_run *run,
                                                 const char *what,
                                                 const struct jinja_call *call,
                                                 const char *const *names,
                                                 int count,
                                                 int required,
                                                 struct jinja_value *slots);

/* The names in place of an array. */
#define JINJA_ARGUMENTS(run, what, call, required, slots, ...) \
    do { \
        static const char *const names_[] = {__VA_ARGS__}; \
        TERN_RETURN_IF_ERR(tern_jinja_arguments((run), (what), (call), names_, \
                                                (int)(sizeof names_ / sizeof names_[0]), \
                                                (required), (slots))); \
    } while (0)

/* ---- characters (jinja_unicode.c, jinja_case.c) ---- */

/* First character of valid UTF-8. */
uint32_t tern_jinja_code(const char *text, int *bytes_out);
int tern_jinja_encode(uint32_t code, char out[4]);
bool tern_jinja_is_space(uint32_t code);     /* as str.isspace */
bool tern_jinja_is_printable(uint32_t code); /* as str.isprintable */
bool tern_jinja_is_cased(uint32_t code);
bool tern_jinja_is_case_ignorable(uint32_t code);
bool tern_jinja_is_alpha(uint32_t code);
bool tern_jinja_is_digit(uint32_t code);
enum jinja_case {
    CASE_UPPER,
    CASE_LOWER,
    CASE_TITLE
};
/* Whether a character is a lower case, upper case or title case one. */
bool tern_jinja_has_case(uint32_t code, enum jinja_case of);
/* The mapping of one character, up to three; returns how many. */
int tern_jinja_case(uint32_t code, enum jinja_case to, uint32_t out[3]);
TERN_MUST_CHECK tern_status tern_jinja_upper(struct jinja_run *run,
                                             struct jinja_value string,
                                             struct jinja_value *out);
TERN_MUST_CHECK tern_status tern_jinja_lower(struct jinja_run *run,
                                             struct jinja_value string,
                                             struct jinja_value *out);
/* Words begin where a cased character follows one that is not: str.title; capitalize: one word. */
TERN_MUST_CHECK tern_status tern_jinja_title(struct jinja_run *run,
                                             struct jinja_value string,
                                             bool is_one_word,
                                             struct jinja_value *out);

#endif
