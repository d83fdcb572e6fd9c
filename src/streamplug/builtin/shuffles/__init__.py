"""Built-in shuffle algorithms."""
