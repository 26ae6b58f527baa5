"""The pages of the documentation: what they point to is there, and what they show works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from doc_blocks import Play, blocks, unfenced

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
PUBLIC = ("ordercast", "ordercast.client", "ordercast.log", "ordercast.testing", "ordercast.threads")
PLAYED = [page for page in PAGES if any(block.kind != "text" for block in blocks(page))]
MOST_NOT_RUN = 23
"""Blocks that no test can run, each with its reason."""


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@EACH
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        assert goal.exists(), f"{page.name} points to {target}, which is not there"
        assert not anchor or anchor in anchors(goal), f"{page.name}: {path} has no heading {anchor!r}"


@EACH
def test_every_file_that_is_named_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:src|tests|docs|bench)/[\w./-]+)`", text):
        assert (ROOT / name).exists(), f"{page.name} speaks of {name}, which is not there"


@EACH
def test_every_code_block_says_of_what_kind_it_is(page: Path) -> None:
    assert not unfenced(page)


@pytest.mark.parametrize("page", PLAYED, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_the_page_shows_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Play(page, tmp_path).play()


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    reasons = [reason for page in PAGES for block in blocks(page) if (reason := block.told("not run: "))]
    assert len(reasons) <= MOST_NOT_RUN
    assert all(len(reason.split()) > 3 for reason in reasons)


def test_the_menu_of_the_site_has_every_page_and_no_other() -> None:
    """Decisions come by themselves: .ci/decisions_menu.py."""
    menu = re.findall(r"([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [page.relative_to(ROOT / "docs") for page in PAGES[1:]]
    assert sorted(menu) == sorted(str(page) for page in pages if page.parts[0] != "decisions")


def named_in_the_reference(text: str) -> Iterator[tuple[str, frozenset[str] | None]]:
    """What the page of the API names: modules or things in them, and which of a module's, if not all."""
    for name, options in re.findall(r"^::: ([\w.]+)\n((?: +.*\n)*)", text, re.M):
        members = re.search(r"members: \[(.*)\]", options)
        yield name, frozenset(members[1].split(", ")) if members else None


@pytest.mark.parametrize("module", PUBLIC)
def test_the_reference_has_everything_that_is_public(module: str) -> None:
    text = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8") + "\n"
    there = dict(named_in_the_reference(text))
    public = import_module(module)
    missing = []
    for name in public.__all__:
        thing = getattr(public, name)
        if isinstance(thing, ModuleType):
            continue
        known = {module} if isinstance(thing, tuple) else {module, getattr(thing, "__module__", module)}
        whole = {f"{home}.{getattr(thing, '__qualname__', name)}" for home in known} | {f"{module}.{name}"}
        parts = [there[home] for home in known if home in there]
        if not whole & set(there) and not any(part is None or name in part for part in parts):
            missing.append(name)
    assert not missing, f"docs/reference/api.md lacks what {module} has: {missing}"
