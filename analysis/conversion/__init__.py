"""conversion: checkpoints rounded to a recipe or a format, written as safetensors, with a report.

    convert         a checkpoint, tensor by tensor, in bounded memory -> Converted
    Converted       its rows and its answer
    decode          a checkpoint of codes made one of values again
    tensor_seed     the seed by which a tensor draws
"""

from __future__ import annotations

from fpemu.analysis.conversion.decode import Decoded, decode
from fpemu.analysis.conversion.parts import tensor_seed
from fpemu.analysis.conversion.result import Converted
from fpemu.analysis.conversion.run import convert

__all__ = ["Converted", "Decoded", "convert", "decode", "tensor_seed"]
