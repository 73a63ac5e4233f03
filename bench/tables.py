"""Tables of docs/experiments.md, and the judgement of a figure."""
import rig


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    cells = [["-" if word == "nan" else str(word) for word in row] for row in rows]
    return lines + ["| " + " | ".join(row) + " |" for row in cells] + [""]


def required(rows):
    """Rows of (what, limit as text, measured or None, met)."""
    return table(["required", "limit", "measured", ""],
                 [[what, limit, "-" if value is None else f"{value:.2f}",
                   "" if value is None else "met" if met else "**missed**"]
                  for what, limit, value, met in rows])


def at_most(what, value, limit):
    return what, f"<= {limit:g}", value, value is not None and value <= limit


def at_least(what, value, limit):
    return what, f">= {limit:g}", value, value is not None and value >= limit


def quotient(a, b):
    return None if a is None or not b else a / b


def spread(values):
    return f"{rig.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"
