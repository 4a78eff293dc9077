"""The machine underneath: files that appear whole, processes, devices, the terminal, and error messages."""
