"""What a plan names: the plug-ins by their names, and the parts of one run made from them."""
