"""Writes a text file as a C array, so that the program has it inside.

embed_text.py FILE NAME OUTPUT      NAME[] and NAME_len
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    source, name, output = argv
    data = Path(source).read_bytes()
    lines = [", ".join(str(byte) for byte in data[at : at + 20]) for at in range(0, len(data), 20)]
    text = ",\n    ".join([*lines, "0"])
    Path(output).write_text(
        f"extern const unsigned char {name}[];\n"
        f"extern const unsigned long {name}_len;\n"
        f"const unsigned char {name}[] = {{\n    {text}}};\n"
        f"const unsigned long {name}_len = {len(data)};\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
