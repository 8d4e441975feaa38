"""A process that applies, resumes or rolls back a plan of `realign --layers` on an image.

Its arguments are begin, resume or back, the image, the folder of the record, and the key file. The content is not
checked: that needs the device mapper, which tests/lab has.
"""

import sys
from pathlib import Path

from aligntool.change import Progress
from aligntool.cli.layers import Layers
from aligntool.errors import Refused
from aligntool.raid.apply import apply_record, begin, undo_record
from aligntool.raid.current_names import with_current_names
from aligntool.raid.record import find_records, lock_state
from aligntool.raid.steps_luks import Key, refuse_unfit
from aligntool.raid.steps_system import Paths
from aligntool.realign.request import Request


def main(word: str, image: str, state: str, key_file: str) -> None:
    paths, key = Paths(state=Path(state)), Key(Path(key_file).read_bytes(), lambda *_: ())
    with lock_state(paths.state):
        if word == "begin":
            record = begin(Layers(image, Request()).make_plan(), paths)
        else:
            (record,) = find_records(paths.state)
        plan = with_current_names(record.plan, ())
        if word == "begin":
            refuse_unfit(plan, key)
        back = word == "back"
        for event in undo_record(record, plan, paths) if back else apply_record(record, plan, paths, key=key):
            name = f"{type(event).__name__} {event.done}" if isinstance(event, Progress) else type(event).__name__
            print(name, flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as error:
        print(error, file=sys.stderr)
        sys.exit(int(error.exit_code))
