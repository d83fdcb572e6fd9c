"""`streamplug simulate`, its page and its server."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from click.testing import CliRunner
from streamplug_simulate import open_dataset
from streamplug_simulate.page import page
from streamplug_simulate.server import PageServer
from streamplug_simulate.variants import (
    PAGE_MAX_NEEDS,
    offer_choices,
    simulate_for_page,
    simulate_variants,
)

from streamplug.cli import main

SECRET = "kept-to-itself"


def invoke(*arguments):
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def data_of(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def test_tables_tell_of_epochs_and_nodes(written):
    done = invoke(
        written,
        "--batch-size",
        10,
        "--nodes",
        9,
        "--epochs",
        2,
        "--price",
        0.1,
        "--shuffle",
        "window",
    )
    assert done.exit_code == 0, done.output
    assert re.search(r"run +9 nodes, 1 rank each", done.output)
    assert re.search(r"egress +[\d,]+ bytes over 2 epochs", done.output)
    assert re.search(r"cost +[\d.e-]+", done.output)
    assert "… of 9" in done.output
    assert "as if it were downloaded" in done.output


@pytest.mark.parametrize(
    ("shuffle", "order"),
    [
        ("window", "shuffle window, block size 50, canonical nodes default"),
        ("global", "shuffle global, canonical nodes default"),
        ("none", "shuffle none, canonical nodes default"),
    ],
)
def test_the_block_size_is_shown_where_it_is_used(written, shuffle, order):
    done = invoke(written, "--batch-size", 10, "--shuffle", shuffle, "--block-size", 50)
    assert order in done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", 0], "--port: only with --serve"),
        (["--serve", "--needs", 9], "--needs: not with --serve"),
        (["--prefetch-factor", 4], "--prefetch-factor: only with --workers of 1 or more"),
    ],
)
def test_options_without_an_effect_are_refused(written, options, words, monkeypatch):
    monkeypatch.setattr("streamplug_simulate.command.serve_page", lambda *_, **__: None)
    done = invoke(written, "--batch-size", 10, *options)
    assert done.exit_code == 2
    assert f"Error: {words}\n" in done.output


def test_a_batch_size_is_in_the_config_or_an_option(written):
    done = invoke(written)
    assert done.exit_code == 2
    assert done.output == "error: no batch size: give batch_size in the config, or --batch-size\n"


def test_json_tells_the_same(written):
    result = json.loads(
        invoke(written, "--batch-size", 10, "--cache-limit", "300kb", "--json").output
    )
    assert result["scenario"]["cache_limit"] == 300 * 1024
    assert result["complete"]
    assert result["egress"] == sum(node["bytes"] for node in result["nodes"])
    assert set(result["series"]) == {
        "seconds",
        "fetched",
        "held",
        "steps",
        "mean_wait",
        "longest_wait",
    }
    part = json.loads(invoke(written, "--batch-size", 10, "--needs", 20, "--json").output)
    assert not part["complete"]


def test_a_config_is_taken_with_what_is_told_beside(written, tmp_path):
    config = tmp_path / "run.json"
    config.write_text(json.dumps({"dataset": {"remote": str(written), "batch_size": 10}}))
    result = json.loads(invoke(config, "--step-time", 0.5, "--json").output)
    assert (result["scenario"]["batch_size"], result["scenario"]["step_seconds"]) == (10, 0.5)
    assert "is for a URL" in invoke(config, "--split", "train").output
    assert "not both" in invoke(config, "--json", "--serve").output
    assert invoke(config, "--nodes", "none").exit_code == 2


def test_a_page_holds_all_runs_of_which_two_settings_differ(written, tmp_path, caplog):
    path = tmp_path / "run.html"
    done = invoke(written, "--batch-size", 10, "--html", path)
    assert done.exit_code == 0, done.output
    assert caplog.messages == []  # of runs that were not asked for
    data = data_of(path.read_text())
    values = [len(choice["values"]) for choice in data["choices"]]
    pairs = sum((a - 1) * (b - 1) for n, a in enumerate(values) for b in values[n + 1 :])
    assert len(data["runs"]) == 1 + sum(values) - len(values) + pairs
    assert not data["server"]
    assert data["without_block_size"] == ["none", "global"]
    assert all(" " not in key and len(key.split(".")) == 8 for key in data["runs"])


def test_the_runs_of_a_page_are_those_that_are_simulated(plan):
    scenario = plan.scenario()
    offered = offer_choices(plan, scenario)
    done = []
    runs = simulate_variants(plan, scenario, offered, lambda *each: done.append(each))
    assert done[-1] == (len(runs), len(runs))
    names = [choice.name for choice in offered]
    at = ["0"] * len(names)
    at[names.index("nodes")], at[names.index("bandwidth")] = "1", "2"
    changed = replace(
        scenario,
        nodes=offered[names.index("nodes")].values[1],
        bandwidth=offered[names.index("bandwidth")].values[2],
    )
    assert runs[".".join(at)] == simulate_for_page(plan, changed, PAGE_MAX_NEEDS)


def test_a_page_asks_nobody_and_names_cannot_break_out(written, tmp_path):
    evil = tmp_path / "<img src=x onerror=alert(1)> & </script><script>alert(2)<!--"
    evil.parent.mkdir(exist_ok=True)
    place = tmp_path / "set"
    place.symlink_to(written)
    with open_dataset({"remote": str(place), "batch_size": 10}) as plan:
        plan.streams = [replace(plan.streams[0], remote=str(evil))]
        scenario = plan.scenario()
        text = page(
            plan, scenario, offer_choices(plan, scenario), {"": simulate_for_page(plan, scenario)}
        )
    assert "<img" not in text
    assert text.count("<script") == text.count("</script>") == 2
    assert "alert(2)" in data_of(text)["title"]
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in text


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names that are not UTF-8")
def test_a_page_shows_a_name_that_is_not_utf8(written, tmp_path):
    place, html = tmp_path / os.fsdecode(b"set\xff"), tmp_path / "run.html"
    place.symlink_to(written)
    done = invoke(place, "--batch-size", 10, "--html", html, "--json")
    assert done.exit_code == 0, done.output
    assert data_of(html.read_text("utf-8"))["title"].endswith("/set\\udcff")


def test_credentials_are_shown_nowhere(written, tmp_path):
    path = tmp_path / "run.html"
    options = json.dumps({"auto_mkdir": False, "password": SECRET})
    done = invoke(written, "--batch-size", 10, "--storage-options", options, "--html", path)
    text = path.read_text() if path.exists() else ""
    assert SECRET not in done.output + text


@contextmanager
def serving(plan):
    with PageServer(plan, plan.scenario(), 0, PAGE_MAX_NEEDS) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_server_simulates_what_is_asked(plan):
    with serving(plan) as server:
        status, text = ask(server, "/")
        assert status == 200
        assert data_of(text)["server"]
        assert {"none", "window", "global"} <= set(data_of(text)["shuffles"])
        status, text = ask(server, "/run?nodes=2&bandwidth=1mb&cache_limit=none&shuffle=none")
        assert status == 200
        assert len(json.loads(text)["nodes"]) == 2
        for query, why in (
            ("nodes=no", "nodes"),
            ("cache_limit=1", "one shard alone"),
            ("shuffle=unheard-of", "unheard-of"),
            ("nodes=0", "at least 1"),
            ("colour=1", "unknown setting"),
        ):
            status, text = ask(server, f"/run?{query}")
            assert status == 200
            assert why in json.loads(text)["error"]


def test_the_server_answers_this_machine_alone(plan):
    with serving(plan) as server:
        assert server.server_address[0] == "127.0.0.1"
        assert ask(server, "/", Host=f"localhost:{server.server_port}")[0] == 200
        assert ask(server, "/", Host="elsewhere.example")[0] == 403
        other = {"Host": f"localhost:{server.server_port}", "Sec-Fetch-Site": "cross-site"}
        assert ask(server, "/", **other)[0] == 200  # a link to the page
        assert ask(server, "/run?nodes=2", **other)[0] == 403
        assert ask(server, "/run?shuffle=" + "x" * 3000)[0] == 403
        assert ask(server, "/etc/passwd")[0] == 404


# Whoever runs the tests in the background has them ignore the signal.
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("streamplug", run_name="__main__")
"""


@pytest.mark.skipif(os.name == "nt", reason="there, no process can be interrupted so")
def test_serve_tells_its_address_and_stops_when_interrupted(written):
    command = [
        sys.executable,
        "-c",
        INTERRUPTIBLE,
        "simulate",
        str(written),
        "--batch-size",
        "10",
        "--serve",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            assert re.match(r"http://127\.0\.0\.1:\d+/ ", line), line
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 0, errors
