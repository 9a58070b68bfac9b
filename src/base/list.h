/* SPDX-License-Identifier: Apache-2.0 */
/*
 * list.h - circular doubly linked list, linked through a member of its items.
 *
 * A list head and an unlinked item both point to themselves, so removing twice is
 * harmless and list_is_linked() is exact. Nothing here allocates.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include "base/base.h"

struct list {
    struct list *prev;
    struct list *next;
};

/* The item that holds `link` as its member `member`. */
#define LIST_ITEM(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Visit each link; the visited one may be removed by the body. */
#define list_for_each(link, head)                                                                  \
    for (struct list *link = (head)->next, *link##_next = link->next; link != (head);              \
         link = link##_next, link##_next = link->next)

static inline void list_init(struct list *list)
{
    list->prev = list;
    list->next = list;
}

static inline bool list_is_empty(const struct list *list)
{
    return list->next == list;
}

static inline bool list_is_linked(const struct list *link)
{
    return link->next != link;
}

/* Insert `link` before `where`; with a list head as `where`, at the end. */
static inline void list_insert_before(struct list *where, struct list *link)
{
    ASSERT(where->prev);
    link->prev = where->prev;
    link->next = where;
    where->prev->next = link;
    where->prev = link;
}

static inline void list_push_back(struct list *list, struct list *link)
{
    list_insert_before(list, link);
}

static inline void list_push_front(struct list *list, struct list *link)
{
    list_insert_before(list->next, link);
}

static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

#endif
