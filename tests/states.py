"""States for tests: their values by name, and states with other values."""

import json

from streamplug.plan import state

values = state.unpack


def with_values(saved, **changes):
    """Return a state with some values replaced; None leaves one out."""
    new, text = dict(saved), json.loads(saved[state.ORDER_KEY])
    for name, value in changes.items():
        place = new if name in new else text
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return {**new, state.ORDER_KEY: json.dumps(text)}
