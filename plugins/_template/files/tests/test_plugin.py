from __future__ import annotations

from streamplug.testing.plugin import PluginTests


class Test$class_name(PluginTests):
    distribution = "$distribution"
