"""Commands on whole data sets."""
