"""The site of the documentation: pages as Python-Markdown reads them, and a navigation with every page."""

from __future__ import annotations

import re

import pytest

from documents import pictures, site
from support.architecture import ROOT


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("```bash\nls\n```\n", "```bash\nls\n```\n"),
        ("```bash broker\nls\n```\n", '```bash title="broker"\nls\n```\n'),
        ("```java src/A.java\n- no list\n```\n", '```java title="src/A.java"\n- no list\n```\n'),
        ("Some text:\n- one\n- two\n", "Some text:\n\n- one\n- two\n"),
        ("- one\n  - below\n  - again\n", "- one\n    - below\n    - again\n"),
        ("1. one\n   goes on\n", "1. one\n    goes on\n"),
        ("    - code\n    more\n", "    - code\n    more\n"),
        ("[decisions](adr/) and [a page](a.md#part)\n", "[decisions](adr/README.md) and [a page](a.md#part)\n"),
    ],
)
def test_a_page_is_changed_only_where_the_readers_differ(page: str, expected: str) -> None:
    assert site.rendered(page, "docs/x.md", {"docs/adr/README.md": ""}) == expected


def test_links_of_code_lead_nowhere() -> None:
    page = "[one](use/a.md) and [out](https://host.invalid/)\n```bash\nls [x](y.md)\n```\n![picture](images/p.svg)\n"
    assert list(site.targets(page, "docs/README.md")) == ["docs/use/a.md", "docs/images/p.svg"]


def test_every_page_of_a_door_is_in_the_navigation() -> None:
    known = site.pages(site.tracked())
    (_, *doors) = site.navigation(known["docs/README.md"], known)
    assert [next(iter(door)) for door in doors] == list(site.DOORS)
    listed = set(re.findall(r"'(docs/[\w./-]+\.md)'", str(doors)))
    pages = {name for name in known if re.match(r"docs/(use|operate|build|adr)/.*\.md", name)}
    assert pages - listed - {name for name in pages if name.startswith("docs/build/machines/")} == set()


def test_pages_link_only_files_that_the_site_has() -> None:
    known = site.pages(site.tracked())
    missing = [
        f"{name}: {target}"
        for name, text in known.items()
        for target in site.targets(text, name)
        if target not in known and f"{target}/README.md" not in known and not (ROOT / target).is_dir()
    ]
    assert missing == []


def test_pictures_load_nothing() -> None:
    drawn = pictures.picture("understudy ha", "\x1b[1mactive\x1b[0m: safe\r\n")
    assert "safe" in drawn
    for text in (drawn, *(path.read_text() for path in (ROOT / "docs" / "images").glob("*.svg"))):
        assert not re.search(r"url\(['\"]?http|href=['\"]http|@font-face", text)
    assert {path.stem for path in (ROOT / "docs" / "images").glob("*.svg")} == set(pictures.PICTURES)
