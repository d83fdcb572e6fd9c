from __future__ import annotations

import pytest
from streamplug_files import split_compression
from streamplug_files.glob import FileSet, compile_glob, expand_braces, glob_prefix, parse_locations

from streamplug.errors import ConfigError


def is_tar(name):
    return split_compression(name, ["tar"]) is not None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("{08..11}", ["08", "09", "10", "11"]),
        ("x{1..3}y", ["x1y", "x2y", "x3y"]),
        ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
        ("{a{1..2},b}.tar", ["a1.tar", "a2.tar", "b.tar"]),
        ("{a,}b", ["ab", "b"]),
    ],
)
def test_braces_stand_for_choices_and_counts(text, names):
    assert list(expand_braces(text)) == names


@pytest.mark.parametrize("locations", ["", [""], ["/d/a.tar", ""]])
def test_an_empty_location_is_not_the_root_of_the_file_system(locations):
    with pytest.raises(ConfigError, match="one of the locations is empty"):
        parse_locations(locations, is_tar)


@pytest.mark.parametrize("text", ["{a", "a}", "{a}", "{}", "{3..1}", "{0..10000000000}", "{a,{b}"])
def test_braces_without_a_meaning_are_refused(text):
    with pytest.raises(ConfigError):
        list(expand_braces(text))


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        ("*.tar", "a.tar", True),
        ("*.tar", "b/a.tar", False),
        ("**/*.tar", "a.tar", True),
        ("**/*.tar", "b/c/a.tar", True),
        ("a?.tar", "ab.tar", True),
        ("a?.tar", "a/.tar", False),
        ("a[0-9].tar", "a7.tar", True),
        ("a[!0-9].tar", "a7.tar", False),
        ("a[^0-9].tar", "a7.tar", False),
        ("a[^0-9].tar", "a/.tar", False),
        ("a[[].tar", "a[.tar", True),
        ("a.tar", "a_tar", False),
    ],
)
def test_globs(glob, name, matches):
    assert bool(compile_glob(glob).fullmatch(name)) == matches
    assert not matches or name.startswith(glob_prefix(glob))


def test_a_set_of_characters_that_does_not_count_up_is_refused():
    with pytest.raises(ConfigError, match=r"'\[z-a\]\.tar': bad character range z-a"):
        compile_glob("[z-a].tar")


@pytest.mark.parametrize(
    ("locations", "root", "parts"),
    [
        ("s3://b/set", "s3://b/set", ("",)),
        ("s3://b/set/", "s3://b/set", ("",)),
        ("s3://b/set/x.tar.gz", "s3://b/set", ("x.tar.gz",)),
        ("s3://b/x-{0..1}.tar", "s3://b", ("x-0.tar", "x-1.tar")),
        ("s3://b/*/x.tar", "s3://b", ("*/x.tar",)),
        (["s3://b/a", "s3://b/c/*.tar"], "s3://b", ("a/", "c/*.tar")),
        (["/d/a/x.tar", "/d/a/y.tar"], "/d/a", ("x.tar", "y.tar")),
        (["/d/a", "/d/a/b"], "/d/a", ("", "b/")),
        ("x-*.tar", ".", ("x-*.tar",)),
        (["x.tar", "a/y.tar", "./b"], ".", ("x.tar", "a/y.tar", "b/")),
        (["a/x.tar", "a/b/y.tar"], "a", ("x.tar", "b/y.tar")),
        ("/x.tar", "/", ("x.tar",)),
        ("http://[::1]:80/set", "http://[::1]:80/set", ("",)),
        ("sftp://me@[fe80::1]/set/x-*.tar", "sftp://me@[fe80::1]/set", ("x-*.tar",)),
    ],
)
def test_locations_have_a_root_and_parts(locations, root, parts):
    assert parse_locations(locations, is_tar) == FileSet(root, parts)


@pytest.mark.parametrize(
    "locations", [[], "s3://{a,b}/x.tar", ["s3://a/x.tar", "/b/x.tar"], ["x.tar", "../y.tar"]]
)
def test_locations_with_nothing_in_common_are_refused(locations):
    with pytest.raises(ConfigError):
        parse_locations(locations, is_tar)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("a.tar", ("a.tar", None)),
        ("a.tar.zst", ("a.tar", "zstd")),
        ("b/a.tgz", ("b/a.tar", "gz")),
        ("a.gz", None),
        ("a.tar.places", None),
        ("tar", None),
    ],
)
def test_names_tell_what_a_file_is_when_it_is_raw(name, raw):
    assert split_compression(name, ["tar"]) == raw


@pytest.mark.parametrize(
    "remote", ["http://me:hunter2@*/x", ["http://me:hunter2@host/a*", "http://other/b*"]]
)
def test_errors_show_no_password(remote):
    with pytest.raises(ConfigError) as caught:
        parse_locations(remote, lambda _: False)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("locations", "root", "parts"),
    [
        ("http://h/d/a.tar?sig={x,y}*", "http://h/d?sig={x,y}*", ("a.tar",)),
        ("https://h/d/{a,b}.tar?s=1", "https://h/d?s=1", ("a.tar", "b.tar")),
        ("obstore:https://h/d/*.tar?s=[1]", "obstore:https://h/d?s=[1]", ("*.tar",)),
        ("http://h/d?s={", "http://h/d?s={", ("",)),
        (
            ["http://h/d/a.tar?s=1", "http://h/d/e/b.tar?s=1"],
            "http://h/d?s=1",
            ("a.tar", "e/b.tar"),
        ),
    ],
)
def test_the_query_of_a_url_is_no_part_of_the_names(locations, root, parts):
    assert parse_locations(locations, is_tar) == FileSet(root, parts)


def test_urls_with_other_queries_are_refused_without_showing_them():
    with pytest.raises(ConfigError, match="differ in the query") as caught:
        parse_locations(["http://h/a.tar?sig=s3cret1", "http://h/b.tar?sig=s3cret2"], is_tar)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["a-{1}", "a-{b"])
def test_errors_show_no_credentials_of_a_url(name):
    with pytest.raises(ConfigError, match="https://host/") as caught:
        parse_locations(f"https://me:secret@host/{name}?sig=secret", lambda _: True)
    assert "secret" not in str(caught.value)
