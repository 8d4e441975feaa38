"""Find the shadow copies of Windows on an NTFS volume.

A shadow copy is made of the clusters that were in use when it was made: those that were overwritten since are in a file
of the volume, and all others where they were, also if NTFS calls them free by now.
Layout: libvshadow, documentation, "Volume Shadow Snapshot (VSS) format".
"""

from aligntool.contents import ntfs
from aligntool.formats.reader import Area

HEADER = 0x1E00  # bytes from the start of the volume, in the file $Boot
_IDENTIFIER = bytes.fromhex("6b870838 76c1484e b7ae0404 6e6cc752")  # a GUID as it is stored
_NAME = "{3808876B-C176-4E48-B7AE-04046E6CC752}"  # the same; of the catalog, or after the GUID of a shadow copy
_FOLDER = "SYSTEM VOLUME INFORMATION"


def shadow_copies(area: Area) -> str:
    """Return a clause that states that the volume has shadow copies or may have some, or "". Raises OSError.

    The header is also there if the copies are kept on another volume, which has the files then.
    """
    if area.read(HEADER, len(_IDENTIFIER)) == _IDENTIFIER:
        return "has shadow copies (header of the volume)"
    try:
        files = ntfs.open_ntfs(area)
        folder = ntfs.find_reference(files, ntfs.ROOT, _FOLDER)
        names = ntfs.names_in(files, folder & ntfs.NUMBER) if folder is not None else ()
        found = any(_NAME in name.upper() for name in names)
    except ntfs.CannotFollow:
        return "may have shadow copies: its folder System Volume Information cannot be followed"
    return "has shadow copies (files in System Volume Information)" if found else ""
