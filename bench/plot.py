"""Horizontal bars as SVG: enough to see a ratio, readable on a light and on a dark page."""
import html

BAR_PX, GAP_PX, NAME_PX, VALUE_PX, WIDTH_PX = 18, 8, 230, 110, 760
INK, OURS, OTHERS = "#808080", "#2f7fd0", "#9aa7b5"


def bars(path, title, rows, unit):
    """Write rows, [(name, value)], to path.  Names that begin with lighty are coloured."""
    most = max((value for _, value in rows), default=0) or 1
    height = 34 + len(rows) * (BAR_PX + GAP_PX)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height}"'
             f' font-family="sans-serif" font-size="13" fill="{INK}">',
             f'<text x="0" y="16" font-weight="bold">{html.escape(title)}</text>']
    for i, (name, value) in enumerate(rows):
        y = 30 + i * (BAR_PX + GAP_PX)
        width = (WIDTH_PX - NAME_PX - VALUE_PX) * value / most
        colour = OURS if name.startswith("lighty:") or name == "lighty" else OTHERS
        parts.append(f'<text x="{NAME_PX - 8}" y="{y + 14}" text-anchor="end">'
                     f'{html.escape(name)}</text>'
                     f'<rect x="{NAME_PX}" y="{y}" width="{width:.1f}" height="{BAR_PX}"'
                     f' fill="{colour}"/>'
                     f'<text x="{NAME_PX + width + 6:.1f}" y="{y + 14}">{value:.3g} {unit}</text>')
    with open(path, "w") as f:
        f.write("\n".join(parts + ["</svg>\n"]))
