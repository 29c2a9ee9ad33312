"""Pages whose commands and programs are executed as they are printed (support/pages.py says how a block is typed)."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
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


def pip_wheel(directory: Path, *requirements: str) -> None:
    """Build wheels of requirements and of everything they need; skips, saying why, if the index does not answer."""
    constraints = ROOT / "requirements" / "constraints.txt"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "-c", str(constraints), "-w", str(directory), *requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "connection broken by" in done.stderr:
        pytest.skip(f"pip cannot reach its index: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_readme_runs_in_a_new_environment(tmp_path: Path) -> None:
    """The README installs a checkout by pip, from wheels in the place of an index, and runs all of its commands."""
    checkout, wheels, environment = (tmp_path / name for name in ("checkout", "wheels", "environment"))
    (checkout / "broker").mkdir(parents=True)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / "broker" / name, checkout / "broker")
    shutil.copytree(ROOT / "broker" / "src", checkout / "broker" / "src")
    pip_wheel(wheels, str(checkout / "broker"), "hatchling")
    (wheel,) = wheels.glob("understudy-*.whl")
    wheel.unlink()
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    output = run_page(
        ROOT / "README.md",
        checkout,
        PATH=f"{environment / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(wheels),
    )
    assert (environment / "bin" / "understudy").exists()
    assert re.search(r"Successfully installed .*understudy-", output)


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
