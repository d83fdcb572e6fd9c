"""How data sets, tables and progress are shown: notebooks, terminals, pages."""
