/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - the save thread and the load thread of a worker: pages to and from the store.
 *
 * The loop hands a job in through a queue and gets it back through another; in between the job, and
 * the page it names, belong to the thread. Every job that went in comes out, also when it was
 * dropped. Jobs of one kind come out in the order they went in. A save whose page was copied to a
 * slot comes out twice: when the page is free again, and when it is over.
 *
 * A staged load touches its pages only between scatter_begin() and its end, and never behind its
 * first page that failed, so that a call which returns late writes into slots alone.
 */
#ifndef CONNECTOR_TRANSFER_H
#define CONNECTOR_TRANSFER_H

#include <stdatomic.h>

#include "base/list.h"
#include "connector/placement.h"
#include "os/queue.h"
#include "os/thread.h"
#include "os/wakeup.h"

/* What a call to the store says of the store itself. */
enum answer {
    ANSWER_NONE, /* there was no call, or another job of it says it */
    ANSWER_GOOD,
    ANSWER_BAD, /* all of it failed */
};

/* A request as far as its saves go. Lives from its first planned save to its last job's return. */
struct transfer_request {
    uint64_t id;
    uint64_t dropped_step;      /* loop: the step in which one of its saves was dropped */
    uint32_t job_count;         /* loop: planned and in flight */
    uint32_t copied_count;      /* loop: of those, whose page is free again */
    uint32_t generation;        /* loop: of the next job */
    _Atomic uint32_t saves_cut; /* jobs of generations below it are dropped unwritten */
};

/* Any thread: drop the jobs of generations below `generation`, as far as they were not begun. */
void transfer_request_cut(struct transfer_request *request, uint32_t generation);

/* What is stored behind the pages of a block, shared by its jobs. */
struct save_extra {
    struct save_extra *next; /* loop: among the free ones, or all there are */
    uint32_t user_count;     /* loop: jobs */
    uint8_t bytes[];
};

struct save_job {
    struct transfer_request *request;
    struct save_extra *extra; /* NULL: there is none */
    struct tarn_digest digest;
    tarn_page page;
    uint64_t block;
    uint64_t step_number;
    void *event; /* the page is written once it is over; NULL: it is */
    uint32_t group;
    uint32_t generation;
    bool copy_first;         /* stage it if that is possible */
    enum tarn_status status; /* out: as store_put(); STALE: dropped unwritten */
    bool was_present;
    bool is_forward_bad; /* dropped because the event failed */
    bool is_copied;      /* the page is free: the slot has its bytes */
    bool is_over;        /* not only copied */
    enum answer answer;
};

struct load_page {
    struct tarn_digest digest;
    tarn_page page;
    uint64_t block;
    uint32_t group;
    bool is_staged;          /* load thread */
    enum tarn_status status; /* out: as store_get(); STALE: dropped, its memory was not touched;
                                INVALID: stored for other tokens */
};

enum scatter { SCATTER_OPEN, SCATTER_BUSY, SCATTER_CLOSED };

/* The load of a request. Its pages are the thread's while a batch that holds them is. */
struct load {
    struct list link; /* loop, as all that follows up to is_cancelled */
    uint64_t id;
    uint64_t step_number;
    uint64_t first_block;
    uint64_t block_count;
    struct store_lease *lease; /* on its pages, until it is concluded; NULL: none */
    size_t page_count;
    size_t pushed_count;
    size_t returned_count;
    size_t good_count; /* leading pages; blocks once it is concluded */
    uint64_t started_ns;
    enum tarn_status status; /* of the first page that failed */
    bool is_concluded;       /* good_count is final */
    bool is_reported;
    bool is_judged;           /* the verdict was carried out */
    bool is_staged;           /* every page of it is */
    bool is_late;             /* given up at its deadline */
    bool is_released;         /* its pages were retired before its batches returned */
    atomic_bool is_cancelled; /* batches that were not begun are dropped */
    _Atomic uint32_t scatter; /* enum scatter: who may touch staged pages now */
    uint8_t *extras;          /* what is to be stored behind each block; NULL: nothing */
    struct load_page *pages;
};

struct load_batch {
    struct load *load;
    size_t first;
    size_t count;
    enum answer answer;
};

/* The loop: no page of a staged load will be touched any more. False: some are being written now.
 */
bool load_close_scatter(struct load *load);

/* Constant after the start, but for what queues and atomics guard. */
struct transfer {
    struct store *store;
    const struct layout *layout;
    const struct placement *placement;
    const struct device *device;
    const uint32_t *namespaces; /* one a group */
    uint32_t extra_bytes;       /* behind each page */
    struct queue started; /* enum tarn_status: of each thread, whether it could adopt the device */
    struct queue save_in; /* struct save_job */
    struct queue save_out;
    struct queue load_in; /* struct load_batch */
    struct queue load_out;
    struct wakeup *wakeup;             /* signalled when something comes out */
    _Atomic uint64_t load_returned_ns; /* when the last batch came back from the store */
    struct thread save_thread;
    struct thread load_thread;
    struct save_job *save_jobs; /* of the save thread, as the next four */
    struct store_item *save_items;
    struct tarn_span *save_spans;
    uint64_t event_step; /* whose event was waited for last, with what result */
    enum tarn_status event_status;
    struct store_item *load_items; /* of the load thread, as the next two */
    struct tarn_span *load_spans;
    uint8_t *load_extras;
};

enum { TRANSFER_BATCHES_MAX = 1024 }; /* load batches in flight */

/* Takes all memory and starts both threads, on the device that was captured. `transfer` has its
 * first six members and wakeup set. save_count: save jobs that may be in flight. On failure
 * transfer_close() is still due. */
NODISCARD enum tarn_status transfer_open(struct transfer *transfer, size_t save_count);

/* No job is in flight. Zeroed is fine. */
void transfer_close(struct transfer *transfer);

#endif
