"""Numbers on the command line and in files: only the digits 0 to 9, not everything that Python accepts as a number."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aligntool.cli.options import integer, partition_numbers, seconds
from aligntool.errors import Refused
from aligntool.measure import logs
from aligntool.measure.trace import parse_drive, read_pattern
from aligntool.recipes.goals import parse_recipe
from aligntool.units import parse_size
from tests.commands import whole_program
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

# Each is a number to int() or float(), but not to disk tools.
STRANGE = ("1_000", "nan", "inf", "-inf", "infinity", "-5", "+5", " 5", "5 ", "0x10", "1e3", "\u0665", "\uff15", "")


@sample(60)
@pytest.mark.parametrize("word", STRANGE)
@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "boot", "--rate-a", "30", "--reads"),
        ("estimate", "boot", "--rate-a", "30", "--writes"),
        ("bench", "run", "/nowhere/x", "--repeats"),
        ("bench", "run", "/nowhere/x", "--runtime"),
        ("bench", "span", "/nowhere/x", "--repeats"),
        ("bench", "alignment", "/nowhere/x", "--runtime"),
        ("bench", "alignment", "/nowhere/x", "--depth"),
        ("probe", "/nowhere/x", "--limit"),
        ("probe", "/nowhere/x", "--seed"),
        ("plan", "realign", "/nowhere/x", "-p"),
        ("trace", "read", "/nowhere/x", "-p"),
        ("raid", "tune", "/nowhere/x", "--runtime"),
        ("raid", "tune", "/nowhere/x", "--repeats"),
    ],
    ids=" ".join,
)
def test_an_option_accepts_numbers_in_decimal_digits_only(words: tuple[str, ...], word: str) -> None:
    if "-p" in words and word in (" 5", "5 "):
        pytest.skip("blanks around the commas of a list are harmless")
    from typer.testing import CliRunner

    from aligntool.cli.app import app

    done = CliRunner().invoke(app, [*words, word])
    assert done.exit_code == 2, done.output


def _options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from _options(below, (*path, name))
    for each in command.params:
        if each.param_type_name == "option" and not each.is_flag:
            yield " ".join((*path, each.opts[0])), each


def test_no_option_of_any_command_accepts_numbers_in_other_notations() -> None:
    """All options, also future ones. Blanks around a size are harmless."""
    import typer

    taken, plain = [], 0
    for name, option in _options(whole_program()):
        for word in (*STRANGE, "2"):
            several = option.multiple or option.nargs != 1
            try:
                found = option.process_value(None, (word,) if several else word)
            except typer.BadParameter:
                continue
            if isinstance(found, int | float):
                plain += word == "2"
                if word != "2" and not (word.strip() == "5" and isinstance(found, int)):
                    taken.append((name, word, found))
    assert not taken and plain > 15


def test_plain_numbers_are_accepted_up_to_their_bounds() -> None:
    assert [integer(1, 1000)(text) for text in ("1", "1000", "007")] == [1, 1000, 7]
    assert [seconds(0.1, 60)(text) for text in ("0.1", "60", ".5", "5.")] == [0.1, 60, 0.5, 5]
    assert partition_numbers(["1,2", "5", "2"]) == [1, 2, 5]
    assert partition_numbers(None) is None


@pytest.mark.parametrize("word", [word for word in STRANGE if word.strip() != "5"])
def test_sizes_and_rates_accept_plain_digits_only(word: str) -> None:
    for text in (word, f"{word}KiB"):
        with pytest.raises(ValueError):
            parse_size(text)
    with pytest.raises(ValueError):
        parse_drive(word)


def test_a_unit_with_a_confusable_letter_is_refused() -> None:
    with pytest.raises(ValueError):
        parse_size("4\u212aiB")  # the Kelvin sign, whose lower-case letter is k


NUMBERS = [word.encode() for word in STRANGE if word != "1e3"]
CSV = b"time_s,op,lba,sectors"
EVENT = b"  8,0    0        4     0.000003000   697  D   W %s + %s [fio]"
IOLOG = b"fio version 3 iolog"


@pytest.mark.parametrize("word", NUMBERS)
@pytest.mark.parametrize("place", range(3))
def test_a_csv_accepts_numbers_in_decimal_digits_only(word: bytes, place: int) -> None:
    row = [b"1.5", b"8", b"8"]
    row[place] = word
    line = b",".join((row[0], b"R", row[1], row[2]))
    with pytest.raises(Refused, match="line 2 "):
        read_pattern(logs.csv_events([CSV, line]))


def test_a_csv_may_have_times_in_scientific_notation() -> None:
    assert read_pattern(logs.csv_events([CSV, b"1.5e-05,R,8,8", b"2,W,16,8"])).commands == 2


@pytest.mark.parametrize("word", [word for word in NUMBERS if word.strip() == word and word])
@pytest.mark.parametrize("place", range(2))
def test_blkparse_text_accepts_numbers_in_decimal_digits_only(word: bytes, place: int) -> None:
    numbers = [b"8", b"8"]
    numbers[place] = word
    with pytest.raises(Refused, match="line 1 "):
        read_pattern(logs.blkparse_events([EVENT % tuple(numbers)]))


@pytest.mark.parametrize("word", [word for word in NUMBERS if word.strip() == word and word])
@pytest.mark.parametrize("place", range(3))
def test_an_iolog_accepts_numbers_in_decimal_digits_only(word: bytes, place: int) -> None:
    numbers = [b"163", b"8192", b"4096"]
    numbers[place] = word
    line = b"%s /dev/sda read %s %s" % tuple(numbers)
    with pytest.raises(Refused, match="line 2 "):
        read_pattern(logs.iolog_events([IOLOG, line]))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "9" * 400, "1e999"])
@pytest.mark.parametrize("key", ["runtime", "repeats"])
def test_a_recipe_with_an_invalid_number_is_refused(key: str, value: str) -> None:
    text = f'format = 1\nkind = "bench"\nsummary = "x"\nsource = "x"\n{key} = {value}\n'
    with pytest.raises(Refused):
        parse_recipe("x.toml", text + '[[test]]\naccess = "random"\nblock = "4KiB"\n')


def test_an_invalid_partition_number_in_a_list_is_a_usage_error(tmp_path: Path) -> None:
    done = run_aligntool("plan", "realign", tmp_path / "none", "-p", "1,x")
    assert done.returncode == 2 and "whole number" in done.stderr and "integer" not in done.stderr
