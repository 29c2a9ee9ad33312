"""Paths that users give: plain ones and file URLs name local files, URLs of other schemes are refused."""

from __future__ import annotations

import pytest

from understudy.errors import ConfigError
from understudy.local_paths import local_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/srv/a", "/srv/a"),
        ("a/b", "a/b"),
        ("./s3a://bucket/x", "./s3a://bucket/x"),
        ("a:b", "a:b"),
        ("C:/x", "C:/x"),
        ("file:///srv/a%20b", "/srv/a b"),
        ("file:/srv/a", "/srv/a"),
        ("FILE://localhost/srv/a", "/srv/a"),
    ],
)
def test_path_of_this_host_is_taken(text: str, path: str) -> None:
    assert local_path(text, "x") == path


@pytest.mark.parametrize("text", ["s3a://bucket/x", "s3a:/bucket/x", "hdfs://n/x", "https://h/x", "abfss://c@a/x"])
def test_url_of_another_scheme_is_refused_with_its_scheme(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"the archive: .*files of the scheme {text.partition(':')[0]}: are not"):
        local_path(text, "the archive")


@pytest.mark.parametrize("text", ["file://other/srv/a", "file:////srv/a"])
def test_file_url_of_another_host_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no file of this host"):
        local_path(text, "the archive")
