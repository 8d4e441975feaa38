"""Our `dataclass` compared with that of the standard library: classes made by both must behave the same."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from aligntool import values
from aligntool.errors import Refusal


def kinds(dataclass: Any) -> SimpleNamespace:
    """Return a class of each sort that aligntool has."""

    @dataclass(frozen=True, slots=True)
    class Pair:
        """Compared and hashed."""

        first: int
        second: int = 7

    @dataclass(frozen=True, slots=True)
    class Node:
        """With fields that are not compared or printed, and one that is made for each instance."""

        name: str
        below: tuple[object, ...] = ()
        known: dict[str, int] = dataclasses.field(default_factory=dict, repr=False, compare=False)

        def __post_init__(self) -> None:
            self.known[self.name] = len(self.below)

    @dataclass(frozen=True, slots=True)
    class Nothing:
        """Without fields."""

    @dataclass(slots=True)
    class Counter:
        """Mutable, with a custom text."""

        count: int = 0

        def __repr__(self) -> str:
            return f"counted {self.count}"

    return SimpleNamespace(Pair=Pair, Node=Node, Nothing=Nothing, Counter=Counter)


OURS, OFTEN, THEIRS = kinds(values.dataclass), kinds(values.dataclass), kinds(dataclasses.dataclass)


@pytest.fixture(scope="module", autouse=True)
def many_instances() -> None:
    """Make so many instances of the classes of `OFTEN` that they get a compiled `__init__`."""
    for number in range(1000):
        made = OFTEN.Pair(number), OFTEN.Node("a"), OFTEN.Nothing(), OFTEN.Counter()
    for mine, other in zip(made, (OURS.Pair(1), OURS.Node("a"), OURS.Nothing(), OURS.Counter()), strict=True):
        assert type(mine).__init__ is not type(other).__init__


def outcome(asked: Callable[[Any], object], of: SimpleNamespace) -> object:
    """Return the answer as a text, or the kind of error."""
    try:
        return repr(asked(of))
    except (TypeError, AttributeError) as error:
        return type(error)


def changed(value: Any, name: str) -> Any:
    setattr(value, name, 1)
    return value


def without(value: Any, name: str) -> None:
    delattr(value, name)


def matched(of: Any, value: object) -> object:
    match value:
        case of.Pair(first, second):
            return first, second
    return None


@pytest.mark.parametrize(
    "asked",
    [
        lambda of: of.Pair(1),
        lambda of: of.Pair(second=2, first=1),
        lambda of: of.Pair(),
        lambda of: of.Pair(1, 2, 3),
        lambda of: of.Pair(1, first=1),
        lambda of: of.Pair(1, third=3),
        lambda of: of.Pair(first=1, third=3),
        lambda of: of.Pair(1).second,
        lambda of: of.Pair(1, 2) == of.Pair(1, 2),
        lambda of: of.Pair(1, 2) != of.Pair(1, 3),
        lambda of: of.Pair(1, 2) == (1, 2),
        lambda of: of.Nothing() == of.Nothing(),
        lambda of: of.Nothing() == of.Counter(),
        lambda of: of.Node("a") < of.Node("b"),
        lambda of: hash(of.Pair(1, 2)),
        lambda of: {of.Pair(1, 2): "found"}[of.Pair(1, 2)],
        lambda of: hash(of.Counter()),
        lambda of: of.Node("a", (of.Nothing(),)),
        lambda of: of.Node("a", (1,)).known,
        lambda of: of.Node("a").known is of.Node("a").known,
        lambda of: of.Node("a", known={}) == of.Node("a", known={"b": 1}),
        lambda of: changed(of.Pair(1), "first"),
        lambda of: changed(of.Counter(), "count"),
        lambda of: changed(of.Counter(), "other"),
        lambda of: without(of.Pair(1), "first"),
        lambda of: of.Pair(1).__dict__,
        lambda of: dataclasses.replace(of.Pair(1), second=3),
        lambda of: dataclasses.replace(of.Pair(1), third=3),
        lambda of: dataclasses.asdict(of.Node("a", (of.Pair(1),))),
        lambda of: [each.name for each in dataclasses.fields(of.Node)],
        lambda of: copy.copy(of.Pair(1, 2)),
        lambda of: copy.deepcopy(of.Node("a", (of.Pair(1),))),
        lambda of: matched(of, of.Pair(1, 2)),
        lambda of: inspect.signature(of.Pair),
        lambda of: inspect.signature(of.Node),
        lambda of: of.Pair.__doc__,
    ],
)  # fmt: skip
def test_a_class_behaves_like_one_of_the_standard_library(asked: Callable[[Any], object]) -> None:
    assert outcome(asked, OURS) == outcome(asked, OFTEN) == outcome(asked, THEIRS)


def test_a_docstring_is_not_made_of_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first such signature in a run takes 2 ms."""
    monkeypatch.setattr(inspect, "signature", None)

    @values.dataclass()
    class Bare:
        first: int

    assert Bare.__doc__ == "Bare"


def test_an_instance_can_be_pickled_and_unpickled() -> None:
    assert pickle.loads(pickle.dumps(Refusal("a", "b", "c"))) == Refusal("a", "b", "c")
