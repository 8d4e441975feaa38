"""What a snapshot keeps of the system's files: of each kind of line a list of what may stay.

In: the text of mdadm.conf, fstab, os-release and the like. Out: the same with placeholders, everything else left out.
Alone because these files are written by hand: comments, addresses and commands in them are nobody's business.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aligntool.inventory import LATE_START_ENABLED
from aligntool.probe.config_files import is_about_arrays, parse_fstab, parse_mdadm_conf

if TYPE_CHECKING:
    from aligntool.inventory import ArrayLine, MdadmConf
    from aligntool.probe.placeholders import Masks

HOSTNAME = "/proc/sys/kernel/hostname"
SYSTEM_FILES = ("/etc/", "/usr/lib/os-release", "/aligntool/initramfs/", "/proc/cmdline", HOSTNAME)
_KEPT_OPTIONS = frozenset(
    [
        "defaults",
        "nofail",
        "noauto",
        "auto",
        "ro",
        "rw",
        "noatime",
        "relatime",
        "nodiratime",
        "discard",
        "nodiscard",
        "sw",
        "nouuid",
        "_netdev",
    ]
)
_KEPT_STARTS = ("x-systemd.device-timeout=", "pri=", "logbufs=", "logbsize=", "sunit=", "swidth=", "stripe=")
_SPECS = ("UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "ID=")


def mask_system_file(masks: "Masks", path: str, text: str) -> str:
    if path == HOSTNAME:
        return masks.name(text.strip()) + "\n"
    if path == "/proc/cmdline":
        words = [word for word in text.split() if is_about_arrays(word)]
        return " ".join(_word(masks, word) for word in words) + "\n"
    if path.endswith("os-release"):
        kept = [line for line in text.splitlines() if line.startswith(("ID=", "ID_LIKE="))]
        return "".join(f"{line}\n" for line in kept)
    if path == LATE_START_ENABLED:
        return ""  # that it is there is enough
    if path == "/etc/fstab":
        return "".join(_fstab(masks, text))
    if path.startswith("/aligntool/"):
        head, inside, conf = text.partition("conf:\n")
        head = "".join(f"{_fact(masks, line)}\n" for line in head.splitlines())
        return head + inside + "".join(_conf(masks, parse_mdadm_conf(conf, path)))
    return "".join(_conf(masks, parse_mdadm_conf(text, path)))


def _conf(masks: "Masks", conf: "MdadmConf") -> Iterator[str]:
    if conf.homehost:
        special = conf.homehost.startswith("<") or conf.homehost == "any"
        yield f"HOMEHOST {conf.homehost if special else masks.name(conf.homehost)}\n"
    for line in conf.arrays:
        yield " ".join(_array(masks, line)) + "\n"


def _array(masks: "Masks", line: "ArrayLine") -> Iterator[str]:
    yield "ARRAY"
    if line.device:
        yield _device(masks, line.device)
    if line.uuid:
        yield f"UUID={masks.value(line.uuid)}"
    if line.name:
        yield f"name={masks.array_name(line.name)}"
    yield from (f"{word}=masked" for word in line.pinned)


def _fstab(masks: "Masks", text: str) -> Iterator[str]:
    for line in parse_fstab(text):
        spec = _spec(masks, line.spec)
        if spec:
            kept = [word for word in line.options if word in _KEPT_OPTIONS or word.startswith(_KEPT_STARTS)]
            place = line.place if line.place in ("none", "swap") else masks.place(line.place)
            yield f"{spec} {place} {line.kind} {','.join(kept) or 'defaults'} 0 0\n"


def _word(masks: "Masks", word: str) -> str:
    key, _, value = word.partition("=")
    if key == "rd.md.uuid":
        return f"{key}={masks.value(value)}"
    if key in ("root", "resume"):
        return f"{key}={_spec(masks, value) or 'masked'}"
    return word if key.startswith("rd.") else f"{key}=masked"


def _fact(masks: "Masks", line: str) -> str:
    key, _, value = line.partition("=")
    return f"{key}={masks.value(value)}" if key == "asked" else masks.anywhere(line)


def _spec(masks: "Masks", spec: str) -> str:
    """Of a device; "" for a network share, a pseudo file system, a file."""
    key = next((key for key in _SPECS if spec.startswith(key)), None)
    if key is not None:
        return key + masks.value(spec.removeprefix(key))
    return _device(masks, spec) if spec.startswith("/dev/") else ""


def _device(masks: "Masks", device: str) -> str:
    if device.startswith("/dev/md/"):
        return "/dev/md/" + masks.array_name(device.removeprefix("/dev/md/"))
    if device.startswith("/dev/mapper/"):
        return "/dev/mapper/" + masks.name(device.removeprefix("/dev/mapper/"))
    if device.startswith("<") or (device.startswith("/dev/") and device.count("/") == 2):
        return device
    return masks.place(device) if device.startswith("/") else masks.array_name(device)
