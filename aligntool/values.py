"""A replacement for `dataclasses.dataclass` with a tenth of its cost at start-up.

The standard library generates and compiles up to ten methods for each class: 0.4 ms per class in Python 3.11, which was
half of an audit (docs/decisions/0026-rare-modules-when-needed.md). Here it only makes the fields and slots of a class;
all classes share the same methods. Creating an instance takes about 1 µs longer, so a class gets a compiled `__init__`
when it has many.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError, fields, make_dataclass
from dataclasses import dataclass as make_fields
from functools import cache
from inspect import Signature, signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

_Kind = TypeVar("_Kind")
_set = object.__setattr__
_MANY = 500  # instances whose longer creation costs as much as compiling a method
_instances: Counter[type] = Counter()


def with_shared_methods(*, frozen: bool = False, slots: bool = False) -> Callable[[type[_Kind]], type[_Kind]]:
    """Return a decorator that works as `dataclasses.dataclass` with these arguments."""

    def decorate(kind: type[_Kind]) -> type[_Kind]:
        methods = {**_SHARED, **(_FROZEN if frozen else {"__hash__": None})}
        own = vars(kind).keys() & methods
        kind.__doc__ = kind.__doc__ or kind.__name__  # otherwise the standard library makes one of the signature
        made = make_fields(init=False, repr=False, eq=False, slots=slots)(kind)
        for name in methods.keys() - own:
            setattr(made, name, methods[name])
        return made

    return decorate


@cache
def _parameters(kind: Any) -> tuple[set[str], Mapping[str, object], Sequence[tuple[str, Callable[[], object]]]]:
    """Return the names of the parameters, their defaults, and their default factories."""
    parameters = [field for field in fields(kind) if field.init]
    defaults = {field.name: field.default for field in parameters if field.default is not MISSING}
    factories = [(field.name, field.default_factory) for field in parameters if field.default_factory is not MISSING]
    return {field.name for field in parameters}, defaults, factories


def _like(kind: Any) -> Any:
    """Return a class of the standard library with these fields. Compiling its methods takes a while."""
    after = {"__post_init__": kind.__post_init__} if hasattr(kind, "__post_init__") else {}
    like = [(field.name, field.type, field) for field in fields(kind)]
    return make_dataclass(kind.__name__, like, namespace=after, frozen=True)


def _init(self: Any, *positional: object, **named: object) -> None:
    kind = self.__class__
    _instances[kind] += 1
    if _instances[kind] == _MANY:
        kind.__init__ = _like(kind).__init__
    names, defaults, factories = _parameters(kind)
    explicit = {**dict(zip(self.__match_args__, positional, strict=False)), **named}
    values = {**defaults, **explicit}
    for name, make in factories:
        if name not in values:
            values[name] = make()
    if values.keys() != names or len(explicit) < len(positional) + len(named):
        signature(type(self)).bind(*positional, **named)  # raises a TypeError that names the wrong parameter
    for name, value in values.items():
        _set(self, name, value)
    if after := getattr(self, "__post_init__", None):
        after()


def _repr(self: Any) -> str:
    shown = (field.name for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


@cache
def _compared(kind: Any) -> Callable[[object], tuple[object, ...]]:
    """Return a getter of the compared fields. The class comes first, so that the result is a tuple even for one
    field.
    """
    return attrgetter("__class__", *(field.name for field in fields(kind) if field.compare))


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__)(self)[1:])  # without the class, whose hash differs in each run


def _eq(self: Any, other: Any) -> Any:
    if self.__class__ is not other.__class__:
        return NotImplemented
    values = _compared(self.__class__)
    return values(self) == values(other)


def _refuse_setting(_: object, name: str, __: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(_: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in fields(self)]


def _setstate(self: Any, state: Sequence[object]) -> None:
    for field, value in zip(fields(self), state, strict=True):
        _set(self, field.name, value)


class _LateSignature:
    """The signature of a class for `help()` and `inspect.signature`, made by the standard library on access."""

    def __get__(self, _: object, kind: Any) -> Signature:
        return signature(_like(kind))


_SHARED = {"__init__": _init, "__repr__": _repr, "__eq__": _eq, "__signature__": _LateSignature()}
_FROZEN = {
    "__hash__": _hash,
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
    "__getstate__": _getstate,
    "__setstate__": _setstate,
}

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # type checkers know this one
else:
    dataclass = with_shared_methods
