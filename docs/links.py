"""A hook of mkdocs: links to files that are no pages, such as sources, lead to the repository."""

import posixpath
import re


def on_page_markdown(markdown, page, config, files):
    def link(match):
        path, _, anchor = match[1].partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), path))
        if not path or ":" in path or files.get_file_from_path(target):
            return match[0]
        return f"]({config.repo_url.rstrip('/')}/blob/main/{target}{'#' + anchor if anchor else ''})"

    return re.sub(r"\]\(([^)\s]+)\)", link, markdown)
