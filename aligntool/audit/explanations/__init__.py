"""What each finding code means, by code. Imported only by who tells it: an audit itself needs no prose."""

from aligntool.audit.explanations.array import ARRAY
from aligntool.audit.explanations.device import DEVICE
from aligntool.audit.explanations.drive import DRIVE
from aligntool.audit.explanations.explanation import Explanation
from aligntool.audit.explanations.layer import LAYER
from aligntool.audit.explanations.start import START
from aligntool.audit.explanations.table import TABLE

EXPLANATIONS = START | DEVICE | TABLE | LAYER | DRIVE | ARRAY

__all__ = ["EXPLANATIONS", "Explanation"]
