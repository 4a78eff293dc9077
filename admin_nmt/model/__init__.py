"""The models: configuration, layers and loss; exactly the files that travel to the Hub with a saved model."""
