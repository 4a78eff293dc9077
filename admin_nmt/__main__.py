"""`python -m admin_nmt` is `admin-nmt`."""

from .cli.app import main

if __name__ == "__main__":
    main()
