"""Find what may hold a suspended system that nobody can see: layers whose content cannot be looked into."""

from collections.abc import Iterator, Sequence

from aligntool.audit.wording import SUSPENDED, layer_name
from aligntool.change import Plan
from aligntool.contents.catalogue import kind_named
from aligntool.errors import Refusal
from aligntool.inventory import Disk, Layer, with_inner
from aligntool.units import first_of

_MOST_NAMED = 4


def may_hold_suspended_system(disk: Disk) -> str:
    """Return the layers on a disk that may hold a suspended system which cannot be seen, or "" if there are
    none.

    The default is the careful answer: a layer counts unless it is a file system or was looked into.
    """
    places = (
        (disk.name, disk.content),
        *((f"partition {part.number}", part.content) for part in disk.partitions),
    )
    found = [f"the {name} on {place}" for place, content in places for name in _unseen_names(content)]
    return first_of(found, _MOST_NAMED)


def _unseen_names(content: Sequence[Layer]) -> Iterator[str]:
    names = (
        layer_name(layer)
        for layer in with_inner(content)
        if not kind_named(layer.kind).is_seen_through(layer)
    )
    yield from dict.fromkeys(names)


# A change of such a disk needs the user's word: typed at the question, or given as an option.


def suspension_attention(disk: Disk) -> tuple[str, ...]:
    """Return the sentence for a plan that changes this disk."""
    where = may_hold_suspended_system(disk)
    if not where:
        return ()
    warning = "would go on as before the change and overwrite data: shut it down first"
    return (f"{SUSPENDED}a system that is suspended to disk inside {where} {warning}",)


def suspension_sentences(plan: Plan) -> tuple[str, ...]:
    """Return the sentences of a plan about systems that may be suspended."""
    return tuple(sentence for sentence in plan.attention if sentence.startswith(SUSPENDED))


def names_suspensions(plan: Plan, current: Plan) -> bool:
    """Return whether a saved plan has every sentence about suspended systems that a plan made now has."""
    return set(suspension_sentences(current)) <= set(suspension_sentences(plan))


def suspension_refusals(plan: Plan) -> tuple[Refusal, ...]:
    """Return why a plan is not applied without a question."""
    hint = "shut down the system that uses it, then add --not-suspended"
    return tuple(
        Refusal("may-be-suspended", plan.disk.path, f"{plan.disk.path} {sentence}", hint, lasting=False)
        for sentence in suspension_sentences(plan)
    )
