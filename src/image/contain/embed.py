"""embed.py PROGRAM HEADER: a file's bytes as a C array, so that `stoker` carries its runner inside."""

import sys

data = open(sys.argv[1], "rb").read()
lines = [", ".join(map(str, data[i : i + 24])) for i in range(0, len(data), 24)]
body = ",\n    ".join(lines)
with open(sys.argv[2], "w") as out:
    out.write(f"static const unsigned char runner_bytes[{len(data)}] = {{\n    {body}}};\n")
