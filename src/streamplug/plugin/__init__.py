"""Declaration, discovery and lookup of plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin.lazy import lazy_names as lazy_names

if TYPE_CHECKING:
    from streamplug.plugin.catalog import load_catalog as load_catalog
    from streamplug.plugin.catalog import load_manifests as load_manifests
    from streamplug.plugin.discovery import AMBIGUOUS as AMBIGUOUS
    from streamplug.plugin.discovery import BROKEN as BROKEN
    from streamplug.plugin.discovery import OK as OK
    from streamplug.plugin.discovery import PROJECT as PROJECT
    from streamplug.plugin.discovery import REJECTED as REJECTED
    from streamplug.plugin.discovery import PluginEntry as PluginEntry
    from streamplug.plugin.discovery import disabled_reason as disabled_reason
    from streamplug.plugin.discovery import distribution_of as distribution_of
    from streamplug.plugin.discovery import excluded_reason as excluded_reason
    from streamplug.plugin.discovery import hookimpl as hookimpl
    from streamplug.plugin.discovery import inventory as inventory
    from streamplug.plugin.discovery import load_section as load_section
    from streamplug.plugin.discovery import normalize as normalize
    from streamplug.plugin.discovery import section_keys as section_keys
    from streamplug.plugin.kinds import KINDS as KINDS
    from streamplug.plugin.location import absolute_location as absolute_location
    from streamplug.plugin.location import is_http as is_http
    from streamplug.plugin.location import is_url as is_url
    from streamplug.plugin.location import join as join
    from streamplug.plugin.location import local_path as local_path
    from streamplug.plugin.location import open_storage as open_storage
    from streamplug.plugin.location import output_locations as output_locations
    from streamplug.plugin.location import split_query as split_query
    from streamplug.plugin.location import strip_client as strip_client
    from streamplug.plugin.provider import Provider as Provider
    from streamplug.plugin.registration import register_callback as register_callback
    from streamplug.plugin.registration import register_compression as register_compression
    from streamplug.plugin.registration import register_encoding as register_encoding
    from streamplug.plugin.registration import register_engine as register_engine
    from streamplug.plugin.registration import register_format as register_format
    from streamplug.plugin.registration import register_shuffle as register_shuffle
    from streamplug.plugin.registration import register_storage as register_storage
    from streamplug.plugin.registry import Registrations as Registrations
    from streamplug.plugin.registry import clear_caches as clear_caches
    from streamplug.plugin.registry import is_known as is_known
    from streamplug.plugin.registry import list_names as list_names
    from streamplug.plugin.registry import load_class as load_class
    from streamplug.plugin.registry import make as make
    from streamplug.plugin.registry import make_uninitialized as make_uninitialized
    from streamplug.plugin.registry import register as register
    from streamplug.plugin.registry import registrations as registrations
    from streamplug.plugin.registry import resolve as resolve
    from streamplug.plugin.registry import restore as restore
    from streamplug.plugin.registry import split_spec as split_spec
    from streamplug.plugin.registry import unregister as unregister
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "catalog": "load_catalog load_manifests",
            "discovery": "AMBIGUOUS BROKEN OK PROJECT PluginEntry REJECTED disabled_reason "
            "distribution_of excluded_reason hookimpl inventory load_section normalize section_keys",
            "kinds": "KINDS",
            "lazy": "lazy_names",
            "location": "absolute_location is_http is_url join local_path open_storage "
            "output_locations split_query strip_client",
            "provider": "Provider",
            "registration": "register_callback register_compression register_encoding register_engine "
            "register_format register_shuffle register_storage",
            "registry": "Registrations clear_caches is_known list_names load_class make "
            "make_uninitialized register registrations resolve restore split_spec "
            "unregister",
        },
    )
