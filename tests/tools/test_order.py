"""Calls that share a resource key keep their order; all others run side by side."""

from __future__ import annotations

from cellhost.tools.order import EVERY_FILE, ResourceOrder


def test_readers_of_a_key_run_side_by_side() -> None:
    order = ResourceOrder()
    turns = [order.enter(("k:a",), mutating=False) for _ in range(3)]
    assert all(turn.ready for turn in turns)


def test_a_writer_waits_for_every_earlier_reader_and_writer() -> None:
    order = ResourceOrder()
    reader = order.enter(("k:a",), mutating=False)
    writer = order.enter(("k:a",), mutating=True)
    second = order.enter(("k:a",), mutating=True)
    assert not writer.ready
    order.leave(reader)
    assert writer.ready
    assert not second.ready
    order.leave(writer)
    assert second.ready


def test_a_reader_waits_for_the_writer_before_it_only() -> None:
    order = ResourceOrder()
    writer = order.enter(("k:a",), mutating=True)
    reader = order.enter(("k:a",), mutating=False)
    other = order.enter(("k:b",), mutating=False)
    assert not reader.ready
    assert other.ready
    order.leave(writer)
    assert reader.ready


def test_a_turn_on_two_keys_waits_for_both() -> None:
    order = ResourceOrder()
    first = order.enter(("k:a",), mutating=True)
    second = order.enter(("k:b",), mutating=True)
    both = order.enter(("k:a", "k:b"), mutating=True)
    order.leave(first)
    assert not both.ready
    order.leave(second)
    assert both.ready


def test_whoever_waited_for_a_cancelled_waiter_still_waits_for_the_one_that_runs() -> None:
    order = ResourceOrder()
    running = order.enter(("k:a",), mutating=True)
    cancelled = order.enter(("k:a",), mutating=True)
    last = order.enter(("k:a",), mutating=True)
    order.leave(cancelled)
    assert not last.ready
    order.leave(running)
    assert last.ready


def test_a_call_ahead_passes_waiting_writers_but_not_a_started_one() -> None:
    order = ResourceOrder()
    reader = order.enter(("k:a",), mutating=False)
    waiting = order.enter(("k:a",), mutating=True)
    ahead = order.enter(("k:a",), mutating=False, ahead=True)
    assert not waiting.ready
    assert ahead.ready
    order.leave(reader)
    order.leave(ahead)
    assert waiting.ready
    behind = order.enter(("k:a",), mutating=False, ahead=True)
    assert not behind.ready


def test_a_turn_on_every_file_keeps_its_place_among_those_on_one() -> None:
    order = ResourceOrder()
    before = [order.enter((f"workspace:{name}",), mutating=True) for name in "ab"]
    every = order.enter(("k:a", EVERY_FILE), mutating=True)
    after = [order.enter((f"workspace:{name}",), mutating=False) for name in "ac"]
    elsewhere = order.enter(("k:b",), mutating=True)
    assert [turn.ready for turn in (*before, every, *after, elsewhere)] == [True, True, False, False, False, True]
    for turn in before:
        order.leave(turn)
    assert every.ready
    assert not any(turn.ready for turn in after)
    order.leave(every)
    assert all(turn.ready for turn in after)


def test_nothing_is_kept_of_turns_that_left() -> None:
    order = ResourceOrder()
    turns = [order.enter((f"k:{number % 3}", "k:all"), mutating=number % 2 == 0) for number in range(50)]
    for turn in turns:
        order.leave(turn)
    assert not vars(order)["_keys"]
