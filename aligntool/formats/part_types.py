"""Partition types of GPT and MBR: names, roles, and what Linux sets for a role."""

from dataclasses import dataclass

# The Linux partition types that exist once an architecture: GUID in, name out.
#
# From the Discoverable Partitions Specification (uapi-group.org), which marks the root and /usr file systems
# of each architecture, their dm-verity hashes and the signatures of those. Alone because the table is long.

_KINDS = ("root", "/usr", "root verity", "/usr verity", "root verity signature", "/usr verity signature")

_BY_ARCHITECTURE = {
    "x86": (
        "44479540-F297-41B2-9AF7-D131D5F0458A",
        "75250D76-8CC6-458E-BD66-BD47CC81A812",
        "D13C5D3B-B5D1-422A-B29F-9454FDC89D76",
        "8F461B0D-14EE-4E81-9AA9-049B6FB97ABD",
        "5996FC05-109C-48DE-808B-23FA0830B676",
        "974A71C0-DE41-43C3-BE5D-5C5CCD1AD2C0",
    ),
    "x86-64": (
        "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709",
        "8484680C-9521-48C6-9C11-B0720656F69E",
        "2C7357ED-EBD2-46D9-AEC1-23D437EC2BF5",
        "77FF5F63-E7B6-4633-ACF4-1565B864C0E6",
        "41092B05-9FC8-4523-994F-2DEF0408B176",
        "E7BB33FB-06CF-4E81-8273-E543B413E2E2",
    ),
    "Alpha": (
        "6523F8AE-3EB1-4E2A-A05A-18B695AE656F",
        "E18CF08C-33EC-4C0D-8246-C6C6FB3DA024",
        "FC56D9E9-E6E5-4C06-BE32-E74407CE09A5",
        "8CCE0D25-C0D0-4A44-BD87-46331BF1DF67",
        "D46495B7-A053-414F-80F7-700C99921EF8",
        "5C6E1C76-076A-457A-A0FE-F3B4CD21CE6E",
    ),
    "ARC": (
        "D27F46ED-2919-4CB8-BD25-9531F3C16534",
        "7978A683-6316-4922-BBEE-38BFF5A2FECC",
        "24B2D975-0F97-4521-AFA1-CD531E421B8D",
        "FCA0598C-D880-4591-8C16-4EDA05C7347C",
        "143A70BA-CBD3-4F06-919F-6C05683A78BC",
        "94F9A9A1-9971-427A-A400-50CB297F0F35",
    ),
    "ARM": (
        "69DAD710-2CE4-4E3C-B16C-21A1D49ABED3",
        "7D0359A3-02B3-4F0A-865C-654403E70625",
        "7386CDF2-203C-47A9-A498-F2ECCE45A2D6",
        "C215D751-7BCD-4649-BE90-6627490A4C05",
        "42B0455F-EB11-491D-98D3-56145BA9D037",
        "D7FF812F-37D1-4902-A810-D76BA57B975A",
    ),
    "ARM-64": (
        "B921B045-1DF0-41C3-AF44-4C6F280D3FAE",
        "B0E01050-EE5F-4390-949A-9101B17104E9",
        "DF3300CE-D69F-4C92-978C-9BFB0F38D820",
        "6E11A4E7-FBCA-4DED-B9E9-E1A512BB664E",
        "6DB69DE6-29F4-4758-A7A5-962190F00CE3",
        "C23CE4FF-44BD-4B00-B2D4-B41B3419E02A",
    ),
    "IA-64": (
        "993D8D3D-F80E-4225-855A-9DAF8ED7EA97",
        "4301D2A6-4E3B-4B2A-BB94-9E0B2C4225EA",
        "86ED10D5-B607-45BB-8957-D350F23D0571",
        "6A491E03-3BE7-4545-8E38-83320E0EA880",
        "E98B36EE-32BA-4882-9B12-0CE14655F46A",
        "8DE58BC2-2A43-460D-B14E-A76E4A17B47F",
    ),
    "LoongArch-64": (
        "77055800-792C-4F94-B39A-98C91B762BB6",
        "E611C702-575C-4CBE-9A46-434FA0BF7E3F",
        "F3393B22-E9AF-4613-A948-9D3BFBD0C535",
        "F46B2C26-59AE-48F0-9106-C50ED47F673D",
        "5AFB67EB-ECC8-4F85-AE8E-AC1E7C50E7D0",
        "B024F315-D330-444C-8461-44BBDE524E99",
    ),
    "MIPS-32 LE": (
        "37C58C8A-D913-4156-A25F-48B1B64E07F0",
        "0F4868E9-9952-4706-979F-3ED3A473E947",
        "D7D150D2-2A04-4A33-8F12-16651205FF7B",
        "46B98D8D-B55C-4E8F-AAB3-37FCA7F80752",
        "C919CC1F-4456-4EFF-918C-F75E94525CA5",
        "3E23CA0B-A4BC-4B4E-8087-5AB6A26AA8A9",
    ),
    "MIPS-64 LE": (
        "700BDA43-7A34-4507-B179-EEB93D7A7CA3",
        "C97C1F32-BA06-40B4-9F22-236061B08AA8",
        "16B417F8-3E06-4F57-8DD2-9B5232F41AA6",
        "3C3D61FE-B5F3-414D-BB71-8739A694A4EF",
        "904E58EF-5C65-4A31-9C57-6AF5FC7C5DE7",
        "F2C2C7EE-ADCC-4351-B5C6-EE9816B66E16",
    ),
    "HPPA/PARISC": (
        "1AACDB3B-5444-4138-BD9E-E5C2239B2346",
        "DC4A4480-6917-4262-A4EC-DB9384949F25",
        "D212A430-FBC5-49F9-A983-A7FEEF2B8D0E",
        "5843D618-EC37-48D7-9F12-CEA8E08768B2",
        "15DE6170-65D3-431C-916E-B0DCD8393F25",
        "450DD7D1-3224-45EC-9CF2-A43A346D71EE",
    ),
    "PPC": (
        "1DE3F1EF-FA98-47B5-8DCD-4A860A654D78",
        "7D14FEC5-CC71-415D-9D6C-06BF0B3C3EAF",
        "98CFE649-1588-46DC-B2F0-ADD147424925",
        "DF765D00-270E-49E5-BC75-F47BB2118B09",
        "1B31B5AA-ADD9-463A-B2ED-BD467FC857E7",
        "7007891D-D371-4A80-86A4-5CB875B9302E",
    ),
    "PPC64": (
        "912ADE1D-A839-4913-8964-A10EEE08FBD2",
        "2C9739E2-F068-46B3-9FD0-01C5A9AFBCCA",
        "9225A9A3-3C19-4D89-B4F6-EEFF88F17631",
        "BDB528A5-A259-475F-A87D-DA53FA736A07",
        "F5E2C20C-45B2-4FFA-BCE9-2A60737E1AAF",
        "0B888863-D7F8-4D9E-9766-239FCE4D58AF",
    ),
    "PPC64LE": (
        "C31C45E6-3F39-412E-80FB-4809C4980599",
        "15BB03AF-77E7-4D4A-B12B-C0D084F7491C",
        "906BD944-4589-4AAE-A4E4-DD983917446A",
        "EE2B9983-21E8-4153-86D9-B6901A54D1CE",
        "D4A236E7-E873-4C07-BF1D-BF6CF7F1C3C6",
        "C8BFBD1E-268E-4521-8BBA-BF314C399557",
    ),
    "RISC-V-32": (
        "60D5A7FE-8E7D-435C-B714-3DD8162144E1",
        "B933FB22-5C3F-4F91-AF90-E2BB0FA50702",
        "AE0253BE-1167-4007-AC68-43926C14C5DE",
        "CB1EE4E3-8CD0-4136-A0A4-AA61A32E8730",
        "3A112A75-8729-4380-B4CF-764D79934448",
        "C3836A13-3137-45BA-B583-B16C50FE5EB4",
    ),
    "RISC-V-64": (
        "72EC70A6-CF74-40E6-BD49-4BDA08E8F224",
        "BEAEC34B-8442-439B-A40B-984381ED097D",
        "B6ED5582-440B-4209-B8DA-5FF7C419EA3D",
        "8F1056BE-9B05-47C4-81D6-BE53128E5B54",
        "EFE0F087-EA8D-4469-821A-4C2A96A8386A",
        "D2F9000A-7A18-453F-B5CD-4D32F77A7B32",
    ),
    "S390": (
        "08A7ACEA-624C-4A20-91E8-6E0FA67D23F9",
        "CD0F869B-D0FB-4CA0-B141-9EA87CC78D66",
        "7AC63B47-B25C-463B-8DF8-B4A94E6C90E1",
        "B663C618-E7BC-4D6D-90AA-11B756BB1797",
        "3482388E-4254-435A-A241-766A065F9960",
        "17440E4F-A8D0-467F-A46E-3912AE6EF2C5",
    ),
    "S390X": (
        "5EEAD9A9-FE09-4A1E-A1D7-520D00531306",
        "8A4F5770-50AA-4ED3-874A-99B710DB6FEA",
        "B325BFBE-C7BE-4AB8-8357-139E652D2F6B",
        "31741CC4-1A2A-4111-A581-E00B447D2D06",
        "C80187A5-73A3-491A-901A-017C3FA953E9",
        "3F324816-667B-46AE-86EE-9B0C0C6C11B4",
    ),
    "TILE-Gx": (
        "C50CDD70-3862-4CC3-90E1-809A8C93EE2C",
        "55497029-C7C1-44CC-AA39-815ED1558630",
        "966061EC-28E4-4B2E-B4A5-1F0A825A1D84",
        "2FB4BF56-07FA-42DA-8132-6B139F2026AE",
        "B3671439-97B0-4A53-90F7-2D5A8F3AD47B",
        "4EDE75E2-6CCC-4CC8-B9C7-70334B087510",
    ),
}

LINUX_TYPES = {
    guid: f"Linux {kind} ({architecture})"
    for architecture, guids in _BY_ARCHITECTURE.items()
    for kind, guid in zip(_KINDS, guids, strict=True)
}


# Names of GPT partition types: a GUID in upper case in, a short English name out.
#
# The GUIDs come from the UEFI specification (section 5.3.3), Microsoft's PARTITION_INFORMATION_GPT, the UAPI
# group's Discoverable Partitions Specification (whose one-per-architecture types stand in `linux_types`),
# Apple's TN2166 and the sources of the systems named. Alone because it is a list, and nothing but a list.

BASIC_DATA = "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"
LDM_TYPES = frozenset({"5808C8AA-7E8F-42E0-85D2-E1E90434CFB3", "AF9B60A0-1431-4F62-BC68-3311714A69AD"})

_GPT_NAMES = {
    "7C3457EF-0000-11AA-AA11-00306543ECAC": "Apple APFS",
    "426F6F74-0000-11AA-AA11-00306543ECAC": "Apple boot",
    "53746F72-6167-11AA-AA11-00306543ECAC": "Apple Core Storage",
    "48465300-0000-11AA-AA11-00306543ECAC": "Apple HFS/HFS+",
    "4C616265-6C00-11AA-AA11-00306543ECAC": "Apple label",
    "52414944-0000-11AA-AA11-00306543ECAC": "Apple RAID",
    "52414944-5F4F-11AA-AA11-00306543ECAC": "Apple RAID offline",
    "69646961-6700-11AA-AA11-00306543ECAC": "Apple Silicon boot",
    "52637672-7900-11AA-AA11-00306543ECAC": "Apple Silicon recovery",
    "5265636F-7665-11AA-AA11-00306543ECAC": "Apple TV recovery",
    "55465300-0000-11AA-AA11-00306543ECAC": "Apple UFS",
    "90B6FF38-B98F-4358-A21F-48F35B4A8AD3": "ArcaOS type 1",
    "734E5AFE-F61A-11E6-BC64-92361F002671": "Atari TOS basic data",
    "35540011-B055-499F-842D-C69AECA357B7": "Atari TOS raw data (XHDI)",
    "21686148-6449-6E6F-744E-656564454649": "BIOS boot",
    "CAFECAFE-9B03-4F30-B4C6-B4B80CEFF106": "Ceph block",
    "30CD0809-C2B2-499C-8879-2D6B78529876": "Ceph block DB",
    "5CE17FCE-4087-4169-B7FF-056CC58473F9": "Ceph block write-ahead log",
    "89C57F98-2FE5-4DC0-89C1-5EC00CEFF2BE": "Ceph crypt disk in creation",
    "4FBD7E29-9D25-41B8-AFD0-5EC00CEFF05D": "Ceph crypt OSD",
    "89C57F98-2FE5-4DC0-89C1-F3AD0CEFF2BE": "Ceph disk in creation",
    "45B0969E-9B03-4F30-B4C6-5EC00CEFF106": "Ceph Encrypted Journal",
    "45B0969E-9B03-4F30-B4C6-B4B80CEFF106": "Ceph Journal",
    "FB3AABF9-D25F-47CC-BF5E-721D1816496B": "Ceph lockbox for dm-crypt keys",
    "4FBD7E29-9D25-41B8-AFD0-062C0CEFF05D": "Ceph OSD",
    "CAB6E88E-ABF3-4102-A07A-D4BB9BE3C1D3": "ChromeOS firmware",
    "3F0F8318-F146-4E6B-8222-C28C8F02E0D5": "ChromeOS hibernate",
    "FE3A2A5D-4F32-41A7-B725-ACCC3285A309": "ChromeOS kernel",
    "09845860-705F-4BB5-B16C-8A8A099CAF52": "ChromeOS miniOS",
    "2E0A753D-9E48-43B0-8337-B15192CB1B5E": "ChromeOS reserved",
    "3CB8E202-3B7E-47DD-8A3C-7FF2A13CFCEC": "ChromeOS root fs",
    "DBD5211B-1CA5-11DC-8817-01301BB8A9F5": "DragonFlyBSD CCD",
    "61DC63AC-6E38-11DC-8513-01301BB8A9F5": "DragonFlyBSD HAMMER",
    "5CBB9AD1-862D-11DC-A94D-01301BB8A9F5": "DragonFlyBSD HAMMER2",
    "9D087404-1CA5-11DC-8817-01301BB8A9F5": "DragonFlyBSD Label32",
    "3D48CE54-1D16-11DC-8696-01301BB8A9F5": "DragonFlyBSD Label64",
    "BD215AB2-1D16-11DC-8696-01301BB8A9F5": "DragonFlyBSD Legacy",
    "9D58FDBD-1CA5-11DC-8817-01301BB8A9F5": "DragonFlyBSD Swap",
    "9D94CE7C-1CA5-11DC-8817-01301BB8A9F5": "DragonFlyBSD UFS1",
    "9DD4478F-1CA5-11DC-8817-01301BB8A9F5": "DragonFlyBSD Vinum",
    "C12A7328-F81F-11D2-BA4B-00A0C93EC93B": "EFI System",
    "83BD6B9D-7F41-11DC-BE0B-001560B84F0F": "FreeBSD boot",
    "516E7CB4-6ECF-11D6-8FF8-00022D09712B": "FreeBSD data",
    "74BA7DD9-A689-11E1-BD04-00E081286ACF": "FreeBSD NANDFS",
    "516E7CB5-6ECF-11D6-8FF8-00022D09712B": "FreeBSD swap",
    "516E7CB6-6ECF-11D6-8FF8-00022D09712B": "FreeBSD UFS",
    "516E7CB8-6ECF-11D6-8FF8-00022D09712B": "FreeBSD Vinum",
    "516E7CBA-6ECF-11D6-8FF8-00022D09712B": "FreeBSD ZFS",
    "42465331-3BA3-10F1-802A-4861696B7521": "Haiku BFS",
    "2E54B353-1271-4842-806F-E436D6AF6985": "HiFive BBL",
    "5B193300-FC78-40CD-8002-E86C45580B47": "HiFive FSBL",
    "75894C1E-3AEB-11D3-B7C1-7B03A0000000": "HP-UX data",
    "E2A1E728-32E3-11D6-A682-7B03A0000000": "HP-UX service",
    "37AFFC90-EF7D-4E96-91C3-2D7AE055B174": "IBM GPFS",
    "D3BFE2DE-3DAF-11DF-BA40-E3A556D89593": "Intel Fast Flash",
    "BFBFAFE7-A34F-448A-9A5B-6213EB736C22": "Lenovo boot partition",
    "BC13C2FF-59E6-4262-A352-B275FD6F7172": "Linux extended boot (XBOOTLDR)",
    "0FC63DAF-8483-4772-8E79-3D69D8477DE4": "Linux filesystem",
    "933AC7E1-2EB4-4F13-B844-0E14E2AEF915": "Linux home",
    "CA7D7CCB-63ED-4C53-861C-1742536059CC": "Linux LUKS",
    "E6D6D379-F507-44C2-A23C-238F2A3DF928": "Linux LVM",
    "7FFEC5C9-2D00-49B7-8941-3EA10A5586B7": "Linux plain dm-crypt",
    "A19D880F-05FC-4D3B-A006-743F0F84911E": "Linux RAID",
    "8DA63339-0007-60C0-C436-083AC8230908": "Linux reserved",
    "3B8F8425-20E0-4F3B-907F-1A25A76F98E8": "Linux server data",
    "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F": "Linux swap",
    "7EC6F557-3BC5-4ACA-B293-16EF5DF639D1": "Linux temporary data",
    "773F91EF-66D4-49B5-BD83-D683BF40AD16": "Linux user's home",
    "4D21B016-B534-45C2-A9FB-5C16E091FD2D": "Linux variable data",
    "6828311A-BA55-42A4-BCDE-A89BB5EDECAE": "Marvell Armada 3700 Boot partition",
    "024DEE41-33E7-11D3-9D69-0008C781F39F": "MBR partition scheme",
    "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7": "Microsoft basic data",
    "DB97DBA9-0840-4BAE-97F0-FFB9A327C7E1": "Microsoft cluster metadata",
    "E3C9E316-0B5C-4DB8-817D-F92DF00215AE": "Microsoft reserved",
    "558D43C5-A1AC-43C0-AAC8-D1472B2923D1": "Microsoft Storage Replica",
    "E75CAF8F-F680-4CEE-AFA3-B001E56EFC2D": "Microsoft Storage Spaces",
    "85D5E45E-237C-11E1-B4B3-E89A8F7FC3A7": "MidnightBSD boot",
    "85D5E45A-237C-11E1-B4B3-E89A8F7FC3A7": "MidnightBSD data",
    "85D5E45B-237C-11E1-B4B3-E89A8F7FC3A7": "MidnightBSD swap",
    "0394EF8B-237E-11E1-B4B3-E89A8F7FC3A7": "MidnightBSD UFS",
    "85D5E45C-237C-11E1-B4B3-E89A8F7FC3A7": "MidnightBSD Vinum",
    "85D5E45D-237C-11E1-B4B3-E89A8F7FC3A7": "MidnightBSD ZFS",
    "481B2A38-0561-420B-B72A-F1C4988EFC16": "Minix filesystem",
    "2DB519C4-B10F-11DC-B99B-0019D1879648": "NetBSD concatenated",
    "2DB519EC-B10F-11DC-B99B-0019D1879648": "NetBSD encrypted",
    "49F48D5A-B10E-11DC-B99B-0019D1879648": "NetBSD FFS",
    "49F48D82-B10E-11DC-B99B-0019D1879648": "NetBSD LFS",
    "49F48DAA-B10E-11DC-B99B-0019D1879648": "NetBSD RAID",
    "49F48D32-B10E-11DC-B99B-0019D1879648": "NetBSD swap",
    "11CA7E00-0000-0000-0000-656D754D4D43": "NX emuMMC",
    "7412F7D5-A156-4B13-81DC-867174929325": "ONIE boot",
    "D4E6E2CD-4469-46F3-B5CB-1BFF57AFC149": "ONIE config",
    "824CC7A0-36A8-11E3-890A-952519AD3F61": "OpenBSD data",
    "C91818F9-8025-47AF-89D2-F030D7000C2C": "Plan 9 partition",
    "9E1A2D38-C612-4316-AA26-8B49521E5A8B": "PowerPC PReP boot",
    "CEF5A9AD-73BC-4601-89F3-CDEEEEE321A1": "QNX6 file system",
    "6A90BA39-1DD2-11B2-99A6-080020736631": "Solaris /home",
    "6A898CC3-1DD2-11B2-99A6-080020736631": "Solaris /usr or ZFS pool member",
    "6A8EF2E9-1DD2-11B2-99A6-080020736631": "Solaris /var",
    "6A9283A5-1DD2-11B2-99A6-080020736631": "Solaris alternate sector",
    "6A8B642B-1DD2-11B2-99A6-080020736631": "Solaris backup",
    "6A82CB45-1DD2-11B2-99A6-080020736631": "Solaris boot",
    "6A945A3B-1DD2-11B2-99A6-080020736631": "Solaris reserved 1",
    "6A9630D1-1DD2-11B2-99A6-080020736631": "Solaris reserved 2",
    "6A980767-1DD2-11B2-99A6-080020736631": "Solaris reserved 3",
    "6A96237F-1DD2-11B2-99A6-080020736631": "Solaris reserved 4",
    "6A8D2AC7-1DD2-11B2-99A6-080020736631": "Solaris reserved 5",
    "6A85CF4D-1DD2-11B2-99A6-080020736631": "Solaris root",
    "6A87C46F-1DD2-11B2-99A6-080020736631": "Solaris swap",
    "F4019732-066E-4E12-8273-346C5641494F": "Sony boot partition",
    "3DE21764-95BD-54BD-A5C3-4ABE786F38A8": "U-Boot environment",
    "9D275380-40AD-11DB-BF97-000C2911D1B8": "VMware Diagnostic",
    "9198EFFC-31C0-11DB-8F78-000C2911D1B8": "VMware Reserved",
    "77719A0C-A4A0-11E3-A47E-000C29745A24": "VMware Virsto",
    "381CFCCC-7288-11E0-92EE-000C2911D0B2": "VMware Virtual SAN",
    "AA31E02A-400F-11DB-9590-000C2911D1B8": "VMware VMFS",
    "AF9B60A0-1431-4F62-BC68-3311714A69AD": "Windows LDM data",
    "5808C8AA-7E8F-42E0-85D2-E1E90434CFB3": "Windows LDM metadata",
    "DE94BBA4-06D1-4D40-A16A-BFD50179D6AC": "Windows recovery environment",
}


def gpt_type_name(guid: str) -> str:
    """The name, or "" for a type nobody listed."""
    return _GPT_NAMES.get(guid) or LINUX_TYPES.get(guid, "")


# Names of MBR partition types: the type byte in, a short English name out.
#
# After Andries Brouwer's list of partition identifiers and the Linux kernel's
# include/linux/msdos_partition.h. Alone because it is a list.

EXTENDED_TYPES = frozenset({0x05, 0x0F, 0x85})
GPT_PROTECTIVE = 0xEE
LDM = 0x42

_MBR_NAMES = {
    0x00: "Empty",
    0x01: "FAT12",
    0x02: "XENIX root",
    0x03: "XENIX usr",
    0x04: "FAT16 under 32 MB",
    0x05: "Extended",
    0x06: "FAT16",
    0x07: "NTFS, exFAT or HPFS",
    0x08: "AIX",
    0x09: "AIX bootable",
    0x0A: "OS/2 Boot Manager",
    0x0B: "FAT32",
    0x0C: "FAT32 (LBA)",
    0x0E: "FAT16 (LBA)",
    0x0F: "Extended (LBA)",
    0x10: "OPUS",
    0x11: "Hidden FAT12",
    0x12: "Compaq diagnostics",
    0x14: "Hidden FAT16 under 32 MB",
    0x16: "Hidden FAT16",
    0x17: "Hidden NTFS or HPFS",
    0x18: "AST SmartSleep",
    0x1B: "Hidden FAT32",
    0x1C: "Hidden FAT32 (LBA)",
    0x1E: "Hidden FAT16 (LBA)",
    0x24: "NEC DOS",
    0x27: "Windows recovery (hidden NTFS)",
    0x39: "Plan 9",
    0x3C: "PartitionMagic recovery",
    0x40: "Venix 80286",
    0x41: "PowerPC PReP boot",
    0x42: "Windows dynamic disk (LDM)",
    0x4D: "QNX4.x",
    0x4E: "QNX4.x 2nd part",
    0x4F: "QNX4.x 3rd part",
    0x50: "OnTrack DM",
    0x51: "OnTrack DM6 Aux1",
    0x52: "CP/M",
    0x53: "OnTrack DM6 Aux3",
    0x54: "OnTrackDM6",
    0x55: "EZ-Drive",
    0x56: "Golden Bow",
    0x5C: "Priam Edisk",
    0x61: "SpeedStor",
    0x63: "GNU Hurd or System V",
    0x64: "Novell Netware 286",
    0x65: "Novell Netware 386",
    0x70: "DiskSecure Multi-Boot",
    0x75: "PC/IX",
    0x80: "Old Minix",
    0x81: "Minix",
    0x82: "Linux swap",
    0x83: "Linux",
    0x84: "OS/2 hidden or hibernation",
    0x85: "Linux extended",
    0x86: "NTFS volume set",
    0x87: "NTFS volume set",
    0x88: "Linux plaintext",
    0x8E: "Linux LVM",
    0x93: "Amoeba",
    0x94: "Amoeba BBT",
    0x9F: "BSD/OS",
    0xA0: "IBM ThinkPad hibernation",
    0xA5: "FreeBSD",
    0xA6: "OpenBSD",
    0xA7: "NeXTSTEP",
    0xA8: "Darwin UFS",
    0xA9: "NetBSD",
    0xAB: "Darwin boot",
    0xAF: "HFS / HFS+",
    0xB7: "BSDI fs",
    0xB8: "BSDI swap",
    0xBB: "Boot Wizard hidden",
    0xBC: "Acronis FAT32 LBA",
    0xBE: "Solaris boot",
    0xBF: "Solaris",
    0xC1: "DR DOS secured FAT12",
    0xC4: "DR DOS secured FAT16 under 32 MB",
    0xC6: "DR DOS secured FAT16",
    0xC7: "Syrinx",
    0xDA: "Non-file-system data",
    0xDB: "CP/M or CTOS",
    0xDE: "Dell Utility",
    0xDF: "BootIt",
    0xE0: "NX emuMMC",
    0xE1: "DOS access",
    0xE3: "DOS R/O",
    0xE4: "SpeedStor",
    0xEA: "Linux extended boot (XBOOTLDR)",
    0xEB: "BeOS or Haiku",
    0xEE: "GPT protective",
    0xEF: "EFI System",
    0xF0: "Linux/PA-RISC boot",
    0xF1: "SpeedStor",
    0xF2: "DOS secondary",
    0xF4: "SpeedStor",
    0xF8: "EBBR protective",
    0xFB: "VMware VMFS",
    0xFC: "VMware VMKCORE",
    0xFD: "Linux RAID autodetect",
    0xFE: "LANstep",
    0xFF: "Xenix bad block table",
}


def mbr_type_name(code: int) -> str:
    """The name, or "" for a type nobody listed."""
    return _MBR_NAMES.get(code, "")


# What a new partition is for: a word of the user's, and the type codes that tell it to firmware and systems.
#
# In: a word, such as "esp". Out: its GPT type, its MBR type, and its title. Alone because it is a list. The
# GUIDs come from the UEFI specification (5.3.3), the UAPI group's Discoverable Partitions Specification, the
# GRUB manual ("BIOS installation") and Microsoft's PARTITION_INFORMATION_GPT; the bytes from Andries
# Brouwer's list, 0xEA from the UAPI group's Boot Loader Specification.

_LINUX = "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
_BASIC_DATA = "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7"


@dataclass(frozen=True, slots=True)
class PartRole:
    word: str
    title: str
    gpt: str  # type GUID in upper case
    mbr: str | None  # type byte, "0x83"; None: an MBR has no type for it
    active: bool = False  # marked active in an MBR


ROLES = {
    role.word: role
    for role in (
        PartRole("esp", "EFI System", "C12A7328-F81F-11D2-BA4B-00A0C93EC93B", "0xef"),
        PartRole("xbootldr", "Linux extended boot", "BC13C2FF-59E6-4262-A352-B275FD6F7172", "0xea"),
        PartRole("bios-boot", "BIOS boot", "21686148-6449-6E6F-744E-656564454649", None),
        # Some BIOSes start no disk whose MBR has no active entry, whatever the boot loader thinks of it.
        PartRole("boot", "Linux /boot", _LINUX, "0x83", active=True),
        PartRole("linux", "Linux file system", _LINUX, "0x83"),
        PartRole("root-x86-64", "Linux root (x86-64)", "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709", "0x83"),
        PartRole("root-arm64", "Linux root (ARM-64)", "B921B045-1DF0-41C3-AF44-4C6F280D3FAE", "0x83"),
        PartRole("home", "Linux home", "933AC7E1-2EB4-4F13-B844-0E14E2AEF915", "0x83"),
        PartRole("srv", "Linux server data", "3B8F8425-20E0-4F3B-907F-1A25A76F98E8", "0x83"),
        PartRole("swap", "Linux swap", "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F", "0x82"),
        PartRole("linux-raid", "Linux RAID", "A19D880F-05FC-4D3B-A006-743F0F84911E", "0xfd"),
        PartRole("lvm", "Linux LVM", "E6D6D379-F507-44C2-A23C-238F2A3DF928", "0x8e"),
        # Installers give an encrypted file system the type of a plain one, and cryptsetup looks at no type.
        PartRole("luks", "Linux, encrypted", _LINUX, "0x83"),
        PartRole("fat", "FAT", _BASIC_DATA, "0x0c"),
        PartRole("windows", "Windows data", _BASIC_DATA, "0x07"),
        PartRole("msr", "Microsoft reserved", "E3C9E316-0B5C-4DB8-817D-F92DF00215AE", None),
    )
}


def role_list() -> str:
    """For a hint."""
    return f"roles: {', '.join(ROLES)}"
