"""What importing and using streamplug loads, each in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
import textwrap

HEAVY = {
    "PIL",
    "aiohttp",
    "asyncio",
    "boto3",
    "botocore",
    "brotli",
    "click",
    "cloudpickle",
    "cramjam",
    "fsspec",
    "hypothesis",
    "importlib.metadata",
    "lz4",
    "msgpack",
    "msgspec",
    "pluggy",
    "pytest",
    "rich",
    "s3fs",
    "tenacity",
    "torch",
    "xxhash",
    "zstandard",
}


def loaded(code: str) -> set[str]:
    """Return the modules that are loaded after some code, besides those of a bare interpreter."""
    program = f"import sys\nbefore = set(sys.modules)\n{textwrap.dedent(code)}\n"
    program += "print(*sorted(set(sys.modules) - before))"
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    return set(run.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_nothing_heavy():
    modules = loaded("import streamplug")
    assert not modules & HEAVY
    assert {name for name in modules if name.startswith("streamplug")} == {"streamplug"}


def test_looking_at_the_names_loads_nothing():
    assert not loaded("import streamplug; dir(streamplug); streamplug.__version__") & HEAVY


def test_writing_and_reading_look_for_no_plugins(tmp_path):
    modules = loaded(
        f"""
        import streamplug
        from streamplug.dataset import StreamingDataset
        with streamplug.MDSWriter(columns={{"id": "int", "text": "str"}}, out={str(tmp_path)!r},
                                  compression="gz", hashes=["sha1"]) as writer:
            writer.write({{"id": 1, "text": "a"}})
        for shuffle in (False, True):
            dataset = StreamingDataset(local={str(tmp_path)!r}, shuffle=shuffle)
            assert [sample["text"] for sample in dataset] == ["a"]
        """
    )
    assert "streamplug.plugin.discovery" not in modules
    heavy = {"pluggy", "torch", "rich", "click", "PIL", "s3fs", "botocore", "zstandard"}
    assert not modules & heavy
    assert not modules & {"aiohttp", "asyncio", "fsspec", "streamplug_fsspec"}


def test_the_interfaces_load_no_client():
    assert not loaded("import streamplug.interfaces") & {
        "fsspec",
        "pluggy",
        "tenacity",
        "torch",
        "importlib.metadata",
    }


def test_registering_looks_for_plugins_only():
    modules = loaded(
        """
        import streamplug
        class Upper(streamplug.Encoding):
            def encode(self, value): return value.upper().encode()
            def decode(self, data): return str(data, "utf-8")
        streamplug.register_encoding("upper", Upper)
        """
    )
    assert "streamplug.plugin.discovery" in modules
    assert not modules & {"torch", "zstandard", "PIL", "s3fs", "botocore", "aiohttp"}
