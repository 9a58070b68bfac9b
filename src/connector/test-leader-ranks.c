/* SPDX-License-Identifier: Apache-2.0 */
/* The leader of several ranks. */
#include "connector/test-leader.h"

/* What a rank reports, beside or instead of a load: a page that it let go of; that it cannot go on.
 */
static enum tarn_status hear(uint64_t number, uint32_t rank, const struct wire_release *release,
                             enum tarn_status rank_status, struct wire_reader *out_verdict)
{
    struct wire_buffer buffer = { .data = NULL };
    struct tarn_bytes verdict;
    assert_int_equal(wire_buffer_reserve(&buffer, 1000), TARN_OK);
    struct wire_writer writer = wire_begin(&buffer, leader_list_shape(&leader));
    if (release)
        wire_add_release(&writer, release);
    wire_end(&writer,
             &(struct wire_head){
                 .kind = WIRE_REPORT, .rank = rank, .number = number, .status = rank_status });
    const struct tarn_bytes bytes = wire_buffer_bytes(&buffer);
    const enum tarn_status status = leader_verdict(&leader, &bytes, 1, now_ns, &verdict);
    if (status == TARN_OK)
        assert_int_equal(wire_open(verdict, WIRE_VERDICT, leader_list_shape(&leader), out_verdict),
                         TARN_OK);
    wire_buffer_deinit(&buffer);
    return status;
}

/* Request 1, of 10 blocks, with an offer of 5 under load on three ranks. */
static void load_on_three_ranks(void)
{
    struct tarn_offer offer;
    struct wire_reader reader;
    config.rank_count = 3;
    restart();
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(step(with_pages((struct tarn_step_request){ .id = 1, .load = 1 }), &reader),
                     TARN_OK);
}

/* A block counts only with all its groups, on all ranks. */
static void the_verdict_is_the_least_of_all_ranks(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    struct tarn_loaded all = { .id = 1, .block_count = 5, .asked_count = 5 };
    struct tarn_loaded some = { .id = 1, .block_count = 3, .asked_count = 5, .status = TARN_MISS };
    struct tarn_loaded result;
    config.rank_count = 3;
    restart();
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(step(with_pages((struct tarn_step_request){ .id = 1, .load = 1 }), &reader),
                     TARN_OK);
    assert_int_equal(judge(1, 0, &all, &result), TARN_AGAIN);
    assert_int_equal(judge(1, 2, &some, &result), TARN_AGAIN);
    assert_int_equal(judge(1, 2, &all, &result), TARN_STALE);
    assert_int_equal(judge(1, 3, &all, &result), TARN_CORRUPT); /* no such rank */
    assert_int_equal(judge(1, 1, &all, &result), TARN_OK);
    assert_int_equal(result.block_count, 3);
    assert_int_equal(result.asked_count, 5);
    pages_are_released(1, 10);
}

static size_t transfers_of(enum tarn_transfer_phase phase)
{
    struct tarn_transfer out[64];
    size_t found = 0;
    const size_t count = leader_transfers(&leader, out, 64);
    for (size_t i = 0; i < count; i++)
        found += out[i].phase == phase;
    return found;
}

static void a_page_is_retired_when_every_rank_has_let_go_of_it(void **state)
{
    (void)state;
    uint32_t pending;
    uint64_t id;
    load_on_three_ranks();
    assert_int_equal(transfers_of(TARN_TRANSFER_STARTED), 10);
    assert_int_equal(leader_finished(&leader, 1, &pending), TARN_OK);
    assert_int_equal(pending, 1);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(leader_retired(&leader, &id, 1), 0);
        for (uint64_t block = 0; block < 5; block++) {
            for (uint32_t group = 0; group < GROUPS; group++) {
                const struct wire_release release = { 1, 1, block, group, TARN_TRANSFER_LOAD, 0 };
                leader_release(&leader, rank, &release, now_ns);
                leader_release(&leader, rank, &release, now_ns); /* said twice: counts once */
            }
        }
    }
    assert_int_equal(transfers_of(TARN_TRANSFER_RETIRED), 10);
    assert_int_equal(leader_retired(&leader, &id, 1), 1);
    assert_int_equal(id, 1);
}

static void the_ranks_are_told_of_a_request_that_ended_under_its_load(void **state)
{
    (void)state;
    struct tarn_bytes verdict;
    struct wire_reader reader;
    struct wire_ended ended;
    uint32_t pending;
    load_on_three_ranks();
    assert_int_equal(leader_verdict(&leader, NULL, 0, now_ns, &verdict), TARN_AGAIN);
    assert_int_equal(leader_finished(&leader, 1, &pending), TARN_OK);
    assert_true(leader_has_news(&leader));
    assert_int_equal(leader_verdict(&leader, NULL, 0, now_ns, &verdict), TARN_OK);
    assert_int_equal(wire_open(verdict, WIRE_VERDICT, leader_list_shape(&leader), &reader),
                     TARN_OK);
    assert_int_equal(reader.counts[0], 0);
    assert_int_equal(reader.counts[1], 1);
    wire_next_ended(&reader, &ended);
    assert_int_equal(ended.id, 1);
    assert_int_equal(ended.step_number, 1);
    assert_int_equal(leader_verdict(&leader, NULL, 0, now_ns, &verdict), TARN_AGAIN);
}

static void a_save_that_one_rank_could_not_write_is_planned_again(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    config.rank_count = 3;
    restart();
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 8 }), &reader),
        TARN_OK);
    saves(reader, 1, 0, 2);
    leader_forward(&leader, 1);
    assert_int_equal(transfers_of(TARN_TRANSFER_STARTED), 4);
    const struct wire_release dropped = { 1, 1, 1, 0, TARN_TRANSFER_SAVE, LEADER_SAVE_DROPPED };
    assert_int_equal(hear(1, 2, &dropped, TARN_OK, &reader), TARN_AGAIN);
    const struct wire_release unknown = { 1, 9, 0, 0, TARN_TRANSFER_SAVE, LEADER_SAVE_DROPPED };
    assert_int_equal(hear(2, 2, &unknown, TARN_OK, &reader), TARN_AGAIN); /* no such step */
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 8, .scheduled_tokens = 4 },
             &reader),
        TARN_OK);
    saves(reader, 1, 1, 3);
}

/* A page that was copied is free before it is written. */
static void what_came_of_a_copied_page_follows_its_release(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    config.rank_count = 3;
    restart();
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 4 }), &reader),
        TARN_OK);
    leader_forward(&leader, 1);
    for (uint32_t rank = 0; rank < 3; rank++) {
        for (uint32_t group = 0; group < GROUPS; group++) {
            const struct wire_release copied = {
                1, 1, 0, group, TARN_TRANSFER_SAVE, LEADER_SAVE_COPIED
            };
            leader_release(&leader, rank, &copied, now_ns);
        }
    }
    assert_int_equal(transfers_of(TARN_TRANSFER_RETIRED), GROUPS);
    const struct wire_release failed = { 1, 1, 0, 1, TARN_TRANSFER_SAVE, LEADER_SAVE_FAILED };
    assert_int_equal(hear(1, 2, &failed, TARN_OK, &reader), TARN_AGAIN);
    now_ns += 60 * NS_PER_S;
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 4, .scheduled_tokens = 4 },
             &reader),
        TARN_OK);
    saves(reader, 1, 0, 2);
}

static void a_silent_rank_ends_all_when_its_time_is_over(void **state)
{
    (void)state;
    struct tarn_loaded all = { .id = 1, .block_count = 5, .asked_count = 5 };
    struct tarn_bytes verdict;
    struct wire_reader reader;
    struct tarn_offer offer;
    uint32_t pending;
    load_on_three_ranks();
    assert_int_equal(judge(1, 0, &all, &all), TARN_AGAIN);
    assert_int_equal(judge(1, 2, &all, &all), TARN_AGAIN);
    now_ns += config.rank_deadline_ns - 1;
    assert_int_equal(leader_verdict(&leader, NULL, 0, now_ns, &verdict), TARN_AGAIN);
    now_ns++;
    for (int i = 0; i < 2; i++) { /* whenever it is asked from now on */
        assert_int_equal(leader_verdict(&leader, NULL, 0, now_ns, &verdict), TARN_OK);
        assert_int_equal(wire_open(verdict, WIRE_VERDICT, leader_list_shape(&leader), &reader),
                         TARN_OK);
        assert_int_equal(reader.head.status, TARN_IO);
        assert_int_equal(reader.counts[0], 0);
    }
    assert_int_equal(leases_held, 0);
    assert_int_equal(ask(2, 40, 0, 5, &offer), TARN_IO);
    assert_int_equal(step((struct tarn_step_request){ .id = 1 }, &reader), TARN_IO);
    /* What others held is given up; what this rank still has is not. */
    assert_int_equal(transfers_of(TARN_TRANSFER_RETIRED), 0);
    assert_int_equal(leader_finished(&leader, 1, &pending), TARN_OK);
    assert_int_equal(pending, 1);
    for (uint64_t block = 0; block < 5; block++) {
        for (uint32_t group = 0; group < GROUPS; group++) {
            const struct wire_release release = { 1, 1, block, group, TARN_TRANSFER_LOAD, 0 };
            leader_release(&leader, 0, &release, now_ns);
        }
    }
    assert_int_equal(transfers_of(TARN_TRANSFER_RETIRED), 10);
}

static void a_rank_that_cannot_go_on_ends_all(void **state)
{
    (void)state;
    struct wire_reader reader;
    load_on_three_ranks();
    assert_int_equal(hear(1, 1, NULL, TARN_NO_MEMORY, &reader), TARN_OK);
    assert_int_equal(reader.head.status, TARN_NO_MEMORY);
}

/* A later load of the same blocks is another load. */
static void a_report_on_an_earlier_load_of_the_request_is_ignored(void **state)
{
    (void)state;
    struct tarn_loaded all = { .id = 1, .block_count = 5, .asked_count = 5 };
    struct wire_buffer buffer = { .data = NULL };
    struct tarn_bytes verdict;
    load_on_three_ranks();
    assert_int_equal(wire_buffer_reserve(&buffer, 1000), TARN_OK);
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct wire_writer writer = wire_begin(&buffer, leader_list_shape(&leader));
        wire_add_item(&writer, &(struct wire_item){ all, 7 });
        wire_end(&writer, &(struct wire_head){ .kind = WIRE_REPORT, .rank = rank, .number = 1 });
        const struct tarn_bytes bytes = wire_buffer_bytes(&buffer);
        assert_int_equal(leader_verdict(&leader, &bytes, 1, now_ns, &verdict), TARN_AGAIN);
    }
    wire_buffer_deinit(&buffer);
    assert_int_equal(leader_find(&leader, 1)->ranks_reported, 0);
}

static void a_step_says_what_was_sent_before_it(void **state)
{
    (void)state;
    struct tarn_loaded all = { .id = 1, .block_count = 5, .asked_count = 5 };
    struct wire_reader reader;
    load_on_three_ranks();
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(judge(1, rank, &all, &all), rank < 2 ? TARN_AGAIN : TARN_OK);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 20, .scheduled_tokens = 4 },
             &reader),
        TARN_OK);
    assert_int_equal(reader.head.previous, 1);
    assert_int_equal(reader.head.verdict, 1);
}

/* What failed elsewhere is not asked for again at once, as what failed here is not. */
static void a_block_that_failed_on_another_rank_is_avoided(void **state)
{
    (void)state;
    struct absent absent;
    struct tarn_loaded all = { .id = 1, .block_count = 5, .asked_count = 5 };
    struct tarn_loaded some = { .id = 1, .block_count = 3, .asked_count = 5, .status = TARN_IO };
    assert_int_equal(absent_init(&absent), TARN_OK);
    config.absent = &absent;
    load_on_three_ranks();
    struct tarn_digest digest = leader_find(&leader, 1)->chain.blocks[3];
    assert_int_equal(judge(1, 0, &all, &all), TARN_AGAIN);
    assert_int_equal(judge(1, 1, &some, &some), TARN_AGAIN);
    assert_int_equal(judge(1, 2, &all, &all), TARN_OK);
    assert_int_equal(all.block_count, 3);
    for (uint32_t group = 0; group < GROUPS; group++) {
        assert_true(absent_has(&absent, &digest, group, now_ns + ABSENT_NS - 1));
        assert_false(absent_has(&absent, &digest, group, now_ns + ABSENT_NS));
    }
    digest = leader_find(&leader, 1)->chain.blocks[4];
    assert_false(absent_has(&absent, &digest, 0, now_ns));
    absent_deinit(&absent);
}

/* No memory for a verdict is a verdict. */
static enum tarn_status live_through_a_load_on_two_ranks(void)
{
    struct tarn_offer offer;
    struct wire_reader reader;
    struct tarn_bytes verdict;
    uint32_t pending;
    enum tarn_status status;
    step_number = 0;
    leader_init(&leader, &config);
    status = ask(1, 40, 0, 2, &offer);
    if (status == TARN_OK)
        status = step(with_pages((struct tarn_step_request){ .id = 1, .load = 1 }), &reader);
    if (status == TARN_OK)
        status = leader_finished(&leader, 1, &pending);
    if (status == TARN_OK)
        status = leader_verdict(&leader, NULL, 0, now_ns, &verdict);
    if (status == TARN_OK &&
        wire_open(verdict, WIRE_VERDICT, leader_list_shape(&leader), &reader) == TARN_OK)
        status = reader.head.status;
    leader_deinit(&leader);
    return status;
}

static void a_leader_of_two_ranks_survives_failed_allocations(void **state)
{
    (void)state;
    leader_deinit(&leader);
    config.rank_count = 2;
    assert_in_range(fault_sweep(live_through_a_load_on_two_ranks), 8, 60);
    leader_init(&leader, &config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LEADER_TEST(the_verdict_is_the_least_of_all_ranks),
        LEADER_TEST(a_page_is_retired_when_every_rank_has_let_go_of_it),
        LEADER_TEST(the_ranks_are_told_of_a_request_that_ended_under_its_load),
        LEADER_TEST(a_save_that_one_rank_could_not_write_is_planned_again),
        LEADER_TEST(what_came_of_a_copied_page_follows_its_release),
        LEADER_TEST(a_silent_rank_ends_all_when_its_time_is_over),
        LEADER_TEST(a_rank_that_cannot_go_on_ends_all),
        LEADER_TEST(a_report_on_an_earlier_load_of_the_request_is_ignored),
        LEADER_TEST(a_step_says_what_was_sent_before_it),
        LEADER_TEST(a_block_that_failed_on_another_rank_is_avoided),
        LEADER_TEST(a_leader_of_two_ranks_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
