"""Figures as Markdown."""

import statistics


def show(row, value):
    if value is None:
        return "–"
    if row == "peak memory":
        return f"{value:,.0f} MiB"
    return f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"


def markdown(head, rows):
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def medians(runs):
    """Rows of the processes of one variant to one median each."""
    names = dict.fromkeys(row for run in runs for row in run["rows"])
    return {row: statistics.median(run["rows"][row] for run in runs if row in run["rows"]) for row in names}


def in_order(figures):
    """Names of all rows, as the variant with the most stages has them."""
    return list(max(figures.values(), key=len))


def absolute(figures):
    """One column for each variant."""
    return markdown(["", *figures],
                    [[row, *(show(row, column.get(row)) for column in figures.values())] for row in in_order(figures)])


def ratios(figures, variants):
    """Tapline's figures by those of each peer in the same format; the last column of a format is the best of PyTorch."""
    head, columns = [""], []
    for dtype in ("f32", "bf16"):
        ours = figures.get(f"Tapline {dtype}")
        peers = [name for name in figures if variants[name].dtype == dtype and variants[name].program != "tapline"]
        pytorch = [name for name in peers if variants[name].program == "pytorch.py"]
        if not ours or not peers:
            continue
        for name in peers:
            head.append(f"{dtype} / {name}")
            columns.append({row: ours[row] / figures[name][row] for row in ours if row in figures[name]})
        if len(pytorch) > 1:
            head.append(f"{dtype} / best PyTorch")
            columns.append({row: ours[row] / min(figures[name][row] for name in pytorch)
                            for row in ours if all(row in figures[name] for name in pytorch)})
    rows = [row for row in in_order(figures) if any(row in column for column in columns)]
    return markdown(head, [[row, *(f"{column[row]:.2f}" if row in column else "–" for column in columns)]
                           for row in rows])
