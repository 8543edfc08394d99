"""Which sentences of the demo make which trouble, and what their words come to."""

from collections import Counter

from examples.demo_topology.sentences import Sentences, SentenceScheme, Trouble, number_of, trouble_of
from examples.demo_topology.troubled_topology import DEADLY
from kinesis_spout.model.record import Record


def troubles(attempt: int) -> Counter[Trouble]:
    return Counter(trouble_of(number, attempt, DEADLY) for number in range(1_000))


def test_some_sentences_fail_at_first_and_fewer_fail_always() -> None:
    first, later = troubles(1), troubles(2)
    assert first[Trouble.SPLIT] > later[Trouble.SPLIT] > 0
    assert first[Trouble.COUNT] > later[Trouble.COUNT] > 0
    assert later == troubles(3)
    assert first[Trouble.DEATH] == 1


def test_the_smallest_demo_has_every_trouble() -> None:
    assert {trouble_of(number, 1, DEADLY) for number in range(250)} == set(Trouble)


def test_a_recount_leaves_out_what_it_is_told_to() -> None:
    sentences = Sentences(3, seed=1)
    [first, *_] = [entry.data for entry in sentences.entries()]
    all_words, others = sentences.recount(without=()), sentences.recount(without={0})
    record = Record(data=first, sequence_number="1", partition_key="0", shard_id="shard")
    text, trouble = SentenceScheme(DEADLY)(record)
    assert number_of(first) == 0
    assert trouble == Trouble.NONE
    assert all_words - others == Counter(text.split())


def test_the_same_seed_gives_the_same_sentences() -> None:
    assert Sentences(50, seed=1).entries() == Sentences(50, seed=1).entries()
    assert Sentences(50, seed=1).entries() != Sentences(50, seed=2).entries()
