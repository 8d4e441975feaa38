"""Logs of commands that other programs recorded: what each format says becomes the same events.

In: the path of a log. Out: its format and its events, one after the other; sectors become bytes here. Alone because
everything in such a file is hostile until it was checked: whatever is wrong with it is one Refused that names the line.
"""

from aligntool.probe.logs.opening import Log, LogFormat, open_log

__all__ = ["Log", "LogFormat", "open_log"]
