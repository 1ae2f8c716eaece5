/* store_list.c - a listing of an HTTP store, page after page. */
#include "io/store_parts.h"

#include <string.h>

tern_status tern_store_page_object(struct tern_store_page *page, const char *text)
{
    if (text != NULL) {
        return page->visit(page->context, page->key, &page->info);
    }
    page->key[0] = '\0';
    page->info = (struct tern_store_info){0};
    return TERN_OK;
}

tern_status tern_store_page_next(struct tern_store_page *page, const char *text)
{
    page->next.length = 0;
    return tern_text_append(&page->next, text, strlen(text));
}

/* One page; from: what the page before said of the next, "" for the first. */
static tern_status list_page(struct tern_store *store,
                             struct tern_store_conn *conn,
                             const struct tern_store_listing *listing,
                             const char *from,
                             struct tern_store_page *page)
{
    struct tern_store_request request = listing->request;
    struct tern_store_reply reply;
    if (from[0] != '\0') {
        tern_store_add_pair(&request, listing->marker, from);
    }
    tern_status status = tern_store_send(store, conn, &request, &reply);
    if (status == TERN_OK) {
        status =
            tern_xml_each(reply.answer.body.data, reply.answer.body.length, listing->read, page);
    }
    tern_store_reply_fini(&reply);
    bool goes_on = page->next.length > 0 && strcmp(page->next.data, from) != 0;
    return status == TERN_OK && page->has_more && !goes_on
               ? tern_fail(TERN_ERR_IO, "%s: the store's listing does not go on", store->url)
               : status;
}

tern_status tern_store_list_pages(struct tern_store *store,
                                  struct tern_store_conn *conn,
                                  const struct tern_store_listing *listing,
                                  tern_store_visit visit,
                                  void *context)
{
    struct tern_store_page page = {.visit = visit, .context = context};
    tern_status status;
    do {
        struct tern_text from = page.next;
        page.next = (struct tern_text){0};
        page.has_more = false;
        status = list_page(store, conn, listing, from.data != NULL ? from.data : "", &page);
        tern_text_fini(&from);
    } while (status == TERN_OK && page.has_more);
    tern_text_fini(&page.next);
    return status;
}
