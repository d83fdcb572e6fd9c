"""From a name to its class, and the texts of all that can go wrong on the way."""

from __future__ import annotations

import pytest

from streamplug.errors import ConfigError
from streamplug.plugin.registry import make, register, resolve

ENCODING = """
from streamplug import Encoding

class X(Encoding):
    def encode(self, value): return b"x"
    def decode(self, data): return "{}"
"""


def provides(name, target, kind="encoding"):
    return f"""
@hookimpl
def streamplug_plugins():
    return [Provider("{kind}", "{name}", "{target}")]
"""


@pytest.fixture
def rivals(site):
    site.install("one", provides("x", "one.code:X"), code=ENCODING.format("of one"), version="1.1")
    site.install("two", provides("x", "two.code:X"), code=ENCODING.format("of two"), version="2.2")
    return site


# -- names that nothing provides ----------------------------------------------


def test_an_unknown_name_tells_what_may_be_meant_and_what_there_is(site):
    site.install("mine", provides("wavelet", "mine.code:X", "compression"))
    assert site.error("resolve('compression', 'wavlet')").startswith(
        "UnknownNameError: unknown compression 'wavlet'. Did you mean 'wavelet'?\n"
        "Available: bz2, gz, none, wavelet, xz\n"
    )


@pytest.mark.parametrize("spec", [0, b"mds", ["mds"], None])
def test_a_spec_that_is_no_text_is_refused(spec):
    with pytest.raises(ConfigError, match=r"format=.*: expected a name, such as"):
        make("format", spec)


@pytest.mark.parametrize(
    "call",
    [
        lambda: make("encodings", "str"),
        lambda: resolve("encodings", "str"),
        lambda: register("encodings", "mine", object),
    ],
)
def test_an_unknown_kind_is_refused(call):
    with pytest.raises(
        ConfigError, match=r"^kind='encodings': expected one of storage, compression, "
    ):
        call()


def test_an_unknown_name_near_one_of_ours_tells_what_to_install(site):
    text = site.error("resolve('compression', 'zsdt')", STREAMPLUG_PLUGINS="")
    assert "Did you mean 'zstd'? (pip install streamplug-zstandard)\n" in text


def test_an_unknown_name_like_nothing_offers_nothing(site):
    text = site.error("resolve('compression', 'qqqqqqq')")
    assert text.startswith("UnknownNameError: unknown compression 'qqqqqqq'.\nAvailable: bz2, gz")


def test_a_name_of_ours_tells_the_distribution(site, tmp_path):
    script = """
        from streamplug.plugin import catalog
        catalog.load_catalog()["encoding"]["holo"] = "streamplug-holo"
        try:
            resolve("encoding", "holo")
        except LookupError as error:
            print(error)
        """
    assert site.run(script).startswith(
        "unknown encoding 'holo'. It is provided by streamplug-holo, which is not installed: "
        "pip install streamplug-holo\nAvailable: "
    )
    site.install("streamplug-holo", "import no_such_module")
    assert site.run(script).startswith(
        "unknown encoding 'holo'. It is provided by streamplug-holo, which is installed but not in "
        "use.\nAvailable: "
    )


def test_a_disabled_plugin_is_mentioned(rivals):
    text = rivals.error("resolve('encoding', 'y')", STREAMPLUG_DISABLE_PLUGINS="two")
    assert "\nNote: two 2.2 is disabled (in STREAMPLUG_DISABLE_PLUGINS)\n" in text


def test_a_refused_name_is_mentioned_to_who_asks_for_it(site):
    site.install("greedy", provides("gz", "greedy.code:X", "compression"))
    assert (
        "Note: greedy 1.0 provides it, but was rejected ('gz' is a built-in compression; built-in "
        "names are reserved)"
    ) in site.error("resolve('compression', 'greedy:gz')")


def test_a_name_asked_of_the_wrong_distribution(rivals):
    assert rivals.error("resolve('encoding', 'three:x')").startswith(
        "UnknownNameError: unknown encoding 'three:x'. 'x' is provided by one 1.1 and two 2.2.\n"
    )


def test_an_unknown_scheme_of_a_url(site):
    assert site.error("open_storage('nowhere://x')").startswith(
        "UnknownNameError: nowhere://x: unknown storage 'nowhere'."
    )
    text = site.error("open_storage('s3://bucket')", STREAMPLUG_PLUGINS="")
    assert text.startswith(
        "UnknownNameError: s3://bucket: unknown storage 's3'. It is provided by streamplug-s3fs"
    )


# -- names that two provide ---------------------------------------------------


def test_an_ambiguous_name_is_an_error_only_when_it_is_used(rivals):
    assert rivals.run("print(resolve('encoding', 'str').__name__)") == "Str\n"
    assert rivals.error("resolve('encoding', 'x')") == (
        "AmbiguousNameError: encoding 'x' is provided by one 1.1 and two 2.2; write 'one:x' or "
        "'two:x', or name one of them in STREAMPLUG_DISABLE_PLUGINS\n"
    )


def test_the_ways_out_of_ambiguity(rivals):
    shown = rivals.run(
        "print(*[make('encoding', spec).decode(b'') for spec in ('one:x', 'two:x', 'TWO:x')])"
    )
    assert shown == "of one of two of two\n"
    shown = rivals.run("print(make('encoding', 'x').decode(b''))", STREAMPLUG_DISABLE_PLUGINS="one")
    assert shown == "of two\n"


def test_a_url_may_name_the_distribution(site):
    for name in ("one", "two"):
        site.install(
            name,
            provides("far", f"{name}.code:Far", "storage"),
            code="from streamplug.builtin.local_storage import LocalStorage\n"
            "class Far(LocalStorage):\n"
            "    def __init__(self, url): self.url = url\n",
        )
    shown = site.run("print(*[open_storage(f'{d}:far://h/p') for d in ('one', 'two')])")
    assert shown == "Far('far://h/p') Far('far://h/p')\n"
    assert "is provided by one 1.0 and two 1.0; write" in site.error("open_storage('far://h/p')")


# -- targets that are not what they must be -----------------------------------


@pytest.mark.parametrize(
    ("target", "code", "text"),
    [
        (
            "bad.missing:X",
            "",
            (
                "encoding 'x' comes from bad 1.0, which cannot be imported: ModuleNotFoundError: No "
                "module named 'bad.missing'"
            ),
        ),
        (
            "bad.code:X",
            "import no_such_sdk",
            (
                "encoding 'x' comes from bad 1.0, which cannot be imported: ModuleNotFoundError: No "
                "module named 'no_such_sdk'"
            ),
        ),
        (
            "bad.code:X",
            "raise SystemExit(3)",
            "encoding 'x' comes from bad 1.0, which cannot be imported: SystemExit: 3",
        ),
        (
            "bad.code:X",
            "",
            (
                "encoding 'x' comes from bad 1.0, which cannot be imported: AttributeError: module "
                "'bad.code' has no attribute 'X'"
            ),
        ),
        (
            "bad.code:X",
            "class X: pass",
            "bad 1.0 gives <class 'bad.code.X'> as encoding 'x'; expected a subclass of Encoding",
        ),
        ("bad.code:X", "X = 3", "bad 1.0 gives 3 as encoding 'x'; expected a subclass of Encoding"),
        (
            "bad.code:X",
            "from streamplug import Encoding\nclass X(Encoding):\n    def encode(self, v): ...",
            "encoding 'x' from bad 1.0 lacks decode",
        ),
        (
            "bad.code:X",
            ENCODING.format("") + "    api_version = 9",
            (
                "encoding 'x' from bad 1.0 was written for version 9 of Encoding; this streamplug has "
                "version 1"
            ),
        ),
    ],
)
def test_a_target_that_is_not_what_it_must_be(site, target, code, text):
    site.install("bad", provides("x", target), code=code)
    assert site.error("resolve('encoding', 'x')") == f"BrokenPluginError: {text}\n"


def test_names_from_data_never_import_modules(site):
    site.install("evil", "", code="print('imported')")
    text = site.error("make('encoding', 'evil.code:X')")
    assert text.startswith("UnknownNameError: unknown encoding 'evil.code'.")


# -- registrations of this process --------------------------------------------


CLASS = """
from streamplug import Encoding

def cell():
    class Mine(Encoding):
        def encode(self, value): return b""
        def decode(self, data): return None
    Mine.__qualname__ = "Mine"
    return Mine

Mine = cell()
"""


def test_a_registration_is_found_and_can_be_made_again(site):
    shown = site.run(
        CLASS
        + """
from streamplug import register_encoding
register_encoding("mine", Mine)
print(resolve("encoding", "mine") is Mine)
again = cell()
register_encoding("mine", again)  # as a notebook cell that is run again does
print(resolve("encoding", "mine") is again)
"""
    )
    assert shown == "True\nTrue\n"


def test_a_class_is_registered_by_a_decorator(site):
    shown = site.run(
        CLASS
        + """
from streamplug import register_encoding, register_storage
print(register_encoding("mine")(Mine) is Mine is resolve("encoding", "mine"))
print(register_encoding("mine", cell(), replace=True))
try:
    register_storage("mine")(Mine)
except Exception as error:
    print(type(error).__name__)
"""
    )
    assert shown == "True\nNone\nPluginError\n"


def test_a_decorator_without_a_name_is_refused(site):
    shown = site.run(
        """
from streamplug import Encoding, register_encoding
try:
    @register_encoding
    class Mine(Encoding):
        def encode(self, value): return b""
        def decode(self, data): return None
except Exception as error:
    print(type(error).__name__, error, sep=": ")
"""
    )
    assert shown == (
        'PluginError: register_encoding takes a name first, such as @register_encoding("mine"); got '
        "<class '__main__.Mine'>\n"
    )


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            "register('encoding', 'str', Mine, replace=True)",
            "NameTakenError: encoding 'str' is built in; built-in names are reserved",
        ),
        (
            "register('encoding', 'x', Mine)",
            (
                "NameTakenError: encoding 'x' is already provided by one 1.1; pass replace=True to "
                "replace it"
            ),
        ),
        (
            "register('encoding', 'other', Mine)",
            (
                "NameTakenError: encoding 'other' is already provided by an earlier registration; pass "
                "replace=True to replace it"
            ),
        ),
        (
            "register('encoding', 'My Name', Mine)",
            (
                "PluginError: Provider name 'My Name': use lower-case letters, digits and . _ - + [ ] "
                "only"
            ),
        ),
        *(
            (
                f"register('storage', '{name}', Mine)",
                (
                    f"PluginError: Provider name '{name}': a storage is named by the scheme of its URLs, "
                    "which has a letter first and then lower-case letters, digits and . - + only"
                ),
            )
            for name in ("my_store", "s[1]", "3d")
        ),
        (
            "register('encoding', 'new', int)",
            (
                "PluginError: register_encoding gives <class 'int'> as encoding 'new'; expected a "
                "subclass of Encoding"
            ),
        ),
        (
            "register('storage', 'new', Mine)",
            (
                "PluginError: register_storage gives <class '__main__.cell.<locals>.Mine'> as storage "
                "'new'; expected a subclass of Storage"
            ),
        ),
    ],
)
def test_registrations_that_are_refused(site, call, text):
    site.install("one", provides("x", "one.code:X"), version="1.1")
    shown = site.run(
        CLASS.replace('    Mine.__qualname__ = "Mine"\n', "")
        + f"""
class Other(Mine): pass
register("encoding", "other", Other)
try:
    {call}
except Exception as error:
    print(type(error).__name__, error, sep=": ")
"""
    )
    assert shown == text + "\n"


def test_a_registration_may_take_a_place_on_purpose(rivals):
    shown = rivals.run(
        CLASS
        + """
register("encoding", "x", Mine, replace=True)
print(resolve("encoding", "x") is Mine, make("encoding", "one:x").decode(b""))
class Other(Mine): pass
register("encoding", "x", Other, replace=True)
print(resolve("encoding", "x") is Other)
"""
    )
    assert shown == "True of one\nTrue\n"


def test_a_registration_wins_over_what_was_resolved_before(site):
    site.install("one", provides("x", "one.code:X"), code=ENCODING.format("of one"))
    shown = site.run(
        CLASS
        + """
print(resolve("encoding", "x").__module__)
register("encoding", "x", Mine, replace=True)
print(resolve("encoding", "x") is Mine)
from streamplug.plugin.registry import unregister
unregister("encoding", "x")
unregister("encoding", "never-was")
print(resolve("encoding", "x").__module__)
"""
    )
    assert shown.splitlines() == ["one.code", "True", "one.code"]


def test_registrations_travel_to_another_process(site):
    shown = site.run(
        CLASS
        + """
from streamplug.plugin.registry import registrations, restore, unregister
register("encoding", "mine", Mine)
saved = registrations()
unregister("encoding", "mine")
restore(saved)
print(resolve("encoding", "mine") is Mine)
class Own(Mine): pass
register("encoding", "mine", Own, replace=True)
restore(saved)
print(resolve("encoding", "mine") is Own)
"""
    )
    assert shown == "True\nTrue\n"


def test_a_worker_takes_the_class_that_was_registered_last(site):
    shown = site.run(
        CLASS
        + """
from streamplug.plugin.registry import registrations, restore, unregister
register("encoding", "mine", Mine)
first = registrations()
again = cell()
register("encoding", "mine", again)
second = registrations()
unregister("encoding", "mine")  # as in a worker, which has registered nothing
restore(first)
restore(second)
print(resolve("encoding", "mine") is again)
restore(first)
own = cell()
register("encoding", "mine", own)
restore(second)
print(resolve("encoding", "mine") is own)
"""
    )
    assert shown == "True\nTrue\n"
