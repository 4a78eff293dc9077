"""A page in the browser that translates with trained models, and the same page as a Space on the Hub."""
