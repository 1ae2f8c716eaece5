/* xml.h - reads the XML of object stores: elements and their text, in order; nothing else of XML.
 *
 * Prolog, comments and attributes are passed over, CDATA and the predefined and numeric entities are
 * decoded; document types are refused, so nothing can expand. */
#ifndef TERN_IO_XML_H
#define TERN_IO_XML_H

#include "runtime/base/text.h"

enum {
    TERN_XML_NAME_BYTES = 64,
    TERN_XML_DEPTH_MAX = 16
};

/* Called at each start (text NULL) and each end of an element; at the end `text` is what stood in it
 * since its start or its last child, NUL-terminated, valid during the call. */
typedef tern_status (*tern_xml_visit)(void *context, int depth, const char *name, const char *text);

/* The whole document, whose root must be closed. TERN_ERR_INPUT names the byte where it stops being
 * XML; a failure of visit ends it with that. */
TERN_MUST_CHECK tern_status tern_xml_each(const char *document,
                                          size_t bytes,
                                          tern_xml_visit visit,
                                          void *context);
/* Appends text with & < > " escaped. */
TERN_MUST_CHECK tern_status tern_xml_quote(struct tern_text *out, const char *text);

#endif
