"""Look messages up in the user's language: a template in a catalogue of gettext, which is then filled with
its values.

Only pages of which every sentence can be looked up are translated, so that no page mixes languages
(docs/decisions/0060). A template that the catalogue lacks, or has with other fields, is shown in English.
"""

import re
from collections.abc import Mapping
from gettext import GNUTranslations, NullTranslations
from io import BytesIO
from pkgutil import get_data
from string import Formatter

LANGUAGES = ("ja",)
"""Languages with a catalogue in po/."""


def language(environment: Mapping[str, str]) -> str | None:
    """Return the first language of the user that has a catalogue, as gettext finds it, or None for
    English.
    """
    locale = environment.get("LC_ALL") or environment.get("LC_MESSAGES") or environment.get("LANG") or "C"
    if locale.partition(".")[0] in ("C", "POSIX"):
        return None
    for word in (environment.get("LANGUAGE") or locale).split(":"):
        code = re.split(r"[_.@]", word)[0]
        if code in LANGUAGES or code == "en":
            return None if code == "en" else code
    return None


def catalogue(code: str | None) -> NullTranslations:
    """Return the catalogue of a language, or an empty one for English and where none was compiled: only
    packages have catalogues.
    """
    try:
        raw = get_data("aligntool", f"locale/{code}/LC_MESSAGES/aligntool.mo")
    except OSError:
        raw = None
    return GNUTranslations(BytesIO(raw)) if raw else NullTranslations()


_chosen = NullTranslations()


def use_catalogue(chosen: NullTranslations) -> None:
    """Set the catalogue in which `translated` looks templates up."""
    global _chosen
    _chosen = chosen


def translated(template: str, **values: object) -> str:
    """Return the template in the chosen language, filled with its values."""
    own = _chosen.gettext(template)
    if _fields(own) != _fields(template):
        own = template
    return own.format_map(values) if values else own


def _fields(template: str) -> set[object] | None:
    """Return the fields of a template with their formats, or None if it is not valid."""
    try:
        return {tuple(field) for _, *field in Formatter().parse(template) if field[0] is not None}
    except ValueError:
        return None
