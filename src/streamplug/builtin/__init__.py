"""The interfaces on the standard library and numpy alone; reached by name, never imported."""
