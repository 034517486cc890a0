#!/usr/bin/env python3
"""Draws a flame graph of `perf script` as an SVG: the width of a box is its share of the samples.

    perf record -F 999 -g --call-graph dwarf -p PID -- sleep 10
    perf script | tests/bench/flame_graph.py "title" > profile.svg

Boxes below 0.2 % are left out. A browser shows the full name and the share of a box under the pointer.
"""
import html
import re
import sys

WIDTH, ROW, LEAST = 1200, 17, 0.002


class Frame:
    def __init__(self):
        self.samples, self.calls = 0, {}


def plain(name):
    """Without the arguments of templates and functions, which are longer than any box."""
    name = re.sub(r"\+0x[0-9a-f]+$", "", name)
    for _ in range(8):
        name = re.sub(r"<[^<>]*>", "", name)
        name = re.sub(r"\([^()]*\)", "", name)
    return name.replace(" const", "").strip() or "?"


def read(lines):
    root, stack = Frame(), []

    def end():
        at = root
        at.samples += 1 if stack else 0
        for name in reversed(stack):
            at = at.calls.setdefault(name, Frame())
            at.samples += 1
        stack.clear()

    for line in lines:
        if not line.strip():
            end()
        elif line[0].isspace():
            call = re.match(r"\s+[0-9a-f]+ (.*) \((.*)\)$", line.rstrip())
            if call:
                name = plain(call[1])
                stack.append(name if name != "[unknown]" else f"[{call[2].rsplit('/', 1)[-1]}]")
    end()
    return root


def colour(name):
    """Warm for the framework, cool for the libraries, grey for the kernel and unknown code."""
    if name.startswith(("turnstile::", "bench::")):
        return "#f2a65a"
    if name.startswith(("rd_", "PQ", "pq")):
        return "#8fb8de"
    return "#d5d5d5" if name.startswith("[") else "#e8d8a0"


def boxes(frame, total, x, depth, out):
    for name, call in sorted(frame.calls.items()):
        width = WIDTH * call.samples / total
        if call.samples / total >= LEAST:
            out.append((x, depth, width, name, call.samples / total))
            boxes(call, total, x, depth + 1, out)
        x += width


def draw(title, root, to):
    out = []
    boxes(root, root.samples, 0.0, 0, out)
    height = (max(depth for _, depth, *_ in out) + 3) * ROW
    to.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">\n'
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n<text x="4" y="13">{html.escape(title)}: {root.samples:,} samples</text>\n')
    for x, depth, width, name, share in out:
        y = height - (depth + 1) * ROW
        letters = int(width / 6.7)
        text = name if len(name) <= letters else name[:max(letters - 1, 0)] + "…"
        to.write(f'<g><title>{html.escape(name)} {100 * share:.1f} %</title>'
                 f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.3):.1f}" height="{ROW - 1}" fill="{colour(name)}"/>')
        if letters >= 3:
            to.write(f'<text x="{x + 2:.1f}" y="{y + 12}">{html.escape(text)}</text>')
        to.write("</g>\n")
    to.write("</svg>\n")


def main():
    root = read(sys.stdin)
    if root.samples == 0:
        sys.exit("flame_graph.py: no samples on standard input")
    draw(sys.argv[1] if len(sys.argv) > 1 else "profile", root, sys.stdout)


if __name__ == "__main__":
    main()
