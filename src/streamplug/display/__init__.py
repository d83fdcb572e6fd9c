"""Output for people: HTML, tables and progress on a terminal."""
