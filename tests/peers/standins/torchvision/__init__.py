"""As much of torchvision as the programs of other libraries' guides use, which is large and binds torch."""
