"""Check documents by the JSON Schemas that aligntool publishes, and by strict ones that allow no other fields."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from aligntool.documents import schema_texts


def check(document: Any, name: str = "") -> None:
    """Raise jsonschema.ValidationError if a document does not match its schema or has an additional field.

    `name`: the schema of a document that does not name it.
    """
    for validator in _validators(name or document["schema"].removeprefix("aligntool.")):
        validator.validate(document)


def check_lines(text: str) -> None:
    """Check a stream of events."""
    for line in text.splitlines():
        check(json.loads(line), "events")


@cache
def _validators(name: str) -> tuple[Draft202012Validator, Draft202012Validator]:
    schema = json.loads(schema_texts()[name])
    return Draft202012Validator(schema), Draft202012Validator(strict(schema))


def strict(schema: Any) -> Any:
    """Return a schema that refuses fields that it does not describe."""

    def closed(node: Any) -> Any:
        return node | {"additionalProperties": False} if "properties" in node else node

    return _changed(schema, closed)


def _changed(node: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    if isinstance(node, list):
        return [_changed(each, change) for each in node]
    if isinstance(node, dict):
        return change({key: _changed(value, change) for key, value in node.items()})
    return node


def objects(node: Any) -> list[dict[str, Any]]:
    """Return every part of a schema that describes an object."""
    found: list[dict[str, Any]] = []

    def look(part: dict[str, Any]) -> dict[str, Any]:
        if "object" in ([part["type"]] if isinstance(part.get("type"), str) else part.get("type", ())):
            found.append(part)
        return part

    _changed(node, look)
    return found
