"""The command line `admin-nmt`."""
