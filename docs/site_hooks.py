"""Hooks of mkdocs.yml: what the repository's viewer reads, and the site's renderer does not."""
import re


def on_page_markdown(markdown, **_):
    # ```cpp quickstart main.cpp marks the block for the tests; the renderer takes the language alone.
    markdown = re.sub(r"^```([a-z]+) .*$", r"```\1", markdown, flags=re.M)
    # In code within a table the viewer needs \| for a bar, and the renderer a bare one.
    return re.sub(r"^\|.*\|$", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]),
                  markdown, flags=re.M)


def on_files(files, **_):
    # The sources of the picture and of the site are no pages.
    for file in list(files):
        if file.src_path.endswith((".dot", ".py", "Doxyfile")):
            files.remove(file)
    return files
