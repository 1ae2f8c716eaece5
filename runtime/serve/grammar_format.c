/* grammar_format.c - the formats that we write as expressions. A date has the days that its month has (29 February in
 * leap years); a time has an offset, as RFC 3339 says, and no leap second. */
#include "runtime/serve/grammar_nfa.h"

#include <string.h>

#define LEAP_YEAR "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][48]|[2468]0|[13579][26])00)"
#define YEAR      "(000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define DATE \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)" \
    "|02-(0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME       "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE       "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define PATH_CHAR  "[A-Za-z0-9._~!$&'()*+,;=:@-]"
#define QUERY_CHAR "[A-Za-z0-9._~!$&'()*+,;=:@/?-]"
#define LABEL      "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"

static const struct {
    const char *name, *pattern;
} g_formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"duration",
     "^P(\\d{1,9}W|\\d{1,9}Y(\\d{1,9}M(\\d{1,9}D)?)?|\\d{1,9}M(\\d{1,9}D)?|\\d{1,9}D|"
     "(\\d{1,9}D)?T(\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?|\\d{1,9}M(\\d{1,9}S)?|\\d{1,9}S))$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email", "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" LABEL
              "(\\." LABEL "){1,4}$"},
    {"hostname", "^" LABEL "(\\." LABEL "){0,4}$"},
    {"ipv4", "^" BYTE "(\\." BYTE "){3}$"},
    {"ipv6", "^[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){7}$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:"
            "(//[A-Za-z0-9.-]*(:\\d{1,5})?(/" PATH_CHAR "*)*|/?(" PATH_CHAR "+(/" PATH_CHAR "*)*)?)"
            "(\\?" QUERY_CHAR "*)?(#" QUERY_CHAR "*)?$"},
};

const char *tern_grammar_format(const char *name)
{
    for (size_t i = 0; i < sizeof g_formats / sizeof g_formats[0]; i++) {
        if (strcmp(name, g_formats[i].name) == 0) {
            return g_formats[i].pattern;
        }
    }
    return NULL;
}
