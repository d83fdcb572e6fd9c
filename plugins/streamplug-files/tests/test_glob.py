from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamplug_files import split_compression
from streamplug_files.glob import (
    FileSet,
    compile_glob,
    escape,
    expand_braces,
    glob_prefix,
    is_glob,
    parse_locations,
    unescape,
)

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
        ("a[!-b].tar", "a0.tar", True),
        ("a[!-b].tar", "a-.tar", False),
        ("a[!b-].tar", "a-.tar", False),
        ("a[+-9].tar", "a5.tar", True),
        ("a[+-9].tar", "a/.tar", False),
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


def test_files_may_have_a_query_each():
    files = parse_locations(["http://h/d/a.tar?s=1", "http://h/e/{b,c}.tar?s=2"], is_tar)
    assert (files.root, files.parts) == ("http://h", ("d/a.tar", "e/b.tar", "e/c.tar"))
    assert files.queries == {"d/a.tar": "?s=1", "e/b.tar": "?s=2", "e/c.tar": "?s=2"}


@pytest.mark.parametrize("other", ["http://h/*.tar?sig=s3cret2", "http://h/b?sig=s3cret2"])
def test_what_is_listed_has_no_query_of_its_own_which_no_error_shows(other):
    with pytest.raises(ConfigError, match="differ in the query") as caught:
        parse_locations(["http://h/a.tar?sig=s3cret1", other], is_tar)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "root", "parts"),
    [
        ("http://h/a%20b/c%20d.tar", "http://h/a%20b", ("c d.tar",)),
        ("http://h/a b/c d.tar", "http://h/a b", ("c d.tar",)),
        ("http://h/{a%20b,c}.tar", "http://h", ("a b.tar", "c.tar")),
        ("http://h/%7Ba,b%7D%5B1%5D%2A.tar", "http://h", ("[{]a,b[}][[]1][*].tar",)),
        ("http://h/%E4%BD%A0-%c3%a9.tar", "http://h", ("你-é.tar",)),
        ("http://h/100%.tar", "http://h", ("100%.tar",)),
        ("http://h/a%2520b.tar", "http://h", ("a%20b.tar",)),
        (["http://h/a%20b/x.tar", "http://h/c/y.tar"], "http://h", ("a b/x.tar", "c/y.tar")),
        ("obstore:https://h/a%20b.tar?s=%20", "obstore:https://h?s=%20", ("a b.tar",)),
        ("s3://b/a%20b.tar", "s3://b", ("a%20b.tar",)),
    ],
)
def test_the_path_of_an_http_url_may_be_percent_encoded(location, root, parts):
    assert parse_locations(location, is_tar) == FileSet(root, parts)


@pytest.mark.parametrize("name", ["a%2Fb.tar", "%E9.tar"])
def test_names_that_no_file_has_are_refused(name):
    with pytest.raises(ConfigError, match=rf"'http://h/{name}': %[0-9A-F]+ is no part of the name"):
        parse_locations(f"http://h/{name}?s=1", is_tar)


@pytest.mark.parametrize(
    ("location", "root", "parts"),
    [
        ("s3://b/a[[]1].tar", "s3://b", ("a[[]1].tar",)),
        ("s3://b/x[{]1[}]-{1..2}.tar", "s3://b", ("x[{]1[}]-1.tar", "x[{]1[}]-2.tar")),
        ("s3://b/{a[,]b,c}.tar", "s3://b", ("a[,]b.tar", "c.tar")),
        ("s3://b/set [[]1]/*.tar", "s3://b/set [1]", ("*.tar",)),
        ("s3://b/set [[]1]", "s3://b/set [1]", ("",)),
    ],
)
def test_a_character_in_brackets_stands_for_itself(location, root, parts):
    assert parse_locations(location, is_tar) == FileSet(root, parts)


@given(st.text(st.sampled_from("[]{}*?,!^-a. "), min_size=1))
def test_names_are_escaped(name):
    part = escape(name)
    assert not is_glob(part)
    assert unescape(part) == name == glob_prefix(part)
    assert list(expand_braces(part)) == [part]
    assert compile_glob(part).fullmatch(name)


def test_names_that_exist_are_no_patterns(tmp_path, monkeypatch):
    folder = tmp_path / "set [ab] {1}"
    folder.mkdir()
    for name in ("a{1..2}[x].tar", "a1x.tar"):
        (folder / name).write_bytes(b"")
    for prefix in ("", "file://"):
        root = f"{prefix}{folder}"
        assert parse_locations(root, is_tar) == FileSet(root, ("",))
        name = f"{root}/a{{1..2}}[x].tar"
        assert parse_locations(name, is_tar) == FileSet(root, ("a[{]1..2[}][[]x].tar",))
        assert parse_locations(f"{root}/{{a,b}}*.tar", is_tar).parts == ("a*.tar", "b*.tar")
        both = parse_locations([name, f"{prefix}{tmp_path}/*.tar"], is_tar)
        inner = "set [[]ab] [{]1[}]/a[{]1..2[}][[]x].tar"
        assert both == FileSet(f"{prefix}{tmp_path}", (inner, "*.tar"))
    monkeypatch.chdir(folder)
    assert parse_locations("a{1..2}[x].tar", is_tar) == FileSet(".", ("a[{]1..2[}][[]x].tar",))
    assert parse_locations("a{1,2}[x].tar", is_tar) == FileSet(".", ("a1[x].tar", "a2[x].tar"))


@pytest.mark.parametrize("name", ["a-{1}", "a-{b"])
def test_errors_show_no_credentials_of_a_url(name):
    with pytest.raises(ConfigError, match=r"https://host/.*in brackets: \[\{\]") as caught:
        parse_locations(f"https://me:secret@host/{name}?sig=secret", lambda _: True)
    assert "secret" not in str(caught.value)
