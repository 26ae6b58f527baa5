"""The figures of 002 §1, against rows made by hand."""

from __future__ import annotations

import pytest

from ordercast.lab.grid import Run
from ordercast.lab.metrics import Mean, Meter, Traffic, Window, variation
from ordercast.lab.under_load import conduct
from ordercast.protocols import PROTOCOLS
from ordercast.trace.schema import Row


def row(node: int, time_us: int, event: str, number: int, origin: int = 1, guarantee: str = "agreed") -> Row:
    place = (node, 0, 0, time_us, event, 1, 1, "regular", None)
    return (*place, origin, 0, number, 1, 1, number, 0, guarantee, None, 500, *(None,) * 7)


def story(number: int, submit: int, originate: int, deliver: list[int], stable: list[int]) -> list[Row]:
    """One message of node 1: delivered and stable at nodes 1, 2, … at these times."""
    rows = [row(1, submit, "submit", number), row(1, originate, "originate", number)]
    rows += [row(node, time, "deliver", number) for node, time in enumerate(deliver, 1)]
    rows += [row(node, time, "stable", number) for node, time in enumerate(stable, 1)]
    return rows


TWO = [
    *story(1, submit=1000, originate=1100, deliver=[1200, 1500], stable=[1900, 2100]),
    *story(2, submit=3000, originate=3000, deliver=[3100, 3300], stable=[3400, 4000]),
    row(1, 5000, "submit", 3),
]


def measured() -> Meter:
    meter = Meter(2, Window(messages=2))
    meter.take(TWO)
    return meter


def test_delivery_time_is_from_submission_to_the_last_delivery() -> None:
    # 1500 - 1000 = 500 and 3300 - 3000 = 300: on average 400.
    assert measured().figures()["delivery_us"] == 400


def test_stability_time_is_from_submission_until_the_last_node_knows() -> None:
    # 2100 - 1000 = 1100 and 4000 - 3000 = 1000: on average 1050, each 50 from that.
    figures = measured().figures()
    assert figures["stability_us"] == 1050
    assert figures["stability_sd_us"] == 50


def test_the_buffer_is_what_a_node_holds_on_average_until_it_knows_that_all_have_it() -> None:
    # Node 1 holds 1900 - 1100 = 800 and 3400 - 3000 = 400; node 2 holds 2100 - 1100 = 1000 and 1000.
    # That is 3200 µs at two nodes in the 4000 µs from the first submission to the third: 3200 / 8000.
    assert measured().figures()["buffer"] == pytest.approx(0.4)


def test_latency_counts_every_delivery_from_submission_and_from_broadcast() -> None:
    # From submission 200, 500, 100, 300: mean 275. From broadcast 100, 400, 100, 300: mean 225.
    figures = measured().figures()
    assert figures["latency_agreed_us"] == 275
    assert figures["latency_agreed_from_originate_us"] == 225
    assert figures["latency_agreed_max_us"] == 500
    assert dict(measured().histograms["agreed"]) == {1: 1, 2: 1, 3: 1, 5: 1}


def test_throughput_counts_a_message_once_however_many_deliver_it() -> None:
    # Two messages of 500 bytes in 4000 µs: 500 a second, 250,000 bytes a second.
    figures = measured().figures()
    assert figures["ordered_per_s"] == pytest.approx(500)
    assert figures["bytes_per_s"] == pytest.approx(250_000)


def test_messages_before_the_first_that_counts_leave_no_trace() -> None:
    meter = Meter(2, Window(skip=1, messages=1))
    meter.take(TWO)
    figures = meter.figures()
    # Only the second message, and the time from its submission to the third: 3000 to 5000.
    assert (figures["measured"], figures["window_us"]) == (1, 2000)
    assert (figures["delivery_us"], figures["stability_us"]) == (300, 1000)


def test_by_time_those_submitted_in_between_count() -> None:
    meter = Meter(2, Window(begin_us=2000, end_us=5000))
    meter.take(TWO)
    assert (meter.figures()["measured"], meter.figures()["stability_us"]) == (1, 1000)


def test_a_message_that_is_not_stable_everywhere_is_told_and_not_averaged() -> None:
    meter = Meter(2, Window(messages=2))
    meter.take(each for each in TWO if not (each[4] == "stable" and each[0] == 2 and each[11] == 2))
    assert not meter.complete
    assert (meter.figures()["unsettled"], meter.figures()["stability_us"]) == (1, 1100)


def test_a_message_is_forgotten_once_it_is_stable_everywhere() -> None:
    meter = measured()
    assert meter.complete
    assert meter.unsettled == 0


def test_rows_may_come_in_any_pieces() -> None:
    whole, pieces = measured(), Meter(2, Window(messages=2))
    for each in TWO:
        pieces.take([each])
    assert pieces.figures() == whole.figures()


def test_overhead_is_what_is_sent_beside_the_messages_and_the_membership() -> None:
    traffic = Traffic(PROTOCOLS["cm"].kinds.values())
    traffic.sent.update({(1, "msg"): 4, (2, "ack"): 3, (1, "ack"): 1, (2, "heartbeat"): 10})
    figures = traffic.figures(nodes=2, messages=4)
    assert figures["overhead"] == 1  # 4 acknowledgements for 4 messages
    assert figures["membership"] == 2.5
    assert (figures["load_mean"], figures["load_max"]) == (0.5, 0.75)  # 1 and 3 acknowledgements
    assert figures["load_variation"] == 0.5  # mean 2, each 1 from it
    assert figures["work_variation"] == 0.25  # 5 and 3 packets: mean 4, each 1 from it
    assert figures["sent/ack"] == 1


def test_mean_and_deviation_of_values_one_by_one() -> None:
    mean = Mean()
    for value in (2, 4, 4, 4, 5, 5, 7, 9):  # the textbook's eight: mean 5, deviation 2
        mean.add(value)
    assert (mean.mean, mean.largest) == (5, 9)
    assert mean.deviation == pytest.approx(2)


def test_equal_shares_have_no_variation() -> None:
    assert variation([3, 3, 3]) == 0
    assert variation([0, 0]) == 0


# --- a real run --------------------------------------------------------------------------------


def test_cm_on_a_perfect_ethernet_is_what_one_can_work_out() -> None:
    """002 §3: U is stable after n - 1 further acknowledgements; here messages come every 10 ms in turn."""
    run = Run(
        protocol="cm",
        nodes=4,
        arrivals="deterministic",
        rate=100,
        size=500,
        messages=100,
        skip=20,
        network="ethernet10",
        net={"receive_us": 0, "unicast_us": 0, "send_us": 0},
        settings={
            "batch": 1,
            "resilience": 1,
            "silence_us": 100_000,
            "hurry_us": 100_000,
            "retry_us": 1_000_000,
        },
    )
    figures = conduct(run).figures
    assert figures["unsettled"] == 0
    assert figures["sent/msg"] == figures["sent/ack"] == figures["overhead"] == 1
    # Three further messages are 30 ms; the acknowledgement of the last comes a packet of each kind later.
    assert figures["stability_us"] == pytest.approx(30_000 + figures["delivery_us"], abs=5)
    # About 540 bytes and then about 60 at 10 Mb/s, with what a frame adds: between 0.5 and 0.8 ms.
    assert 500 < figures["delivery_us"] < 800
    # A member keeps 100 messages a second for so long each; but the last of the four to acknowledge knows of
    # itself that it has the message, and so is done 10 ms before the others.
    assert figures["buffer"] == pytest.approx(100e-6 * (figures["stability_us"] - 10_000 / 4), rel=0.001)


def test_the_same_run_gives_the_same_figures() -> None:
    run = Run(protocol="totem", nodes=3, messages=50, rate=500, loss=0.01, seed=3)
    assert conduct(run) == conduct(run)


def test_members_that_need_a_message_are_counted_and_the_others_are_not() -> None:
    meter = Meter(2, Window(messages=2), audience=lambda groups: frozenset({1}))
    meter.take(TWO)
    figures = meter.figures()
    assert figures["delivery_us"] == (200 + 100) / 2, "at the first node alone"
    assert figures["latency_agreed_us"] == (200 + 100) / 2
    assert figures["known_us"] == (900 + 400) / 2
    assert figures["stability_us"] == (1100 + 1000) / 2, "that all have it is for all to know"


def test_hosts_that_need_time_for_a_message_order_no_more_than_they_have_time_for() -> None:
    def per_s(message_us: int) -> float:
        net: dict[str, int | float] = {"message_us": message_us}
        run = Run(protocol="totem", nodes=2, arrivals="saturating", size=100, seconds=0.2, net=net)
        return conduct(run).figures["ordered_per_s"]

    assert per_s(50) > 2 * per_s(200)
    assert 0.5 * 1e6 / 200 < per_s(200) < 1.1 * 1e6 / 200


def test_a_run_by_time_measures_what_was_submitted_then() -> None:
    run = Run(protocol="dtp", nodes=3, arrivals="deterministic", rate=100, seconds=0.5)
    figures = conduct(run).figures
    assert (figures["measured"], figures["window_us"], figures["unsettled"]) == (50, 500_000, 0)
