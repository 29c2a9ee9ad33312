"""Pages whose commands and programs are executed as they are printed (support/pages.py says how a block is typed)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.pages import ROOT, blocks, run_page

#: Pages that other tests execute, with the tests.
ELSEWHERE = {
    "docs/operate/first-cluster.md": "tests/lab/test_first_cluster.py",
    "docs/use/java.md": "broker/tests/interop/test_java_page.py",
}
#: Pages that run in `make test-all` only; each takes several seconds.
LONG = {f"docs/operate/{name}.md" for name in ("backup-and-restore", "from-rabbitmq", "sizing", "upgrade")}
PAGES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("use", "operate")
    for path in (ROOT / "docs" / folder).glob("*.md")
    if "\n```bash" in path.read_text()
)


@pytest.mark.parametrize(
    "page",
    [pytest.param(each, marks=[pytest.mark.long] * (each in LONG)) for each in PAGES if each not in ELSEWHERE],
)
def test_the_blocks_of_a_page_run_as_they_are_printed(page: str, tmp_path: Path) -> None:
    run_page(ROOT / page, tmp_path)


def test_pages_by_task_are_executed() -> None:
    """Each page of the table of tasks has commands that a test runs."""
    readme = (ROOT / "docs" / "README.md").read_text()
    tasks = readme.split("## Tasks\n", 1)[1].split("\n## ", 1)[0]
    named = {f"docs/{path}" for path in re.findall(r"\]\(([\w/-]+\.md)\)", tasks)}
    assert len(named) >= 12
    assert named <= {*PAGES, *ELSEWHERE}
    assert all((ROOT / test).exists() for test in ELSEWHERE.values())


@pytest.mark.parametrize("page", sorted({*PAGES, *ELSEWHERE}))
def test_every_block_of_a_page_is_run_or_is_output(page: str) -> None:
    """A block without a name is typed; a program has the name of its file; ``text`` and the like are output."""
    unnamed = {each.language for each in blocks((ROOT / page).read_text()) if not each.name}
    assert unnamed <= {"bash", "text"}
