"""What a log of commands says: how much is sequential, how large the requests are, how deep the queue is, and how many
requests cross a boundary; and what a boot of that many commands takes on a drive.

In: events, as `probe.logs` reads them. Out: a Pattern, or an estimate in seconds. Alone because it is arithmetic on
commands: it knows neither formats of logs nor disks.
"""

from aligntool.trace.boot import ARTICLE, BootCounts, Drive, gap_s, parse_drive
from aligntool.trace.commands import UNTIMED, Event, Kind, Moment
from aligntool.trace.latency import PERCENTILES, Latency
from aligntool.trace.pattern import Boundary, Crossing, Pattern, Row
from aligntool.trace.tally import MOST_SOURCES, NoCommands, read_pattern

__all__ = [
    "ARTICLE",
    "MOST_SOURCES",
    "PERCENTILES",
    "UNTIMED",
    "BootCounts",
    "Boundary",
    "Crossing",
    "Drive",
    "Event",
    "Kind",
    "Latency",
    "Moment",
    "NoCommands",
    "Pattern",
    "Row",
    "gap_s",
    "parse_drive",
    "read_pattern",
]
