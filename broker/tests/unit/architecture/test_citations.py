"""Citations resolve: what a comment, docstring or page cites is in this repository, with the section that is named.

Forms that are checked, in comments and docstrings below ``broker``, and in pages:

- ``artemis-core s. 4.2`` and ``artemis-ha s. 2.3``, with lists (``s. 2.2, 2.3 and 2.6``, ``s. 4.2 to 4.4``): a
  numbered heading of the page of that name in ``docs/build/reference``;
- ``docs/...``, a file; ``docs/build/journal-format.md s. 2.2``: a numbered heading of it; ``docs/page.md, "Heading"``:
  that heading;
- ``ADR 0015``: a file of ``docs/adr``;
- ``store/log/journal.py``, a module or test by its path, and ``store.log.journal``, a module or a name in it, in
  backquotes (not in ADRs, which describe the tree of their time);
- links between pages, with their fragments.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support.architecture import ROOT, SOURCE, modules, packages, report

SOURCES = sorted(path for folder in ("src", "tests") for path in (ROOT / "broker" / folder).rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCES = {
    "artemis-core": "docs/build/reference/artemis-core.md",
    "artemis-ha": "docs/build/reference/artemis-ha.md",
}

_NUMBER = r"\d+(?:\.\d+)*"
_LIST = rf"{_NUMBER}(?:(?:, | and |, and | to ){_NUMBER})*"
_SECTIONS = re.compile(rf"\b([Aa]rtemis-(?:core|ha)|docs/[\w./-]+\.md|journal-format\.md),? s\. ({_LIST})")
_HEADING = re.compile(r'(docs/[\w./-]+\.md), "([^"]+)"')
_FILE = re.compile(r"(?<![\w/.-])docs/(?!adr/NNNN)[\w./-]*\w/?")
_DECISION = re.compile(r"\bADRs? (\d{4})(?:(?:, | and |, and )(\d{4}))*")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s#]*)(#[^)\s]*)?\)")
_PATH = re.compile(r"(?<![\w/.*{-])((?:[\w-]+/)+[\w-]+\.py)\b")
_DOTTED = re.compile(r"``((?:[a-z_]+\.)+\w+)``")
_EXTENSIONS = {"json", "md", "py", "xml"}
#: Where the paths of modules and tests begin.
_ROOTS = (SOURCE, ROOT, ROOT / "broker", ROOT / "broker" / "tests", ROOT / "broker" / "tests" / "unit")
#: Ways of citing that name nothing in this repository.
_NOWHERE = re.compile(
    r"\b[Ff]acts:? (?:s\. |ha |users |spark |core-protocol )*\d|\b[Dd]esign(?:\.md)? s\. ?\d"
    r"|[Ss]ee the module's text|\"See ``\w+\.[\w.]+``"
)


@cache
def tracked() -> frozenset[str]:
    """Files under version control; every file where there is no repository (a source archive)."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return frozenset(listed.split("\0"))
    return frozenset(str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file())


@cache
def headings(path: str) -> tuple[str, ...]:
    """Headings of a page, code blocks apart."""
    text = re.sub(r"^```.*?^```", "", (ROOT / path).read_text(), flags=re.MULTILINE | re.DOTALL)
    return tuple(re.findall(r"^#+ (.*)$", text, re.MULTILINE))


def numbered(path: str) -> set[str]:
    return {match[1] for each in headings(path) if (match := re.match(rf"({_NUMBER})\.? ", each))}


def fragment(heading: str) -> str:
    """The fragment that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings, each run of comment lines as one text, with its first line."""
    run: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if run and (line != last + 1):
            yield first, "\n".join(run)
            run = []
        first, last = (first if run else line), line
        run.append(token.string.lstrip("#: "))
    if run:
        yield first, "\n".join(run)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def unresolved(text: str) -> Iterator[str]:
    """Citations in a text that lead nowhere."""
    text = re.sub(r"\s+", " ", text)
    for match in _NOWHERE.finditer(text):
        yield f"{match[0]!r} names nothing in this repository"
    for match in _FILE.finditer(text):
        path = match[0].rstrip("/")
        if path not in tracked() and not any(each.startswith(f"{path}/") for each in tracked()):
            yield f"{path} is not under version control"
    for match in _SECTIONS.finditer(text):
        name = match[1].lower()
        path = REFERENCES.get(name) or (f"docs/build/{name}" if "/" not in name else name)
        if path in tracked():
            wanted = re.findall(_NUMBER, match[2])
            yield from (f"{path} has no section {each}" for each in wanted if each not in numbered(path))
    for match in _HEADING.finditer(text):
        if match[1] in tracked() and match[2] not in headings(match[1]):
            yield f"{match[1]} has no heading {match[2]!r}"
    for match in _DECISION.finditer(text):
        for number in re.findall(r"\d{4}", match[0]):
            if not any(each.startswith(f"docs/adr/{number}-") for each in tracked()):
                yield f"there is no ADR {number}"


def unknown_modules(text: str) -> Iterator[str]:
    """Paths and dotted names of modules that do not exist."""
    for path in _PATH.findall(text):
        if not any((root / path).exists() for root in _ROOTS):
            yield f"{path} does not exist"
    for dotted in _DOTTED.findall(text):
        parts = dotted.removeprefix("understudy.").split(".")
        if parts[0] not in packages() or parts[-1] in _EXTENSIONS:
            continue
        known = next(n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in modules())
        text_there = modules()[".".join(parts[:known])].text
        if known < len(parts) and not re.search(rf"\b{parts[-1]}\b", text_there):
            yield f"{dotted} does not exist"


def test_citations_in_comments_and_docstrings_resolve() -> None:
    report(
        f"{path.relative_to(ROOT)}:{line}: {fault}"
        for path in SOURCES
        if path != Path(__file__) and suspicious(path.read_text())
        for line, text in prose(path.read_text())
        for fault in (*unresolved(text), *unknown_modules(text))
    )


def suspicious(text: str) -> bool:
    """Whether anything in a module, its code included, looks like a citation that leads nowhere: most have none."""
    text = re.sub(r"\n\s*(?:#:? ?)?", " ", text)
    return any(True for _ in unresolved(text)) or any(True for _ in unknown_modules(text))


def test_citations_in_pages_resolve() -> None:
    report(f"{page.relative_to(ROOT)}: {fault}" for page in PAGES for fault in unresolved(page.read_text()))
    report(
        f"{page.relative_to(ROOT)}: {fault}"
        for page in PAGES
        if page.parent.name != "adr"
        for fault in unknown_modules(page.read_text())
    )


def test_links_between_pages_resolve() -> None:
    faults = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target, anchor in _LINK.findall(text):
            if "://" in target or target.startswith("mailto:"):
                continue
            path = (page.parent / target).resolve() if target else page
            if not path.exists():
                faults.append(f"{page.relative_to(ROOT)}: {target} does not exist")
            elif anchor and path.suffix == ".md":
                known = {fragment(each) for each in headings(str(path.relative_to(ROOT)))}
                if anchor[1:] not in known:
                    faults.append(f"{page.relative_to(ROOT)}: {target}{anchor} names no heading")
    report(faults)


def test_decisions_have_their_number_once() -> None:
    numbers = [path.name[:4] for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))]
    assert len(numbers) == len(set(numbers)), [each for each in numbers if numbers.count(each) > 1]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Source: artemis-core s. 6.2 and 99.1.", "no section 99.1"),
        ("The order (docs/build/journal-format.md\n    s. 77).", "no section 77"),
        ("Why: ADR 0003, ADR 9999.", "no ADR 9999"),
        ("See docs/nothing.md.", "docs/nothing.md is not under version control"),
        ("Credits (facts 6.2) are granted.", "names nothing"),
        ("One order (design s. 3.2).", "names nothing"),
    ],
)
def test_a_citation_that_leads_nowhere_is_found(text: str, fault: str) -> None:
    found = list(unresolved(text))
    assert len(found) == 1
    assert fault in found[0]
    comment = "x = 1\n" + "".join(f"#: {line.strip()}\n" for line in text.splitlines())
    assert suspicious(comment)
    ((line, said),) = prose(comment)
    assert line == 2
    assert list(unresolved(said)) == found


def test_citations_that_resolve_are_not_reported() -> None:
    assert not list(
        unresolved("artemis-core s. 4.2 to 4.4, docs/adr, docs/build/journal-format.md s. 2.2 and 4, ADR 0003 and 0004")
    )


def test_decisions_are_listed_and_have_a_status_and_the_same_sections() -> None:
    folder = ROOT / "docs" / "adr"
    listed = (folder / "README.md").read_text()
    for page in sorted(folder.glob("0*.md")):
        title, *sections = headings(f"docs/adr/{page.name}")
        assert re.fullmatch(rf"{page.name[:4]}: .+", title), f"{page.name}: title {title!r}"
        expected = ["Context", "Decision", "Consequences"]
        assert [each for each in sections if each in expected] == expected, f"{page.name}: sections {sections}"
        status = re.search(r"^Status: .+(?:\n.+)*\n\n## Context", page.read_text(), re.MULTILINE)
        assert status, f"{page.name}: no line 'Status: ...' before its section Context"
        row = f"| [{page.name[:4]}]({page.name}) | {title[6:]} |"
        assert row in listed, f"docs/adr/README.md lacks the row\n{row}"
