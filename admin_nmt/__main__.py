"""`python -m admin_nmt` is `admin-nmt`."""

from .cli import main

main()
