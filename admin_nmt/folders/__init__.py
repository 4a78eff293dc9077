"""Model folders and repositories: finding, checking and loading them, what they hold, pushing them to the Hub."""
