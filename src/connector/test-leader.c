/* SPDX-License-Identifier: Apache-2.0 */
#include "connector/test-leader.h"

/* ---- lookup ---- */

static void the_whole_prompt_is_never_offered(void **state)
{
    (void)state;
    struct tarn_offer offer;
    for (size_t count = T + 1; count <= 5 * T; count++) {
        assert_int_equal(ask(count, count, 0, 100, &offer), TARN_OK);
        assert_int_equal(offer.first_token, 0);
        assert_int_equal(offer.token_count, (count - 1) / T * T);
        assert_true(offer.token_count < count);
        uint32_t pending = 1;
        assert_int_equal(leader_finished(&leader, count, &pending), TARN_OK);
        assert_int_equal(pending, 0);
    }
}

static void a_prefix_that_the_device_has_is_skipped(void **state)
{
    (void)state;
    struct tarn_offer offer;
    assert_int_equal(ask(1, 40, 12, 2, &offer), TARN_OK);
    assert_int_equal(offer.first_token, 12);
    assert_int_equal(offer.token_count, 8);
}

static void a_producer_never_asks(void **state)
{
    (void)state;
    config.loads = false;
    restart();
    const struct tarn_request request = request_of(1, 40);
    assert_int_equal(declined(&request, 0), LEADER_DECLINE_ROLE);
}

static void a_consumer_never_saves(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    config.saves = false;
    restart();
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 40 }), &reader),
        TARN_OK);
    saves(reader, 1, 0, 0);
}

static void every_reason_not_to_ask_is_told_apart(void **state)
{
    (void)state;
    struct tarn_request request = request_of(1, 40);
    request.flags = TARN_REQUEST_DUMMY;
    assert_int_equal(declined(&request, 0), LEADER_DECLINE_DUMMY);
    request.flags = TARN_REQUEST_GENERATION_ONLY;
    assert_int_equal(declined(&request, 0), LEADER_DECLINE_GENERATION_ONLY);
    request.flags = TARN_REQUEST_MEDIA_UNNAMED;
    assert_int_equal(declined(&request, 0), LEADER_DECLINE_MEDIA);
    request.flags = 0;
    assert_int_equal(declined(&request, 37), LEADER_DECLINE_LOCAL);
    assert_int_equal(declined(&request, 13), LEADER_DECLINE_OFF_BOUNDARY);
    request = request_of(2, T);
    assert_int_equal(declined(&request, 0), LEADER_DECLINE_NO_FULL_BLOCK);
}

/* A local match that ends inside a block does not cost the rest. */
static void a_match_inside_a_block_is_rounded_down_for_an_engine_that_can_rewind(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct tarn_loaded loaded = { .id = 1, .first_block = 3, .block_count = 2, .asked_count = 2 };
    struct wire_reader reader;
    config.can_rewind = true;
    restart();
    assert_int_equal(ask(1, 40, 13, 2, &offer), TARN_OK);
    assert_int_equal(offer.first_token, 12);
    assert_int_equal(offer.token_count, 8);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .computed_tokens = 13, .load = 1 }),
             &reader),
        TARN_OK);
    assert_int_equal(judge(1, 0, &loaded, &loaded), TARN_OK);
    assert_int_equal(loaded.block_count, 2);
    pages_are_released(1, 4);
}

static void asking_again_replaces_the_offer_and_its_lease(void **state)
{
    (void)state;
    struct tarn_offer offer;
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(leases_held, 1);
    assert_int_equal(ask(1, 40, 8, 2, &offer), TARN_OK);
    assert_int_equal(leases_held, 1);
    assert_int_equal(offer.first_token, 8);
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(leases_held, 0);
    assert_int_equal(ask(1, 36, 0, 1, &offer), TARN_OK); /* another prompt, before any step */
    assert_int_equal(leader.requests.count, 1);
}

/* One lease object, released on every exit path. */
static void an_offer_that_is_never_loaded_gives_its_lease_back(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    uint32_t pending;
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(leader_finished(&leader, 1, &pending), TARN_OK);
    assert_int_equal(leases_held, 0);
    assert_int_equal(ask(2, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(leader_reset(&leader, 2), TARN_OK);
    assert_int_equal(leases_held, 0);
    assert_int_equal(ask(3, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 3, .scheduled_tokens = 4 }), &reader),
        TARN_OK);
    assert_int_equal(leases_held, 0);
    assert_int_equal(ask(4, 40, 0, 5, &offer), TARN_OK);
    restart();
    assert_int_equal(leases_held, 0);
}

static void what_cannot_be_a_request_is_refused(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    struct tarn_request request = request_of(1, TOKENS + 1);
    struct leader_probe probe;
    enum leader_decline decline;
    assert_int_equal(leader_ask(&leader, &request, 0, &probe, &decline), TARN_INVALID);
    request = request_of(1, 8);
    assert_int_equal(leader_ask(&leader, &request, 9, &probe, &decline), TARN_INVALID);
    request.tokens = NULL;
    assert_int_equal(leader_ask(&leader, &request, 0, &probe, &decline), TARN_INVALID);
    for (uint64_t id = 0; id < 8; id++)
        assert_int_equal(ask(id, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(ask(8, 40, 0, 0, &offer), TARN_INVALID); /* request_count_max */
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 4 }), &reader),
        TARN_OK);
    assert_int_equal(ask(1, 36, 0, 0, &offer), TARN_INVALID); /* it has run with other tokens */
    const struct tarn_scope scope = { .cache_salt = "other" };
    request = request_of(1, 40);
    request.scope = &scope;
    assert_int_equal(leader_ask(&leader, &request, 0, &probe, &decline), TARN_INVALID);
    pages_are_released(1, 2);
}

/* ---- cancel ---- */

static void check_offer(uint64_t first, uint64_t count)
{
    const struct leader_request *request = leader_find(&leader, 1);
    assert_int_equal(request->offer_count, count);
    if (count)
        assert_int_equal(request->offer_first, first);
    assert_int_equal(leases_held, count ? 1 : 0);
}

static void offer_blocks_two_to_five(void)
{
    struct tarn_offer offer;
    restart();
    assert_int_equal(ask(1, 40, 8, 4, &offer), TARN_OK);
    check_offer(2, 4);
}

static void a_tail_can_be_cancelled_and_rounds_down(void **state)
{
    (void)state;
    offer_blocks_two_to_five();
    assert_int_equal(leader_cancel(&leader, 1, 18, 24), TARN_OK);
    check_offer(2, 2);
    assert_int_equal(leader_cancel(&leader, 1, 12, 1000), TARN_OK);
    check_offer(2, 1);
    assert_int_equal(leader_cancel(&leader, 1, 9, 12), TARN_OK); /* rounds down to nothing */
    check_offer(2, 0);
}

static void a_head_can_be_cancelled_on_a_boundary_only(void **state)
{
    (void)state;
    offer_blocks_two_to_five();
    assert_int_equal(leader_cancel(&leader, 1, 8, 13), TARN_INVALID);
    check_offer(2, 4);
    assert_int_equal(leader_cancel(&leader, 1, 0, 12), TARN_OK);
    check_offer(3, 3);
}

static void all_of_an_offer_can_be_cancelled(void **state)
{
    (void)state;
    offer_blocks_two_to_five();
    assert_int_equal(leader_cancel(&leader, 1, 0, 1000), TARN_OK);
    check_offer(2, 0);
    assert_int_equal(leader_cancel(&leader, 1, 8, 24), TARN_OK); /* nothing is left */
}

static void a_hole_in_an_offer_is_refused(void **state)
{
    (void)state;
    offer_blocks_two_to_five();
    assert_int_equal(leader_cancel(&leader, 1, 12, 16), TARN_INVALID);
    assert_int_equal(leader_cancel(&leader, 1, 20, 12), TARN_INVALID);
    assert_int_equal(leader_cancel(&leader, 2, 8, 24), TARN_INVALID);
    check_offer(2, 4);
    assert_int_equal(leader_cancel(&leader, 1, 0, 8), TARN_OK); /* outside of it */
    assert_int_equal(leader_cancel(&leader, 1, 24, 30), TARN_OK);
    check_offer(2, 4);
}

/* ---- step ---- */

static void blocks_ten_and_eleven_are_loaded_and_twelve_to_fourteen_saved(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    struct tarn_loaded loaded = { .id = 1, .first_block = 10, .block_count = 2, .asked_count = 2 };
    uint64_t id;
    uint64_t first;
    uint32_t count;
    struct wire_block block;
    assert_int_equal(ask(1, 60, 40, 2, &offer), TARN_OK);
    assert_int_equal(offer.first_token, 40);
    assert_int_equal(offer.token_count, 8);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .computed_tokens = 40, .load = 1 }),
             &reader),
        TARN_OK);
    assert_int_equal(reader.counts[0], 1);
    assert_int_equal(reader.counts[1], 0);
    wire_next_load(&reader, &id, &first, &count);
    assert_int_equal(id, 1);
    assert_int_equal(first, 10);
    assert_int_equal(count, 2);
    for (uint64_t i = 0; i < 2; i++) {
        wire_next_block(&reader, &block);
        assert_int_equal(block.pages[0], 20 + i);
        assert_int_equal(block.pages[1], 40 + i);
        assert_memory_equal(&block.digest, &leader_find(&leader, 1)->chain.blocks[10 + i], 16);
    }
    assert_int_equal(leases_held, 1); /* until the verdict */
    assert_int_equal(judge(1, 0, &loaded, &loaded), TARN_OK);
    assert_int_equal(loaded.block_count, 2);
    assert_int_equal(leases_held, 0);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 48, .scheduled_tokens = 8 },
             &reader),
        TARN_OK);
    saves(reader, 1, 12, 14);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 56, .scheduled_tokens = 4 },
             &reader),
        TARN_OK);
    saves(reader, 1, 14, 15);
    pages_are_released(1, 10);
}

static void what_was_saved_is_not_saved_again(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 20 }), &reader),
        TARN_OK);
    saves(reader, 1, 0, 5);
    assert_int_equal(step(with_pages((struct tarn_step_request){
                              .id = 1, .computed_tokens = 20, .scheduled_tokens = 20 }),
                          &reader),
                     TARN_OK);
    saves(reader, 1, 5, 10);
    pages_are_released(1, 20);
}

/* Allocated, hashed, even scheduled later: not saved before it is computed. */
static void a_partial_block_waits_until_it_is_full(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 6 }), &reader),
        TARN_OK);
    saves(reader, 1, 0, 1);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 6, .scheduled_tokens = 1 },
             &reader),
        TARN_OK);
    saves(reader, 1, 0, 0);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 7, .scheduled_tokens = 1 },
             &reader),
        TARN_OK);
    saves(reader, 1, 1, 2);
    pages_are_released(1, 4);
}

/* Generated blocks are saved too, unless the option says no. */
static void generated_blocks_are_saved_unless_turned_off(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    for (int round = 0; round < 2; round++) {
        config.save_generated = round == 0;
        restart();
        assert_int_equal(ask(1, 6, 0, 0, &offer), TARN_MISS);
        assert_int_equal(
            step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 6 }), &reader),
            TARN_OK);
        saves(reader, 1, 0, 1);
        assert_int_equal(step((struct tarn_step_request){ .id = 1,
                                                          .tokens = tokens + 6,
                                                          .token_count = 2,
                                                          .computed_tokens = 6,
                                                          .scheduled_tokens = 2 },
                              &reader),
                         TARN_OK);
        saves(reader, 1, 1, config.save_generated ? 2 : 1);
        pages_are_released(1, config.save_generated ? 4 : 2);
    }
}

static void a_block_missing_in_one_group_is_not_saved(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    tarn_page first[] = { 10, 11, 12 };
    tarn_page second[] = { 30, TARN_PAGE_NONE, 32 };
    const tarn_page *const some[GROUPS] = { first, second };
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(step(
                         (struct tarn_step_request){
                             .id = 1, .pages = some, .block_count = 3, .scheduled_tokens = 12 },
                         &reader),
                     TARN_OK);
    saves(reader, 1, 0, 1);
    second[1] = 31;
    assert_int_equal(step((struct tarn_step_request){ .id = 1,
                                                      .pages = some,
                                                      .block_count = 3,
                                                      .computed_tokens = 12,
                                                      .scheduled_tokens = 1 },
                          &reader),
                     TARN_OK);
    saves(reader, 1, 1, 3);
    pages_are_released(1, 6);
}

static void a_missing_page_inside_an_accepted_offer_is_refused(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    tarn_page first[] = { 10, 11, 12 };
    tarn_page second[] = { 30, TARN_PAGE_NONE, 32 };
    const tarn_page *const some[GROUPS] = { first, second };
    assert_int_equal(ask(1, 40, 0, 3, &offer), TARN_OK);
    const struct tarn_step_request part = { .id = 1, .pages = some, .block_count = 3, .load = 1 };
    assert_int_equal(step(part, &reader), TARN_INVALID);
    assert_int_equal(leader_find(&leader, 1)->state, LEADER_OFFERED);
    second[1] = SLOTS; /* no such slot */
    assert_int_equal(step(part, &reader), TARN_INVALID);
    second[1] = 31;
    assert_int_equal(step(part, &reader), TARN_OK);
    pages_are_released(1, 6);
}

static void a_step_that_makes_no_sense_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 8 }), &reader),
        TARN_OK);
    const struct tarn_step_request bad[] = {
        { .id = 2, .scheduled_tokens = 4 },                        /* unknown */
        { .id = 1, .computed_tokens = 8, .load = 1 },              /* no offer */
        { .id = 1, .computed_tokens = 41 },                        /* past the tokens */
        { .id = 1, .computed_tokens = 8, .scheduled_tokens = 33 }, /* the same */
        { .id = 1, .computed_tokens = 8, .token_count = 3 },       /* no tokens given */
        { .id = 1, .computed_tokens = 8, .block_count = 1 },       /* no pages given */
        { .id = 1, .computed_tokens = 8, .tokens = tokens, .token_count = TOKENS },
        { .id = 1, .computed_tokens = 8, .pages = pages, .block_count = 1, .first_block = 1000 },
    };
    for (size_t i = 0; i < LENGTH_OF(bad); i++)
        assert_int_equal(step(bad[i], &reader), TARN_INVALID);
    const struct tarn_step_request twice[] = {
        { .id = 1, .computed_tokens = 8, .scheduled_tokens = 8 },
        { .id = 1, .computed_tokens = 8, .scheduled_tokens = 8 },
    };
    struct tarn_step both = { sizeof(both), 2, twice, 2, 0 };
    struct tarn_bytes metadata;
    assert_int_equal(leader_step(&leader, &both, 0, &metadata), TARN_INVALID);
    both = (struct tarn_step){ sizeof(both), 1, twice, 1, 0 };
    assert_int_equal(leader_step(&leader, &both, 0, &metadata), TARN_INVALID); /* its number */

    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 8, .scheduled_tokens = 8 },
             &reader),
        TARN_OK);
    saves(reader, 1, 2, 4);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 4, .scheduled_tokens = 4 },
             &reader),
        TARN_INVALID); /* a position that went back */
    pages_are_released(1, 8);
}

static void what_the_device_supplied_is_not_saved(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(step(with_pages((struct tarn_step_request){
                              .id = 1, .computed_tokens = 16, .scheduled_tokens = 8 }),
                          &reader),
                     TARN_OK);
    saves(reader, 1, 4, 6);
    pages_are_released(1, 4);
}

static void dummy_and_unnamed_media_requests_are_never_saved(void **state)
{
    (void)state;
    struct wire_reader reader;
    const uint32_t flags[] = { TARN_REQUEST_DUMMY, TARN_REQUEST_MEDIA_UNNAMED };
    for (size_t i = 0; i < LENGTH_OF(flags); i++) {
        struct tarn_request request = request_of(i, 40);
        request.flags = flags[i];
        (void)declined(&request, 0);
        assert_int_equal(
            step(with_pages((struct tarn_step_request){ .id = i, .scheduled_tokens = 40 }),
                 &reader),
            TARN_OK);
        saves(reader, i, 0, 0);
    }
}

static void metadata_carries_tokens_and_parent_when_they_are_to_be_verified(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    struct wire_block block;
    uint64_t id;
    uint64_t index;
    config.verify_tokens = true;
    restart();
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 8 }), &reader),
        TARN_OK);
    const struct chain *chain = &leader_find(&leader, 1)->chain;
    for (size_t i = 0; i < 2; i++) {
        wire_next_save(&reader, &id, &index);
        wire_next_block(&reader, &block);
        assert_memory_equal(block.extra, i ? &chain->blocks[0] : &chain->seed, 16);
        for (size_t j = 0; j < T; j++)
            assert_int_equal(block.extra[16 + 8 * j], i * T + j); /* the token, little endian */
    }
    pages_are_released(1, 4);
}

/* ---- saves that failed ---- */

static void later_blocks_of_a_chain_wait_for_a_gap_to_be_saved(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 20 }), &reader),
        TARN_OK);
    saves(reader, 1, 0, 5);
    leader_save_ended(&leader, 1, 2, LEADER_SAVE_DROPPED, 0);
    leader_save_ended(&leader, 1, 3, LEADER_SAVE_DROPPED, 0);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 20, .scheduled_tokens = 4 },
             &reader),
        TARN_OK);
    saves(reader, 1, 2, 6); /* the gap first */
    pages_are_released(1, 18);
}

static void nothing_is_saved_for_a_while_after_the_store_failed(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    now_ns = 2000 * NS_PER_S;
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 8 }), &reader),
        TARN_OK);
    saves(reader, 1, 0, 2);
    leader_save_ended(&leader, 1, 0, LEADER_SAVE_FAILED, now_ns - 50 * NS_PER_MS);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 8, .scheduled_tokens = 4 },
             &reader),
        TARN_OK);
    saves(reader, 1, 0, 0);
    leader.save_resume_ns = now_ns; /* the pause is over */
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 12, .scheduled_tokens = 4 },
             &reader),
        TARN_OK);
    saves(reader, 1, 0, 4);
    leader_save_ended(&leader, 1, 3, LEADER_SAVE_FAILED, now_ns);
    assert_int_equal(leader.save_pause_ns, 200 * NS_PER_MS); /* twice as long */
    leader_save_ended(&leader, 1, 0, LEADER_SAVED, now_ns);
    assert_int_equal(leader.save_pause_ns, 0);
    pages_are_released(1, 12);
}

/* ---- verdict ---- */

static void a_load_that_falls_short_sets_the_position_to_its_good_prefix(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    struct tarn_loaded loaded = {
        .id = 1, .block_count = 2, .asked_count = 5, .status = TARN_MISS
    };
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_OK);
    /* An engine that cannot wait: it schedules behind the offer in the same step. */
    assert_int_equal(step(with_pages((struct tarn_step_request){
                              .id = 1, .computed_tokens = 20, .scheduled_tokens = 8, .load = 1 }),
                          &reader),
                     TARN_OK);
    assert_int_equal(reader.counts[1], 2);
    assert_int_equal(judge(1, 0, &loaded, &loaded), TARN_OK);
    assert_int_equal(loaded.block_count, 2);
    assert_int_equal(loaded.status, TARN_OK); /* to be recomputed */
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 4, .scheduled_tokens = 4 },
             &reader),
        TARN_INVALID);
    assert_int_equal(
        step((struct tarn_step_request){ .id = 1, .computed_tokens = 8, .scheduled_tokens = 12 },
             &reader),
        TARN_OK);
    saves(reader, 1, 2, 5);
    pages_are_released(1, 20);
}

static void a_load_that_must_not_fall_short_says_what_ended_it(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    struct tarn_loaded loaded = {
        .id = 1, .block_count = 2, .asked_count = 5, .status = TARN_CORRUPT
    };
    config.fail_short = true;
    restart();
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(step(with_pages((struct tarn_step_request){ .id = 1, .load = 1 }), &reader),
                     TARN_OK);
    assert_int_equal(judge(1, 0, &loaded, &loaded), TARN_OK);
    assert_int_equal(loaded.status, TARN_CORRUPT);
    pages_are_released(1, 10);
}

static void a_report_on_another_load_is_ignored(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    struct tarn_loaded good = { .id = 1, .block_count = 5, .asked_count = 5 };
    struct tarn_loaded other = { .id = 2, .block_count = 5, .asked_count = 5 };
    struct tarn_loaded moved = { .id = 1, .first_block = 1, .block_count = 5, .asked_count = 5 };
    struct tarn_loaded more = { .id = 1, .block_count = 6, .asked_count = 5 };
    struct tarn_loaded result;
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(step(with_pages((struct tarn_step_request){ .id = 1, .load = 1 }), &reader),
                     TARN_OK);
    assert_int_equal(judge(1, 0, &other, &result), TARN_AGAIN);
    assert_int_equal(judge(2, 0, &moved, &result), TARN_AGAIN);
    assert_int_equal(judge(3, 0, &more, &result), TARN_CORRUPT);
    assert_int_equal(judge(3, 0, &good, &result), TARN_OK);
    assert_int_equal(judge(4, 0, &good, &result), TARN_AGAIN); /* judged already */
    pages_are_released(1, 10);
}

static void a_request_under_load_is_not_scheduled(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_OK);
    assert_int_equal(step(with_pages((struct tarn_step_request){ .id = 1, .load = 1 }), &reader),
                     TARN_OK);
    assert_int_equal(step((struct tarn_step_request){ .id = 1, .scheduled_tokens = 4 }, &reader),
                     TARN_INVALID);
    assert_int_equal(step((struct tarn_step_request){ .id = 1, .load = 1 }, &reader), TARN_INVALID);
    assert_int_equal(step((struct tarn_step_request){ .id = 1 }, &reader), TARN_OK);
    assert_int_equal(ask(1, 40, 0, 5, &offer), TARN_INVALID);
    assert_int_equal(leader_cancel(&leader, 1, 0, 40), TARN_INVALID);
    pages_are_released(1, 10);
}

/* ---- the end ---- */

static void finished_is_true_once_and_false_without_saves(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    uint32_t pending = 7;
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(leader_finished(&leader, 1, &pending), TARN_OK);
    assert_int_equal(pending, 0);
    assert_int_equal(leader_finished(&leader, 1, &pending), TARN_INVALID);

    assert_int_equal(ask(2, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 2, .scheduled_tokens = 8 }), &reader),
        TARN_OK);
    assert_int_equal(leader_finished(&leader, 2, &pending), TARN_OK);
    assert_int_equal(pending, 1);
    assert_int_equal(leader_finished(&leader, 2, &pending), TARN_INVALID);
    assert_int_equal(ask(2, 40, 0, 0, &offer), TARN_INVALID); /* its id is not free yet */
    assert_int_equal(leader_reset(&leader, 2), TARN_INVALID);
}

static void retirement_is_reported_once_and_after_the_last_page(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    uint32_t pending;
    uint64_t ids[4];
    for (uint64_t id = 1; id <= 2; id++) {
        assert_int_equal(ask(id, 40, 0, 0, &offer), TARN_MISS);
        assert_int_equal(
            step(with_pages((struct tarn_step_request){ .id = id, .scheduled_tokens = 8 }),
                 &reader),
            TARN_OK);
        assert_int_equal(leader_finished(&leader, id, &pending), TARN_OK);
    }
    pages_are_released(1, 3);
    assert_int_equal(leader_retired(&leader, ids, 4), 0);
    pages_are_released(1, 1);
    pages_are_released(2, 4);
    assert_int_equal(leader_retired(&leader, ids, 1), 1);
    assert_int_equal(ids[0], 1);
    assert_int_equal(leader_retired(&leader, ids, 4), 1);
    assert_int_equal(ids[0], 2);
    assert_int_equal(leader_retired(&leader, ids, 4), 0);
    assert_int_equal(leader.requests.count, 0);
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS); /* the id is free again */
}

static void a_reset_request_starts_from_nothing(void **state)
{
    (void)state;
    struct tarn_offer offer;
    struct wire_reader reader;
    uint32_t pending;
    uint64_t ids[4];
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(
        step(with_pages((struct tarn_step_request){ .id = 1, .scheduled_tokens = 8 }), &reader),
        TARN_OK);
    assert_int_equal(leader_reset(&leader, 1), TARN_INVALID); /* transfers are pending */
    assert_int_equal(leader_finished(&leader, 1, &pending), TARN_OK);
    pages_are_released(1, 4);
    assert_int_equal(leader_retired(&leader, ids, 4), 1);
    assert_int_equal(leader_reset(&leader, 1), TARN_OK);
    assert_int_equal(ask(1, 40, 0, 0, &offer), TARN_MISS);
    assert_int_equal(step((struct tarn_step_request){ .id = 1, .scheduled_tokens = 8 }, &reader),
                     TARN_OK);
    saves(reader, 1, 0, 0); /* no page of the old incarnation is left */
    assert_int_equal(leader_reset(&leader, 1), TARN_OK);
}

static enum tarn_status live_through_a_request(void)
{
    struct tarn_offer offer;
    struct wire_reader reader;
    struct tarn_loaded loaded = { .id = 1, .block_count = 2, .asked_count = 2 };
    enum tarn_status status;
    step_number = 0;
    leader_init(&leader, &config);
    status = ask(1, 40, 0, 2, &offer);
    if (status == TARN_OK)
        status = step(with_pages((struct tarn_step_request){ .id = 1, .load = 1 }), &reader);
    if (status == TARN_OK) {
        struct wire_buffer buffer = { .data = NULL };
        struct tarn_bytes verdict;
        status = wire_buffer_reserve(&buffer, 1000);
        if (status == TARN_OK) {
            struct wire_writer writer = wire_begin(&buffer, leader_list_shape(&leader));
            wire_add_item(&writer, &(struct wire_item){ loaded, 1 });
            wire_end(&writer, &(struct wire_head){ .kind = WIRE_REPORT, .number = 1 });
            const struct tarn_bytes bytes = wire_buffer_bytes(&buffer);
            status = leader_verdict(&leader, &bytes, 1, now_ns, &verdict);
        }
        wire_buffer_deinit(&buffer);
    }
    if (status == TARN_OK)
        status = step((struct tarn_step_request){ .id = 1,
                                                  .tokens = tokens,
                                                  .token_count = 100,
                                                  .computed_tokens = 8,
                                                  .scheduled_tokens = 32 },
                      &reader);
    leader_deinit(&leader);
    return status;
}

static void a_leader_survives_failed_allocations(void **state)
{
    (void)state;
    leader_deinit(&leader);
    assert_in_range(fault_sweep(live_through_a_request), 8, 40);
    leader_init(&leader, &config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LEADER_TEST(the_whole_prompt_is_never_offered),
        LEADER_TEST(a_prefix_that_the_device_has_is_skipped),
        LEADER_TEST(a_producer_never_asks),
        LEADER_TEST(a_consumer_never_saves),
        LEADER_TEST(every_reason_not_to_ask_is_told_apart),
        LEADER_TEST(a_match_inside_a_block_is_rounded_down_for_an_engine_that_can_rewind),
        LEADER_TEST(asking_again_replaces_the_offer_and_its_lease),
        LEADER_TEST(an_offer_that_is_never_loaded_gives_its_lease_back),
        LEADER_TEST(what_cannot_be_a_request_is_refused),
        LEADER_TEST(a_tail_can_be_cancelled_and_rounds_down),
        LEADER_TEST(a_head_can_be_cancelled_on_a_boundary_only),
        LEADER_TEST(all_of_an_offer_can_be_cancelled),
        LEADER_TEST(a_hole_in_an_offer_is_refused),
        LEADER_TEST(blocks_ten_and_eleven_are_loaded_and_twelve_to_fourteen_saved),
        LEADER_TEST(what_was_saved_is_not_saved_again),
        LEADER_TEST(a_partial_block_waits_until_it_is_full),
        LEADER_TEST(generated_blocks_are_saved_unless_turned_off),
        LEADER_TEST(a_block_missing_in_one_group_is_not_saved),
        LEADER_TEST(a_missing_page_inside_an_accepted_offer_is_refused),
        LEADER_TEST(a_step_that_makes_no_sense_is_refused_and_changes_nothing),
        LEADER_TEST(what_the_device_supplied_is_not_saved),
        LEADER_TEST(dummy_and_unnamed_media_requests_are_never_saved),
        LEADER_TEST(metadata_carries_tokens_and_parent_when_they_are_to_be_verified),
        LEADER_TEST(later_blocks_of_a_chain_wait_for_a_gap_to_be_saved),
        LEADER_TEST(nothing_is_saved_for_a_while_after_the_store_failed),
        LEADER_TEST(a_load_that_falls_short_sets_the_position_to_its_good_prefix),
        LEADER_TEST(a_load_that_must_not_fall_short_says_what_ended_it),
        LEADER_TEST(a_report_on_another_load_is_ignored),
        LEADER_TEST(a_request_under_load_is_not_scheduled),
        LEADER_TEST(finished_is_true_once_and_false_without_saves),
        LEADER_TEST(retirement_is_reported_once_and_after_the_last_page),
        LEADER_TEST(a_reset_request_starts_from_nothing),
        LEADER_TEST(a_leader_survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
