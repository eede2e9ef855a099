"""Where the reading of a topic's partitions begins, by what was read and what the broker has."""

import json

from correlator.pipeline.sources.kafka import Beginning, Place, beginnings, starting_offsets
from correlator.pipeline.sources.topics import Extent, Topic


def begin(extent: Extent, place: Place | None, topic_id: str | None = "A") -> Beginning:
    """Of the only partition of a topic."""
    read = {} if place is None else {place.origin: place}
    (found,) = beginnings([Topic("events", topic_id, {0: extent})], read)
    return found


def test_what_was_never_read_begins_at_its_first_message() -> None:
    found = begin(Extent(40, 90), None)
    assert (found.position, found.incarnation, found.loss) == (None, "A", "")
    assert begin(Extent(0, 0), Place("events/0", None, "A")).position is None


def test_what_was_read_goes_on_behind_it() -> None:
    found = begin(Extent(40, 90), Place("events/0", 69, "A"))
    assert (found.position, found.loss) == (69, "")


def test_what_was_read_to_its_end_and_then_deleted_is_no_loss() -> None:
    assert begin(Extent(90, 90), Place("events/0", 89, "A")).loss == ""


def test_what_was_deleted_before_it_was_read_is_told_with_its_offsets() -> None:
    found = begin(Extent(40, 90), Place("events/0", 9, "A"))
    assert found.position is None
    assert "offsets 10 to 39 of events/0 are lost" in found.loss


def test_a_topic_made_again_is_read_from_its_beginning_however_long_it_is() -> None:
    for end in (3, 90):
        found = begin(Extent(0, end), Place("events/0", 9, "B"))
        assert (found.position, found.incarnation) == (None, "A")
        assert "events/0 is another one than before" in found.loss


def test_of_a_broker_without_ids_a_topic_that_became_shorter_was_made_again() -> None:
    found = begin(Extent(0, 3), Place("events/0", 9, None), topic_id=None)
    assert found.position is None
    assert "made again" in found.loss
    assert begin(Extent(0, 90), Place("events/0", 9, None), topic_id=None).loss == ""


def test_a_partition_whose_end_was_lost_goes_on_where_it_ends_now() -> None:
    found = begin(Extent(0, 5), Place("events/0", 9, "A"))
    assert found.position == 4
    assert "was read up to 9" in found.loss


def test_a_partition_read_by_a_query_that_did_not_know_its_topic_yet_goes_on() -> None:
    found = begin(Extent(0, 90), Place("events/0", 9, None))
    assert (found.position, found.incarnation, found.loss) == (9, "A", "")


def test_spark_is_told_of_every_partition_or_of_none() -> None:
    topics = [Topic("a", "A", {0: Extent(0, 5), 1: Extent(2, 7)}), Topic("b/c", "B", {0: Extent(0, 0)})]
    read = {"a/1": Place("a/1", 4, "A"), "gone/0": Place("gone/0", 7, "G")}
    found = json.loads(starting_offsets(beginnings(topics, read)))
    assert found == {"a": {"0": -2, "1": 5}, "b/c": {"0": -2}}
    assert starting_offsets(beginnings([], read)) == "earliest"
