"""Ties to training frameworks; each in a module of its own that nothing else imports."""
