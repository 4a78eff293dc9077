"""`python -m admin_nmt` is `admin-nmt`."""

from .cli.commands import main

main()
