"""``python -m documents.site OUTPUT [SCRIPTS]``: pages and configuration of the site, for ``mkdocs build``.

The pages lie below ``OUTPUT/pages`` as in the repository, so that their links hold, together with each file that they
link. They are changed only where GitHub and Python-Markdown read a text differently. The navigation has the pages of
the three doors in the order of docs/README.md. SCRIPTS is a folder with the scripts that the pages load.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).parents[2]
BASE: Final = ROOT / ".ci" / "site"
#: Pages from which the others are found by their links.
FIRST: Final = ("README.md", "CONTRIBUTING.md", "docs/README.md")
DOORS: Final = ("Use", "Operate", "Build")
#: Titles of folders in the navigation.
TITLES: Final = {"adr": "Decisions", "machines": "State machines"}

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^(\s*)(```+)(\w+)? ?([\w./-]+)?$")
_ITEM = re.compile(r"^( *)(?:[-*]|\d+\.) ")
_INDENTED = re.compile(r"^( +)(\S.*)$")


def tracked() -> list[str]:
    """Files under version control, and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [each for each in listed.splitlines() if (ROOT / each).is_file()]


def targets(text: str, here: str) -> Iterator[str]:
    """Paths of the files and folders of the repository that a page links."""
    for match in _LINK.finditer(without_code(text)):
        if not re.match(r"[a-z]+:", match[2]):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))


def without_code(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def pages(files: list[str]) -> dict[str, str]:
    """All files of the site: the pages of docs, and each page or file that a page links, with the text of the pages.

    The text of a file that is no page is empty: it is copied.
    """
    found: dict[str, str] = {}
    waiting = [*FIRST, *(each for each in files if each.startswith("docs/"))]
    while waiting:
        name = waiting.pop()
        if name in found or name not in files:
            continue
        found[name] = (ROOT / name).read_text() if name.endswith(".md") else ""
        if name.endswith(".md"):
            for target in targets(found[name], name):
                waiting += [target, f"{target}/README.md"]
    return found


def rendered(text: str, here: str, known: dict[str, str]) -> str:
    """A page as Python-Markdown reads it like GitHub.

    The name after the language of a block becomes its title, a list begins after an empty line and is indented by four
    spaces for each level, and a link to a folder leads to the page of the folder.
    """

    def put(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        if f"{target}/README.md" in known:
            return f"{match[1]}{match[2].rstrip('/')}/README.md{match[3]}"
        return match[0]

    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif opened:
            fence = opened[2]
            title = f' title="{opened[4]}"' if opened[4] else ""
            line = f"{opened[1]}{opened[2]}{opened[3] or 'text'}{title}"
        elif not line.startswith("    "):
            line = re.sub(_LINK, put, line)
            before = lines[-1] if lines else ""
            if _ITEM.match(line) and before and not _ITEM.match(before) and not before.startswith(" "):
                lines.append("")
            deeper = _INDENTED.match(line)
            if deeper and len(deeper[1]) in (2, 3):
                line = f"    {deeper[2]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def folder_page(folder: str, names: list[str]) -> str:
    """A page that lists the pages of a folder without a README."""
    title = TITLES.get(Path(folder).name, Path(folder).name.capitalize())
    return f"# {title}\n\n" + "".join(f"- [{Path(each).stem}]({Path(each).name})\n" for each in sorted(names))


def navigation(readme: str, known: dict[str, str]) -> list[dict[str, object]]:
    """The doors with the pages of their tables in docs/README.md, each once; a folder stands with all its pages."""
    sections: list[dict[str, object]] = [{"Home": ["README.md", "docs/README.md", "docs/glossary.md"]}]
    seen = {"README.md", "docs/README.md", "docs/glossary.md"}
    for door in DOORS:
        text = readme.split(f"\n## {door}\n", 1)[1].split("\n## ", 1)[0]
        entries: list[object] = []
        for target in targets(text, "docs/README.md"):
            name = f"{target}/README.md" if f"{target}/README.md" in known else target
            if name in seen or not name.endswith(".md"):
                continue
            seen.add(name)
            if name.endswith("/README.md") and name.startswith("docs/"):
                inside = sorted(
                    each for each in known if each.startswith(f"{posixpath.dirname(name)}/") and each != name
                )
                seen.update(inside)
                folder = Path(name).parent.name
                entries.append({TITLES.get(folder, folder.capitalize()): [name, *inside]})
            else:
                entries.append(name)
        sections.append({door: entries})
    return sections


def write(output: Path, scripts: Path | None) -> None:
    """Write the pages and ``mkdocs.yml`` into a directory, whose former content is removed."""
    shutil.rmtree(output, ignore_errors=True)
    files = tracked()
    known = pages(files)
    for folder in {posixpath.dirname(each) for each in known if each.startswith("docs/") and each.endswith(".md")}:
        inside = [each for each in known if posixpath.dirname(each) == folder and each.endswith(".md")]
        if folder not in {"docs", *(f"docs/{door.lower()}" for door in DOORS)}:
            known.setdefault(f"{folder}/README.md", folder_page(folder, inside))
    for name, text in known.items():
        path = output / "pages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            path.write_text(rendered(text, name, known))
        else:
            shutil.copyfile(ROOT / name, path)
    shutil.copyfile(BASE / "site.css", output / "pages" / "site.css")
    for script in scripts.glob("*.js") if scripts is not None else ():
        shutil.copyfile(script, output / "pages" / script.name)
    chosen = {
        "INHERIT": str(BASE / "mkdocs.yml"),
        "docs_dir": str(output / "pages"),
        "site_dir": str(output / "html"),
        "nav": navigation(known["docs/README.md"], known),
    }
    (output / "mkdocs.yml").write_text(yaml.safe_dump(chosen, sort_keys=False))


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve(), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
