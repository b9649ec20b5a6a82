"""What mkdocs needs to know of this repository: pages that lie outside docs/, and the navigation's growing part."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

OUTSIDE = {
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "notebooks/README.md": "notebooks/index.md",
    **{f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in NOTEBOOKS},
    "notebooks/data/README.md": "notebooks/data.md",
}
"""File of the repository -> page of the site."""

INSIDE = {page: source for source, page in OUTSIDE.items()}
ALIASES = OUTSIDE | {"README.md": "index.md"}
"""Where links to files of the repository lead on the site."""

LINK = re.compile(r"\]\((?P<target>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Navigation: a page per mechanism and per notebook, and whatever mkdocs.yml does not name under Background."""
    docs = ROOT / "docs"
    named = set(re.findall(r"'([^']+\.md)'", str(config.nav)))
    others = sorted(path.name for path in docs.glob("*.md") if path.name not in named)
    mechanisms = sorted(path.relative_to(docs).as_posix() for path in (docs / "mechanisms").glob("*.md"))
    notebooks = [page for page in OUTSIDE.values() if page.startswith("notebooks/")]
    config.nav = [
        *(config.nav or []),
        {"Background": others},
        {"Mechanisms": mechanisms},
        {"Notebooks": notebooks},
        {"Project": ["changes.md", "contributing.md"]},
    ]
    return config


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Let the search of a page that was opened as a file work without a worker."""
    script = (ROOT / "docs" / "search_worker.js").read_text()
    return output.replace("</head>", f"<script>{script}</script></head>", 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the search's index as a script too: pages that were opened as files fetch no JSON."""
    folder = Path(config.site_dir) / "search"
    (folder / "search_index.js").write_text(f"var __index = {(folder / 'search_index.json').read_text()}")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, with notebooks and their pictures as Markdown."""
    for source, page in OUTSIDE.items():
        path = ROOT / source
        if path.suffix == ".ipynb":
            text, pictures = notebook(path)
            for name, content in pictures.items():
                files.append(File.generated(config, f"notebooks/{name}", content=content))
        else:
            text = path.read_text()
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the repository become links between pages of the site."""
    here = page.file.src_uri
    source = INSIDE.get(here, f"docs/{here}")
    return LINK.sub(lambda found: f"]({link(found['target'], source, here)}{found['anchor'] or ''})", markdown)


def link(target: str, source: str, page: str) -> str:
    """A relative link in a file of the repository, as it is on the page made of it."""
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if file in ALIASES:
        file = ALIASES[file]
    elif file.startswith("docs/"):
        file = file.removeprefix("docs/")
    else:
        return target
    return posixpath.relpath(file, posixpath.dirname(page) or ".")


def notebook(path: Path) -> tuple[str, dict[str, Any]]:
    """A notebook with its kept outputs: (Markdown, name -> picture)."""
    from nbconvert import MarkdownExporter

    pictures = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    text, resources = MarkdownExporter().from_filename(str(path), resources=pictures)
    return text, resources["outputs"]
