"""Display of data sets and progress in notebooks and terminals."""
